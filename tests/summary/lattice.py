"""Rows of whole numbers from their Gram matrix: short vectors of the lattice that its columns span (MLLL).

Count, sums and sums of products of n rows are the Gram matrix of 1 + d vectors in n dimensions: a column of ones, and
the columns of the table. Reduced, these give the unit vectors, each of which is a row (Pohst, 1987: the vectors may
depend on each other).
"""

import numpy as np

DELTA, MOST_STEPS = 0.99, 20_000


class Lattice:
    """Vectors that are known by their Gram matrix of integers alone: `made` of the given ones, with products `own`."""

    def __init__(self, gram):
        self.gram, n = gram, len(gram)
        self.made, self.own = np.zeros((0, n), dtype=np.int64), np.zeros((0, 0), dtype=np.int64)
        self.inner, self.shares = np.zeros((0, 0)), np.zeros((0, 0))
        self.n_steps = 0

    def add(self, at):
        unit = np.eye(len(self.gram), dtype=np.int64)[at]
        self.made = np.vstack([self.made, unit])
        products = self.made @ self.gram @ unit
        self.own = np.block([[self.own, products[:-1, None]], [products[None, :-1], products[-1:, None]]])
        self._orthogonalize()
        self._reduce(max(1, len(self.made) - 1))

    def _orthogonalize(self):
        self.inner, self.shares = np.zeros(self.own.shape), np.eye(len(self.own))
        for i in range(len(self.own)):
            self._row(i)

    def _row(self, i):
        """Gram-Schmidt of one vector against those before it."""
        for j in range(i + 1):
            self.inner[i, j] = self.own[i, j] - self.inner[i, :j] @ self.shares[j, :j]
            if j < i:
                self.shares[i, j] = self.inner[i, j] / self.inner[j, j] if self.inner[j, j] > 1e-6 else 0.0

    def _reduce(self, at):
        while at < len(self.made) and self.n_steps < MOST_STEPS:
            self.n_steps += 1
            self._shorten(at)
            empty = next((i for i in (at, at - 1) if self.own[i, i] <= 0), None)
            if empty is not None:
                self.made = np.delete(self.made, empty, 0)
                self.own = np.delete(np.delete(self.own, empty, 0), empty, 1)
                self._orthogonalize()
                at = max(1, empty - 1)
            elif self.inner[at, at] < (DELTA - self.shares[at, at - 1] ** 2) * self.inner[at - 1, at - 1] - 1e-9:
                order = np.arange(len(self.made))
                order[[at - 1, at]] = at, at - 1
                self.made, self.own = self.made[order], self.own[np.ix_(order, order)]
                self._row(at - 1)
                self._row(at)
                at = max(at - 1, 1)
            else:
                at += 1

    def _shorten(self, at):
        """Take whole multiples of the vectors before it off one, until none is left to take."""
        self._row(at)
        for _ in range(30):
            was_long = False
            for before in range(at - 1, -1, -1):
                times = round(self.shares[at, before])
                if times:
                    was_long = True
                    self.made[at] -= times * self.made[before]
                    self.own[at] -= times * self.own[before]
                    self.own[:, at] -= times * self.own[:, before]
                    self.shares[at, : before + 1] -= times * self.shares[before, : before + 1]
            self._row(at)
            if not was_long:
                return


def rows_from(count, sums, products):
    """Rows that follow from count, sums and sums of products, taken as whole numbers."""
    gram = np.rint(np.block([[np.array([[count]]), sums[None]], [sums[:, None], products]])).astype(np.int64)
    center = np.rint(gram[0] / count).astype(np.int64)
    center[0] = 0
    shift = np.eye(len(gram), dtype=np.int64)
    shift[1:, 0] = -center[1:]
    moved = shift @ gram @ shift.T
    lattice = Lattice(moved)
    for at in np.argsort(np.diag(moved)):
        lattice.add(at)
    columns = lattice.made @ moved
    columns = columns * np.where(columns[:, :1] < 0, -1, 1)
    return columns[:, 1:] + np.outer(columns[:, 0], center[1:])


def n_found(rows, X):
    """How many rows of X are among some rows."""
    known = {tuple(row) for row in np.asarray(rows).astype(np.int64).tolist()}
    return sum(tuple(row) in known for row in X.astype(np.int64).tolist())
