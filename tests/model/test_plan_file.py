"""A model with a plan comes back from its file and labels rows as before: logged columns, gaps, categories."""

import numpy as np
import pandas as pd
import pytest

from koncord import FederatedClustering, GlobalModel, KnownCounts


def plants(seed=0):
    rng = np.random.default_rng(seed)
    found = {}
    for site in "abc":
        state = np.repeat([0, 1], 150)
        frame = pd.DataFrame(
            {
                "valve": np.where(state, "open", "shut"),
                "dust": np.exp(rng.normal(size=300) + state),
                "heat": rng.normal(size=300) + 9 * state,
                "pump": rng.choice(["p1", "p2", "p3"], 300),
            }
        )
        frame.loc[rng.random(300) < 0.2, "heat"] = np.nan
        found[site] = frame
    return found


@pytest.mark.parametrize("missing", ["neighbors", "gaussian", "mean", "drop"])
def test_a_model_with_a_plan_labels_alike_after_its_file_was_read(tmp_path, missing):
    tables = plants()
    fitted = FederatedClustering(KnownCounts(1), random_state=0, categories=("valve", "pump"), missing=missing).fit(
        tables
    )
    assert fitted.model_.plan.categories == ("valve", "pump")
    assert fitted.model_.plan.is_logged.tolist() == [True, False]
    fitted.model_.save(tmp_path / "model.koncord")
    again = GlobalModel.load(tmp_path / "model.koncord")
    assert again == fitted.model_
    assert again.plan == fitted.model_.plan
    for labels, table in zip(fitted.labels_, tables.values(), strict=True):
        np.testing.assert_array_equal(labels, again.predict(table))
        # a row is labelled by itself: other rows and the order of columns do not matter
        np.testing.assert_array_equal(labels[:5], again.predict(table.iloc[:5][table.columns[::-1]]))


def test_a_frame_of_polars_or_arrow_is_the_same_table():
    polars = pytest.importorskip("polars")
    import pyarrow as pa

    tables = plants()
    options = {"random_state": 0, "categories": ("valve", "pump")}
    expected = FederatedClustering(KnownCounts(1), **options).fit(tables)
    for convert in (polars.from_pandas, pa.Table.from_pandas):
        found = FederatedClustering(KnownCounts(1), **options).fit({s: convert(t) for s, t in tables.items()})
        for one, other in zip(found.labels_, expected.labels_, strict=True):
            np.testing.assert_array_equal(one, other)
