import numpy as np
import pytest

from koncord_reproduction.waveform import triangles, waveform


def test_the_waves_are_those_of_the_book():
    def h1(i):
        return max(6 - abs(i - 11), 0)

    expected = [[h1(i) for i in range(1, 22)], [h1(i - 4) for i in range(1, 22)], [h1(i + 4) for i in range(1, 22)]]
    assert triangles().tolist() == expected


@pytest.mark.parametrize(("label", "first", "second"), [(0, 0, 1), (1, 0, 2), (2, 1, 2)])
def test_a_class_mixes_its_two_waves_by_a_uniform_share_under_unit_noise(label, first, second):
    X, y = waveform(60_000, seed=3)
    rows = X[y == label]
    waves = triangles()
    step = waves[first] - waves[second]
    assert np.abs(rows.mean(axis=0) - (waves[first] + waves[second]) / 2).max() < 0.06
    # A uniform share has variance 1 / 12.
    assert np.abs(np.cov(rows.T) - (np.eye(21) + np.outer(step, step) / 12)).max() < 0.15
    share = (rows - waves[second]) @ step / (step @ step)
    assert np.quantile(share, [0.25, 0.5, 0.75]) == pytest.approx([0.25, 0.5, 0.75], abs=0.03)


def test_classes_are_equally_likely_and_the_seed_decides_all():
    X, y = waveform(30_000, seed=1)
    assert np.bincount(y) / len(y) == pytest.approx([1 / 3] * 3, abs=0.01)
    again, other = waveform(30_000, seed=1), waveform(30_000, seed=2)
    assert np.array_equal(X, again[0])
    assert np.array_equal(y, again[1])
    assert not np.array_equal(X, other[0])


def test_there_are_as_many_rows_as_asked_for_and_5000_by_default():
    assert waveform()[0].shape == (5000, 21)
    assert waveform(1)[0].shape == (1, 21)
    with pytest.raises(ValueError, match="'n' of waveform must be at least 1; got 0"):
        waveform(0)


def test_the_file_of_uci_holds_the_same_three_classes(benchmark_set):
    X, y = benchmark_set("waveform", "X", "y")
    generated, classes = waveform(30_000)
    found = np.array([X[y == label].mean(axis=0) for label in range(3)])
    ours = np.array([generated[classes == label].mean(axis=0) for label in range(3)])
    gaps = np.abs(found[:, None] - ours).max(axis=2)
    assert sorted(gaps.argmin(axis=1)) == [0, 1, 2]
    assert gaps.min(axis=1).max() < 0.2
