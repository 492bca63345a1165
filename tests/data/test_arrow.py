"""Arrow columns as NumPy arrays."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koncord.data.arrow import values_of

FLOATS = st.lists(st.one_of(st.none(), st.floats(width=16)), max_size=12)


@given(st.lists(FLOATS, max_size=4), st.sampled_from([pa.float16(), pa.float32(), pa.float64()]), st.integers(0, 3))
def test_values_are_those_that_arrow_itself_gives(chunks, kind, start):
    column = pa.chunked_array(
        [pa.array(np.array(c, dtype=float), from_pandas=True).cast(kind) for c in chunks], type=kind
    )
    expected = np.array([np.nan if value is None else value for value in column.to_pylist()], dtype=float)
    np.testing.assert_array_equal(values_of(column), expected)
    np.testing.assert_array_equal(values_of(column.slice(start)), expected[start:])
    for at, chunk in enumerate(column.chunks):
        np.testing.assert_array_equal(values_of(chunk), values_of(pa.chunked_array([column.chunk(at)])))


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
def test_an_empty_column_has_no_values(kind):
    assert values_of(pa.chunked_array([], type=kind)).shape == (0,)
