"""Balls of many clients that meet: where they move to, and how they group.

Both answers are those of a walk over all pairs in order, but no such walk is made. Few balls are compared in slices of
their distance matrix, many through a tree, and balls so large that every pair meets half-way need only sums.
"""

from collections.abc import Iterator

import numpy as np
from scipy.sparse import csr_array
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist

from koncord.kernels.assign import sums_by_label
from koncord.kernels.silhouette import in_order_of_appearance
from koncord.types import FloatArray, IntArray

# Up to this many balls, slices of the distance matrix are faster than a tree.
FEW_BALLS = 4096
SLICE = 256
# Pairwise comparison of so many groups is cheaper than going on with the walk.
FEW_GROUPS = 64
# Up to so many meetings of one ball are faster one by one.
FEW_MEETINGS = 32


def meeting_share(distance: FloatArray, radius: FloatArray, other_radius: FloatArray) -> FloatArray:
    """How far from ball i towards ball j their common point lies: half-way, moved into both balls.

    ``M_i + share (M_j - M_i)`` lies in both balls whenever they meet: the step of the paper, with its sign corrected.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.maximum(np.minimum(0.5, radius / distance), 1 - other_radius / distance)
    return np.where(distance > 0, share, 0.5)


def move_together(centers: FloatArray, radii: FloatArray, clients: IntArray) -> FloatArray:
    """New center of every ball: the mean of its own and of the points where it meets balls of other clients.

    Parameters
    ----------
    centers : array (n_balls, n_features)
    radii : array (n_balls,)
    clients : ndarray of shape (n_balls,)
        The client of each ball, in ascending order.
    """
    if reaches_half_way(centers, radii):
        return middle_of_all(centers, clients)
    if len(centers) <= FEW_BALLS:
        return np.concatenate([slice_together(rows, centers, radii, clients) for rows in slices(len(centers))])
    tree = KDTree(centers)
    return np.concatenate([near_together(rows, tree, centers, radii, clients) for rows in slices(len(centers))])


def reaches_half_way(centers: FloatArray, radii: FloatArray) -> bool:
    """Whether every ball surely reaches half-way to every other: no two are further apart than the widest spread."""
    from_middle = centers - centers.mean(axis=0)
    return bool(radii.min() >= np.sqrt(np.vecdot(from_middle, from_middle).max()))


def middle_of_all(centers: FloatArray, clients: IntArray) -> FloatArray:
    """`move_together` where all balls meet half-way: the sum over the other clients is all it takes."""
    counts = np.bincount(clients)
    own = sums_by_label(centers, clients, len(counts))
    n_others = (len(centers) - counts)[clients][:, None]
    sum_others = (own.sum(axis=0) - own)[clients]
    moved: FloatArray = (centers + 0.5 * (n_others * centers + sum_others)) / (1 + n_others)
    return moved


def slices(n: int) -> list[slice]:
    return [slice(start, min(start + SLICE, n)) for start in range(0, n, SLICE)]


def slice_together(rows: slice, centers: FloatArray, radii: FloatArray, clients: IntArray) -> FloatArray:
    distance = cdist(centers[rows], centers)
    meets = (distance <= radii[rows, None] + radii) & (clients[rows, None] != clients)
    share = np.where(meets, meeting_share(distance, radii[rows, None], radii), 0.0)
    return mean_with_meetings(centers[rows], meets.sum(axis=1), share.sum(axis=1), share @ centers)


def near_together(rows: slice, tree: KDTree, centers: FloatArray, radii: FloatArray, clients: IntArray) -> FloatArray:
    i, j, distance = near_pairs(rows, tree, centers, radii, clients)
    shape = (rows.stop - rows.start, len(centers))
    share = csr_array((meeting_share(distance, radii[i], radii[j]), (i - rows.start, j)), shape=shape)
    n_meets = np.bincount(i - rows.start, minlength=shape[0])
    return mean_with_meetings(
        centers[rows], n_meets, np.asarray(share.sum(axis=1), dtype=float), np.asarray(share @ centers)
    )


def mean_with_meetings(own: FloatArray, n_meets: IntArray, shares: FloatArray, moved: FloatArray) -> FloatArray:
    """Mean of a ball's center and its meeting points ``M_i + share (M_j - M_i)``, from sums over j."""
    mean: FloatArray = (own * (1 + n_meets - shares)[:, None] + moved) / (1 + n_meets)[:, None]
    return mean


def near_pairs(
    rows: slice, tree: KDTree, centers: FloatArray, radii: FloatArray, clients: IntArray
) -> tuple[IntArray, IntArray, FloatArray]:
    """Pairs (i, j) of balls of two clients that meet, i in `rows`, in order, with their distance."""
    reach = (radii[rows] + radii.max()) * (1 + 1e-9)
    found = tree.query_ball_point(centers[rows], reach, return_sorted=True)
    i = np.repeat(np.arange(rows.start, rows.stop), [len(near) for near in found])
    j = np.concatenate([np.asarray(near, dtype=np.int64) for near in found])
    offset = centers[i] - centers[j]
    distance = np.sqrt(np.vecdot(offset, offset))
    meets = (distance <= radii[i] + radii[j]) & (clients[i] != clients[j])
    return i[meets], j[meets], distance[meets]


def group(centers: FloatArray, radii: FloatArray, clients: IntArray) -> tuple[IntArray, bool]:
    """Group of every ball, numbered by first appearance; and whether all balls of different clients meet.

    Pairs are walked in order, the first ball against all those of later clients, then the second, and so on: two free
    balls start a group; a free one joins the group of the other unless that holds a ball of its client; two groups
    join unless they share a client. So no group ever holds two balls of one client, and where all balls meet, the
    order alone decides.
    """
    groups = Groups(clients)
    last_of_client = np.searchsorted(clients, clients, side="right")
    all_meet = True
    for ball, later in later_meetings(centers, radii, clients):
        all_meet = all_meet and len(later) == len(clients) - int(last_of_client[ball])
        if not groups.is_final:
            groups.meet(ball, later)
        elif not all_meet or reaches_half_way(centers, radii):
            break
    return groups.numbered(), all_meet


def later_meetings(centers: FloatArray, radii: FloatArray, clients: IntArray) -> Iterator[tuple[int, IntArray]]:
    """Every ball in order, with the balls of later clients that it meets, in order."""
    n = len(centers)
    if reaches_half_way(centers, radii):
        for ball, end in enumerate(np.searchsorted(clients, clients, side="right")):
            yield ball, np.arange(end, n)
    elif n <= FEW_BALLS:
        for rows in slices(n):
            meets = cdist(centers[rows], centers) <= radii[rows, None] + radii
            meets &= clients[rows, None] < clients
            for ball, row in enumerate(meets, start=rows.start):
                yield ball, np.flatnonzero(row)
    else:
        tree = KDTree(centers)
        for rows in slices(n):
            i, j, _ = near_pairs(rows, tree, centers, radii, clients)
            i, j = i[j > i], j[j > i]
            bounds = np.searchsorted(i, np.arange(rows.start, rows.stop + 1))
            for ball, start, stop in zip(range(rows.start, rows.stop), bounds[:-1], bounds[1:], strict=True):
                yield ball, j[start:stop]


class Groups:
    """Groups of balls in the making. Only meetings that change something cost time of their own."""

    def __init__(self, clients: IntArray) -> None:
        self.clients = clients
        self.of = np.full(len(clients), -1)  # group of each ball, -1 while free
        self.members: dict[int, list[int]] = {}
        self.holds: dict[int, set[int]] = {}  # clients of each group
        self.n_free = len(clients)
        self._is_final: bool | None = None  # None: not known since the last change

    @property
    def is_final(self) -> bool:
        """Nothing can change any more: no ball is free and every two groups share a client."""
        if self.n_free or len(self.holds) > FEW_GROUPS:
            return False
        if self._is_final is None:
            held = list(self.holds.values())
            self._is_final = not any(a.isdisjoint(b) for at, a in enumerate(held) for b in held[:at])
        return self._is_final

    def meet(self, ball: int, others: IntArray) -> None:
        """Let `ball` meet `others`, one after the other."""
        if len(others) <= FEW_MEETINGS:
            for other in others.tolist():
                self._meet_one(ball, other)
            return
        if self.of[ball] < 0:
            others = others[self._find_first_group(ball, others) :]
        while len(others):
            home = int(self.of[ball])
            theirs = self.of[others]
            rivals = [int(g) for g in np.unique(theirs) if g >= 0 and g != home]
            joinable = [g for g in rivals if self.holds[g].isdisjoint(self.holds[home])]
            first = int(np.isin(theirs, joinable).argmax()) if joinable else len(others)
            self._take_in(home, others[:first][theirs[:first] < 0])
            if first == len(others):
                return
            other_group = int(theirs[first])
            if self.holds[other_group].isdisjoint(self.holds[home]):
                self._unite(home, other_group)
            others = others[first + 1 :]

    def _meet_one(self, ball: int, other: int) -> None:
        mine, theirs = int(self.of[ball]), int(self.of[other])
        if mine < 0 and theirs < 0:
            self._found(ball, other)
        elif mine < 0 or theirs < 0:
            free, home = (ball, theirs) if mine < 0 else (other, mine)
            if int(self.clients[free]) not in self.holds[home]:
                self._put(home, [free])
        elif mine != theirs and self.holds[mine].isdisjoint(self.holds[theirs]):
            self._unite(mine, theirs)

    def _find_first_group(self, ball: int, others: IntArray) -> int:
        """Give a free ball its first group if any of `others` allows it; how many of them that took."""
        theirs = self.of[others]
        client = int(self.clients[ball])
        closed = [int(g) for g in np.unique(theirs) if g >= 0 and client in self.holds[int(g)]]
        is_open = ~np.isin(theirs, closed) if closed else np.ones(len(others), dtype=bool)
        first = int(is_open.argmax()) if len(others) else 0
        if not len(others) or not is_open[first]:
            return len(others)
        home = int(theirs[first])
        if home < 0:
            self._found(ball, int(others[first]))
        else:
            self._put(home, [ball])
        return first + 1

    def _take_in(self, home: int, free: IntArray) -> None:
        """Free balls join in turn, the first of each client that the group does not hold yet."""
        clients, first = np.unique(self.clients[free], return_index=True)
        is_new = [at for client, at in zip(clients.tolist(), first, strict=True) if client not in self.holds[home]]
        if is_new:
            self._put(home, free[is_new].tolist())

    def _found(self, ball: int, other: int) -> None:
        """Two free balls start a group."""
        self.members[ball], self.holds[ball] = [], set()
        self._put(ball, [ball, other])

    def _put(self, home: int, balls: list[int]) -> None:
        self.of[balls] = home
        self.members[home].extend(balls)
        self.holds[home].update(self.clients[balls].tolist())
        self.n_free -= len(balls)
        self._is_final = None

    def _unite(self, home: int, other: int) -> None:
        moved = self.members.pop(other)
        self.of[moved] = home
        self.members[home].extend(moved)
        self.holds[home] |= self.holds.pop(other)
        self._is_final = None

    def numbered(self) -> IntArray:
        """Groups by first appearance; a ball that stayed free is a group of its own."""
        return in_order_of_appearance(np.where(self.of < 0, len(self.of) + np.arange(len(self.of)), self.of))
