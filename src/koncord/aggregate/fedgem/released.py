"""The server of the released FedGEM program, kept beside the corrected one so that the two can be compared.

It differs in where two balls meet (away from each other), in how often a meeting counts (twice if it changed the
grouping), and in its final means (lists that are copied from component to component). It walks over the pairs.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from koncord.aggregate.fedgem.balls import later_meetings, meeting_share
from koncord.types import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Meeting:
    """Two balls that meet, and what it did to the groups: "new", "join" (`ball` joins `other`), "union" or "none"."""

    ball: int
    other: int
    effect: str
    members: list[int] = field(default_factory=list)  # of the group of `ball` before a union
    other_members: list[int] = field(default_factory=list)  # of the group of `other` before it was joined


def meetings(centers: FloatArray, radii: FloatArray, clients: IntArray) -> Iterator[Meeting]:
    """Every pair of balls that meets, in order, with its effect on the groups."""
    groups: list[list[int]] = [[] for _ in clients]  # the group of each ball, one shared list a group
    for i, others in later_meetings(centers, radii, clients):
        for j in others.tolist():
            mine, theirs = groups[i], groups[j]
            if not mine and not theirs:
                groups[i] = groups[j] = [i, j]
                yield Meeting(i, j, "new")
            elif not mine or not theirs:
                joining, met = (i, j) if not mine else (j, i)
                home = groups[met]
                if clients[joining] in clients[home]:
                    yield Meeting(i, j, "none")
                    continue
                yield Meeting(joining, met, "join", [], list(home))
                home.append(joining)
                groups[joining] = home
            elif mine is not theirs and not np.isin(clients[mine], clients[theirs]).any():
                yield Meeting(i, j, "union", list(mine), list(theirs))
                mine.extend(theirs)
                for member in theirs:
                    groups[member] = mine
            else:
                yield Meeting(i, j, "none")


def released_move(centers: FloatArray, radii: FloatArray, clients: IntArray) -> FloatArray:
    """Mean of a component's own center and the points of its meetings, those that changed the grouping twice."""
    sums, counts = centers.copy(), np.ones(len(centers))
    for meeting in meetings(centers, radii, clients):
        i, j = sorted((meeting.ball, meeting.other))
        offset = centers[i] - centers[j]
        point = centers[i] + meeting_share(np.sqrt(offset @ offset), radii[i], radii[j]) * offset
        times = 1 if meeting.effect == "none" else 2
        sums[[i, j]] += times * point
        counts[[i, j]] += times
    moved: FloatArray = sums / counts[:, None]
    return moved


def released_final_means(centers: FloatArray, radii: FloatArray, clients: IntArray) -> FloatArray:
    """Mean of each component's list; the lists hold centers, as sums and counts, and are handed on at every change."""
    lists = np.column_stack([centers, np.ones(len(centers))])
    own = lists.copy()
    for meeting in meetings(centers, radii, clients):
        i, j = meeting.ball, meeting.other
        if meeting.effect == "new":
            lists[i] += own[j]
            lists[j] += own[i]
        elif meeting.effect == "join":
            lists[i] = lists[j] + own[i]
            lists[meeting.other_members] += own[i]
        elif meeting.effect == "union":
            mine, theirs = lists[i].copy(), lists[j].copy()
            lists[meeting.members] += theirs
            lists[meeting.other_members] += mine
    final: FloatArray = lists[:, :-1] / lists[:, -1:]
    return final
