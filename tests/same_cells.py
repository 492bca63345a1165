"""Other rows with the same cells, for what must not depend on rows."""

import numpy as np


def turned(X, cells, rng):
    """Other rows with the same counts, means and covariances of cells."""
    other = X.copy()
    for cell in np.unique(cells):
        own = X[cells == cell]
        basis = np.linalg.qr(np.c_[np.ones(len(own)), rng.normal(size=(len(own), len(own) - 1))])[0][:, 1:]
        turn = np.linalg.qr(rng.normal(size=(basis.shape[1],) * 2))[0]
        other[cells == cell] = own.mean(axis=0) + basis @ (turn @ (basis.T @ own))
    return other
