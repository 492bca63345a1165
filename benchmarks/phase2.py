"""FedGEM against a plain implementation of the same steps, and how its server grows; both sides in one run, one thread.

    make bench-phase2            # or: .venv/bin/python benchmarks/phase2.py [--quick] [--json FILE]

(a) the whole second phase (all rounds, final grouping) through koncord's sites, link and codec, against the
    specification written out in NumPy row by row and pair by pair; groups and centers must be equal;
(b) the server step for 1,000 to 8,000 clients of 8 components, d = 16, with small and with huge radii: CPU, cost of
    doubling the clients (target at most 2.6), peak memory (under 4 GB), and whether the groups equal those of the
    plain walk where that finishes.
"""

import os

for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = "1"

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path
from time import perf_counter, process_time

import numpy as np

from koncord import FedGEM, KnownCounts
from koncord.aggregate.fedgem.balls import group, move_together
from koncord.protocol import setup
from koncord.session.inprocess import InProcess
from koncord.session.policy import SitePolicy
from koncord.session.rounds import run_rounds
from koncord.session.site import Site
from koncord_reproduction import partition

UPSILON, N_ROUNDS = 2.0, 10
LONGEST_WALK = 120.0


def plain_fedgem(tables, starts):
    """FedGEM as specified, one row and one pair at a time; groups and global centers."""
    thetas = [list(start) for start in starts]
    for _ in range(N_ROUNDS):
        moved, radii = [], []
        for X, theta in zip(tables, thetas, strict=True):
            means, variances = plain_em(X, theta)
            steps = [np.sum((m - t) ** 2) for m, t in zip(means, theta, strict=True)]
            moved.append(means)
            radii.append([np.sqrt(v + s) - np.sqrt(v) for v, s in zip(variances, steps, strict=True)])
        thetas = plain_move(moved, radii)
    finals, radii = [], []
    for X, theta in zip(tables, thetas, strict=True):
        means, _ = plain_em(X, theta)
        closest = min((np.linalg.norm(a - b) for i, a in enumerate(means) for b in means[:i]), default=np.inf)
        finals.append(means)
        radii.append([np.sqrt(UPSILON * closest * len(means) / np.sqrt(len(X)))] * len(means))
    groups = plain_walk(finals, radii)
    members = {}
    for means, own in zip(finals, groups, strict=True):
        for mean, name in zip(means, own, strict=True):
            members.setdefault(name, []).append(mean)
    return groups, [np.mean(rows, axis=0) for rows in members.values()]


def plain_em(X, theta):
    sums, masses, shares = [np.zeros(X.shape[1]) for _ in theta], np.zeros(len(theta)), []
    for x in X:
        logs = np.array([-0.5 * np.sum((x - mean) ** 2) for mean in theta])
        share = np.exp(logs - logs.max())
        share /= share.sum()
        shares.append(share)
        for m in range(len(theta)):
            masses[m] += share[m]
            sums[m] += share[m] * x
    means = [sums[m] / masses[m] for m in range(len(theta))]
    spread = np.zeros(len(theta))
    for x, share in zip(X, shares, strict=True):
        for m in range(len(theta)):
            spread[m] += share[m] * np.sum((x - means[m]) ** 2)
    return means, spread / masses


def plain_move(moved, radii):
    points = [[[mean] for mean in means] for means in moved]
    for g in range(len(moved)):
        for h in range(g + 1, len(moved)):
            for i, a in enumerate(moved[g]):
                for j, b in enumerate(moved[h]):
                    gap = np.linalg.norm(a - b)
                    if gap <= radii[g][i] + radii[h][j]:
                        share = max(1 - radii[h][j] / gap, min(0.5, radii[g][i] / gap)) if gap else 0.5
                        points[g][i].append(a + share * (b - a))
                        points[h][j].append(a + share * (b - a))
    return [[np.mean(own, axis=0) for own in client] for client in points]


def plain_walk(means, radii):
    """Groups by the walk over all pairs in order; names are the order in which groups appear."""
    flat = [(g, i) for g, own in enumerate(means) for i in range(len(own))]
    of, members = {}, {}
    for at, (g, i) in enumerate(flat):
        for h, j in flat[at + 1 :]:
            if g == h or np.linalg.norm(means[g][i] - means[h][j]) > radii[g][i] + radii[h][j]:
                continue
            a, b = of.get((g, i)), of.get((h, j))
            if a is None and b is None:
                of[g, i] = of[h, j] = (g, i)
                members[g, i] = [(g, i), (h, j)]
            elif a is None or b is None:
                free, home = ((g, i), b) if a is None else ((h, j), a)
                if free[0] not in [client for client, _ in members[home]]:
                    members[home].append(free)
                    of[free] = home
            elif a != b and not {c for c, _ in members[a]} & {c for c, _ in members[b]}:
                for ball in members[b]:
                    of[ball] = a
                members[a] += members.pop(b)
    names = {}
    return [
        [names.setdefault(of.get((g, i), ("free", g, i)), len(names)) for i in range(len(own))]
        for g, own in enumerate(means)
    ]


def federations(is_quick):
    """5 clients x 200 rows, and a 100-client MNIST federation cut to what the plain side can finish."""
    rng = np.random.default_rng(0)
    centers = 2 * rng.normal(size=(10, 21))  # the shape of the paper's frog calls
    held = [rng.permutation(10)[:6] for _ in range(5)]
    small = [rng.normal(centers[rng.choice(own, size=200)], 1) for own in held]
    yield "5 clients x 200 rows x 21", small, [6] * 5
    path = Path(os.environ.get("KONCORD_DATA", ".")) / "mnist_vae10.npz"
    n_clients = 5 if is_quick else 20
    if path.exists():
        with np.load(path) as stored:
            X, y = stored["X"].astype(float), stored["y"]
        parts = partition(y, 100, "A", 42)[:n_clients]
        yield (
            f"MNIST, {n_clients} of 100 clients, all rows",
            [X[p] for p in parts],
            [len(np.unique(y[p])) for p in parts],
        )
    else:
        print("no mnist_vae10.npz in KONCORD_DATA: its federation is left out", file=sys.stderr)


def compare(is_quick):
    rows = []
    for name, tables, counts in federations(is_quick):
        rng = np.random.default_rng(1)
        starts = [X[rng.choice(len(X), k, replace=False)] for X, k in zip(tables, counts, strict=True)]
        ours, outcome = ours_seconds(tables, starts, repeats=5)
        began = perf_counter()
        groups, centers = plain_fedgem(tables, starts)
        plain = perf_counter() - began
        same_groups = [g.tolist() for g in outcome.groups.values()] == groups
        same = same_groups and np.allclose(outcome.centers, centers)
        rows.append({"federation": name, "koncord": ours, "plain": plain, "ratio": plain / ours, "equal": same})
    return rows


def ours_seconds(tables, starts, repeats):
    """Median seconds of phase 2, after phase 1, through sites, link and codec."""
    times = []
    for _ in range(repeats):
        aggregator = FedGEM(upsilon=UPSILON, n_rounds=N_ROUNDS, start=starts)
        columns = tuple(f"x{c}" for c in range(tables[0].shape[1]))
        policy = SitePolicy(min_report=1)
        link = InProcess(
            [
                Site(f"{g:03}", X, columns, estimator=KnownCounts(1), aggregator=aggregator, policy=policy)
                for g, X in enumerate(tables)
            ]
        )
        link.guard.expect(aggregator.replies)
        means, scales = setup.no_scale(columns)
        prepare = setup.Prepare(seed=0, columns=columns, means=means, scales=scales)
        link.exchange(0, dict.fromkeys(link.clients, prepare))
        server = aggregator.server(link.clients, len(columns), np.random.default_rng(0))
        began = perf_counter()
        outcome, _ = run_rounds(link, server, first_round=1)
        times.append(perf_counter() - began)
    return sorted(times)[repeats // 2], outcome


def server_case(n_clients, kind):
    """Components of clients that each hold 8 of 40 clusters; radii far below or far above their distances.

    Radii near the spread of a cluster (0.1 here) are the hard case: all pairs within a cluster come into question, and
    "medium" shows what that costs.
    """
    rng = np.random.default_rng(n_clients)
    centers = 3 * rng.normal(size=(40, 16))
    means = np.concatenate([centers[rng.permutation(40)[:8]] for _ in range(n_clients)])
    means += 0.1 * rng.normal(size=means.shape)
    radii = {"small": 0.01, "medium": 0.05, "huge": 100.0}[kind] * rng.uniform(0.9, 1.1, size=len(means))
    return means, radii, np.repeat(np.arange(n_clients), 8)


def one_server(n_clients, kind):
    case = server_case(n_clients, kind)
    times = []
    for _ in range(5):
        began = process_time()
        move_together(*case)
        groups, all_meet = group(*case)
        times.append(process_time() - began)
    elapsed = min(times)  # the others were disturbed
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    result = {"clients": n_clients, "radii": kind, "seconds": elapsed, "peak_gb": peak, "groups": int(groups.max()) + 1}
    if n_clients <= 200:
        result["equal"] = groups.tolist() == vector_walk(*case)
    print(json.dumps({**result, "all_meet": bool(all_meet)}))


def vector_walk(means, radii, clients):
    """The plain walk with its distances by rows, to finish on some hundred clients."""
    of, members = [-1] * len(means), {}
    for i in range(len(means)):
        gaps = np.linalg.norm(means[i + 1 :] - means[i], axis=1)
        near = np.flatnonzero((gaps <= radii[i] + radii[i + 1 :]) & (clients[i + 1 :] != clients[i])) + i + 1
        for j in near.tolist():
            a, b = of[i], of[j]
            if a < 0 and b < 0:
                of[i] = of[j] = i
                members[i] = [i, j]
            elif a < 0 or b < 0:
                free, home = (i, b) if a < 0 else (j, a)
                if clients[free] not in clients[members[home]]:
                    members[home].append(free)
                    of[free] = home
            elif a != b and not np.isin(clients[members[a]], clients[members[b]]).any():
                for ball in members[b]:
                    of[ball] = a
                members[a] += members.pop(b)
    names = {}
    return [names.setdefault(g if g >= 0 else ("free", i), len(names)) for i, g in enumerate(of)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smaller federation, up to 2,000 clients")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--server", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.server:
        one_server(int(args.server[0]), args.server[1])
        return
    rows = compare(args.quick)
    print(f"(a) {'federation':42} {'koncord':>10} {'plain':>10} {'ratio':>9}  same result  target >= 100x")
    for row in rows:
        met = "met" if row["ratio"] >= 100 else "NOT MET"
        times = f"{1e3 * row['koncord']:8.1f}ms {row['plain']:9.2f}s {row['ratio']:8.0f}x"
        print(f"    {row['federation']:42} {times}  {row['equal']!s:11}  {met}")
    sizes = (100, 200, 1000, 2000) if args.quick else (100, 200, 1000, 2000, 4000, 8000)
    servers = []
    heads = f"{'clients':>8} {'radii':>6} {'seconds':>8} {'doubling':>9} {'peak GB':>8} {'groups':>7}"
    print(f"\n(b) {heads}  equal to the walk")
    for kind in ("small", "huge", "medium"):
        before = None
        for n in sizes:
            command = [sys.executable, __file__, "--server", str(n), kind]
            row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            doubled = before is not None and n == 2 * before["clients"]
            doubling = f"{row['seconds'] / before['seconds']:.2f}x" if doubled else ""
            facts = f"{n:8,} {kind:>6} {row['seconds']:8.2f} {doubling:>9} {row['peak_gb']:8.2f} {row['groups']:7}"
            print(f"    {facts}  {row.get('equal', 'not walked')}")
            servers.append(row)
            before = row
        largest = [row for row in servers if row["radii"] == kind and row["clients"] >= 1000]
        n_doublings = len(largest) - 1
        per_doubling = (largest[-1]["seconds"] / largest[0]["seconds"]) ** (1 / n_doublings)
        print(
            f"    {kind} radii: a doubling of the clients costs {per_doubling:.2f} times, on average of {n_doublings}"
        )
    if args.json:
        args.json.write_text(json.dumps({"compare": rows, "server": servers}, indent=1))


if __name__ == "__main__":
    main()
