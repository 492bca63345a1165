import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koncord.aggregate.fedgem import balls
from koncord.aggregate.fedgem.balls import group, meeting_share, move_together


def plain_group(centers, radii, clients):
    """The walk over all pairs, as it is described."""
    of, members, n_groups = [None] * len(centers), {}, 0
    for i in range(len(centers)):
        for j in range(i + 1, len(centers)):
            if clients[i] == clients[j] or np.linalg.norm(centers[i] - centers[j]) > radii[i] + radii[j]:
                continue
            a, b = of[i], of[j]
            if a is None and b is None:
                members[n_groups], of[i], of[j] = [i, j], n_groups, n_groups
                n_groups += 1
            elif a is None or b is None:
                free, home = (i, b) if a is None else (j, a)
                if clients[free] not in [clients[m] for m in members[home]]:
                    members[home].append(free)
                    of[free] = home
            elif a != b and not {clients[m] for m in members[a]} & {clients[m] for m in members[b]}:
                members[a] += members.pop(b)
                for m in members[a]:
                    of[m] = a
    names = {}
    return [names.setdefault(("free", i) if g is None else g, len(names)) for i, g in enumerate(of)]


def plain_move(centers, radii, clients):
    moved = []
    for i, center in enumerate(centers):
        points = [center]
        for j, other in enumerate(centers):
            gap = np.linalg.norm(center - other)
            if clients[i] != clients[j] and gap <= radii[i] + radii[j]:
                share = max(1 - radii[j] / gap, min(0.5, radii[i] / gap)) if gap else 0.5
                points.append(center + share * (other - center))
        moved.append(np.mean(points, axis=0))
    return np.array(moved)


def random_balls(seed):
    rng = np.random.default_rng(seed)
    clients = np.repeat(np.arange(rng.integers(1, 9)), rng.integers(1, 5))
    centers = rng.choice([0.3, 1, 3]) * rng.normal(size=(len(clients), rng.integers(1, 5)))
    radii = rng.uniform(0, rng.choice([0.2, 0.8, 2, 10]), size=len(clients))
    if rng.random() < 0.2:
        radii[rng.integers(len(radii))] = np.inf
    return centers, radii, clients


@pytest.mark.parametrize("few_balls", [4096, 0], ids=["slices", "tree"])
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_groups_and_moves_are_those_of_the_walk_over_all_pairs(few_balls, seed):
    centers, radii, clients = random_balls(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(balls, "FEW_BALLS", few_balls)
        patch.setattr(balls, "SLICE", 1 + seed % 7)
        patch.setattr(balls, "FEW_MEETINGS", seed % 3)
        groups, all_meet = group(centers, radii, clients)
        assert groups.tolist() == plain_group(centers, radii, clients)
        if np.isfinite(radii).all():
            np.testing.assert_allclose(move_together(centers, radii, clients), plain_move(centers, radii, clients))
    gaps = np.linalg.norm(centers[:, None] - centers, axis=2)
    is_other = clients[:, None] != clients
    assert all_meet == bool((gaps <= radii[:, None] + radii)[is_other].all())


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_no_group_holds_two_balls_of_one_client(seed):
    centers, radii, clients = random_balls(seed)
    groups, _ = group(centers, radii, clients)
    held = list(zip(groups.tolist(), clients.tolist(), strict=True))
    assert len(set(held)) == len(held)


def test_many_meeting_balls_group_by_position_alone():
    """Eight clients of three balls that all meet: the k-th balls of all clients are the k-th group."""
    clients = np.repeat(np.arange(8), 3)
    groups, all_meet = group(np.random.default_rng(0).normal(size=(24, 4)), np.full(24, 50.0), clients)
    assert all_meet
    assert groups.tolist() == [0, 1, 2] * 8


def overlapping_pairs(n, seed=0):
    """Random pairs of balls in 2 to 64 dimensions that overlap, as arrays one pair at a time."""
    rng = np.random.default_rng(seed)
    while n:
        d = int(rng.integers(2, 65))
        a, b = rng.normal(size=(2, d))
        r, s = rng.uniform(0, 1.8 * np.sqrt(d), size=2)
        if np.linalg.norm(a - b) <= r + s:
            yield a, b, r, s
            n -= 1


def test_the_meeting_point_lies_in_both_balls_and_the_released_one_seldom_does():
    n_ours = n_released = 0
    for a, b, r, s in overlapping_pairs(20_000):
        gap = np.linalg.norm(a - b)
        share = meeting_share(gap, r, s)
        ours, released = a + share * (b - a), a + share * (a - b)
        n_ours += np.linalg.norm(ours - a) <= r * (1 + 1e-12) and np.linalg.norm(ours - b) <= s * (1 + 1e-12)
        n_released += np.linalg.norm(released - a) <= r and np.linalg.norm(released - b) <= s
    assert n_ours == 20_000
    assert 0.04 < n_released / 20_000 < 0.08  # 5.9 % in the paper; larger radii give more


def test_coinciding_centers_meet_where_they_are():
    assert meeting_share(np.array(0.0), np.array(0.0), np.array(0.0)) == 0.5
