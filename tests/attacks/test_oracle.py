"""The refusal as an oracle: is there a row beyond this value? By bisection, the extremes of every column."""

import numpy as np
import pytest
from malicious import Malicious, state_folder

from koncord.protocol.ledger import read_ledger

# The last two fail once they are fitted, so that no scale is settled and the run can go on.
ESTIMATORS = [{"name": "xmeans"}, {"name": "asm", "max_components": 0}, {"name": "xmeans", "max_components": -1}]
N_EXTREMES = 4


def incomes():
    """A column with a long tail, and plain ones."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(1000, 5))
    X[:, 0] = np.exp(rng.normal(10, 1.5, size=1000)).round(2)
    return X


def beyond(column, sign, threshold, largest, d):
    """A scale, W / 1e150 about t - W, that takes a row beyond t, and no other, out of the range of what is computed."""
    means, scales, far = np.zeros(d), np.ones(d), 4 * largest
    means[column], scales[column] = sign * (threshold - far), far / 1e150
    return means, scales


def extreme_by_answers(seen, column, sign, largest):
    """Largest value of a column (smallest, if `sign` is -1), from whether an answer is that to a value beyond all."""
    low, high = -largest, largest
    beyond_all = seen(column, sign, high, largest)
    while high - low > 2e-3:
        middle = (low + high) / 2
        if seen(column, sign, middle, largest) == beyond_all:
            high = middle
        else:
            low = middle
    return sign * high


def extremes_found(seen, X):
    asked = [(column, sign) for column in (0, 1) for sign in (1, -1)]
    largest = {0: 2.0**24, 1: 2.0**4}
    found = [extreme_by_answers(seen, column, sign, largest[column]) for column, sign in asked]
    true = [sign * (sign * X[:, column]).max() for column, sign in asked]
    return int((np.abs(np.array(found) - true) < 1e-2).sum())


@pytest.mark.parametrize("is_new_run", [False, True], ids=["one run", "a run a question"])
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
def test_what_a_site_refuses_tells_no_extreme_of_a_column(estimator, is_new_run, tmp_path, capsys, recovered):
    X = incomes()
    place = state_folder(tmp_path, X)
    coordinator = Malicious(place, X, estimator=estimator)

    def seen(*question):
        if is_new_run:
            coordinator.new_run()
        coordinator.prepare(*beyond(*question, X.shape[1]))
        return coordinator.seen

    n_found = extremes_found(seen, X)
    with capsys.disabled():
        print(f"\n  oracle: {n_found} of {N_EXTREMES} extremes in {coordinator.n_asked} questions", end=" ")
    recovered(values=n_found)
    refusals = [line for line in read_ledger(place.ledger) if line.refused is not None]
    assert len(refusals) == coordinator.n_refused
