"""SPAHM: local centers are noisy copies of global ones; the server matches them and counts the global ones.

Reference: M. Yurochkin, M. Agarwal, S. Ghosh, K. Greenewald, N. Hoang, "Statistical model aggregation via parameter
matching", NeurIPS 2019, arXiv 1911.00218, the Gaussian case. A global atom is drawn from ``N(mu0, t2)``, a client's
copy of it from ``N(atom, s2)``, both by feature; which atoms a client has follows an Indian buffet process of mass
gamma. The maximum a posteriori matching is sought client by client with the Hungarian algorithm.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import gammaln

from koncord._validation import check_count, check_number
from koncord.aggregate.base import Aggregator, ClientStep, Local, Outcome, Server
from koncord.aggregate.diagnostics import Diagnostics
from koncord.errors import KoncordError
from koncord.kernels.assign import means_by_label, nearest, sums_by_label
from koncord.kernels.lloyd import stacked_rows, unstacked
from koncord.kernels.silhouette import in_order_of_appearance
from koncord.protocol.floor import LOWER_FLOOR
from koncord.protocol.schema import LARGEST, Array, Number
from koncord.types import BoolArray, FloatArray, IntArray

# Clients beyond this number add nothing to the popularity of an atom; as released.
POPULARITY_CAP = 10
# Variances are kept above this share of the total variance of the atoms.
LEAST_PRIOR_VARIANCE = 1e-8
# Starts of the noise variance that are tried, as shares of the start of the scatter.
NOISE_SHARES = (10.0, 1.0, 0.1, 0.01, 0.001)
# A mean this near to a row, as a share of the spread of the rows, is that row.
SAME_PLACE = 1e-9

# --- messages ---


@dataclass(frozen=True, slots=True, kw_only=True)
class SendAtoms:
    """Server to client: send the means of your local components."""

    min_count: Annotated[int, Number(least=0, most=LARGEST["rows"])]  # rows a component must stand for to be sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Atoms:
    """Client to server: means of the local components that stand for enough rows; possibly none."""

    atoms: Annotated[FloatArray, Array("at most local_k", "n_features")]


# --- client steps ---


def send_atoms(local: Local, state: None, down: SendAtoms) -> tuple[None, Atoms]:
    """Send the means of phase 1 that stand for at least `min_count` rows.

    Where the site has a floor of its own, the means of the rows nearest to each take their place: it is known how many
    rows stand behind these, whatever phase 1 weighted its rows by.
    """
    means = local.estimate.means
    if local.min_report > 1:
        groups = local.grouped_by(means)
        means = means_by_label(groups.X, groups.labels, otherwise=means)
        means = means[np.bincount(groups.labels, minlength=len(means)) >= local.min_report]
        return None, Atoms(atoms=means)
    return None, Atoms(atoms=means[means_stand_for_rows(local.X, means, down.min_count)])


def means_stand_for_rows(X: FloatArray, means: FloatArray, min_count: int) -> BoolArray:
    """Means nearest to at least `min_count` rows, and not themselves a row that fewer than `min_count` rows share."""
    counts = np.bincount(nearest(X, means), minlength=len(means))
    reach = SAME_PLACE * np.sqrt(X.var(axis=0).sum())
    n_same = np.array([(np.linalg.norm(X - mean, axis=1) <= reach).sum() for mean in means])
    stands: BoolArray = (counts >= min_count) & ((n_same == 0) | (n_same >= min_count))
    return stands


# --- server steps ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """Variances and mean of the model, by feature."""

    center: FloatArray  # (n_features,) mu0
    noise: FloatArray  # (n_features,) s2, of a client's copy around its global atom
    scatter: FloatArray  # (n_features,) t2, of the global atoms


def evidence(sums: FloatArray, counts: FloatArray, prior: Prior) -> FloatArray:
    """Twice the log marginal likelihood of `counts` atoms with these sums, up to terms that any matching shares.

    `sums` (..., n_features), `counts` (...); phi of the paper.
    """
    n = counts[..., None]
    spread = n * prior.scatter + prior.noise
    linear = (prior.scatter / prior.noise) * sums**2 + 2 * prior.center * sums - n * prior.center**2
    phi: FloatArray = (linear / spread - np.log(spread)).sum(axis=-1)
    return phi


def gains(
    atoms: FloatArray, sums: FloatArray, counts: FloatArray, prior: Prior, *, gamma: float, n_clients: int
) -> FloatArray:
    """What matching each of a client's atoms gains, (local_k, n_global + local_k).

    The first columns are the global atoms, with the sums and counts of what the other clients matched to them. The
    last are new atoms, the first, second, ... that this client opens.
    """
    popular = np.minimum(counts, POPULARITY_CAP)
    joined = evidence(sums + atoms[:, None], np.broadcast_to(counts + 1, (len(atoms), len(counts))), prior)
    old = joined - evidence(sums, counts, prior) + 2 * np.log(popular / (n_clients - popular))
    alone = evidence(atoms, np.ones(len(atoms)), prior) - evidence(np.zeros_like(prior.center), np.zeros(()), prior)
    new = (alone + 2 * np.log(gamma / n_clients))[:, None] - 2 * np.log(np.arange(1, len(atoms) + 1))
    return np.concatenate([old, new], axis=1)


def match(
    atoms: FloatArray, sums: FloatArray, counts: FloatArray, prior: Prior, *, gamma: float, n_clients: int
) -> IntArray:
    """Global atom of each of a client's atoms, one to one; new ones are numbered on, in the order of the client's."""
    table = gains(atoms, sums, counts, prior, gamma=gamma, n_clients=n_clients)
    group: IntArray = linear_sum_assignment(table, maximize=True)[1].astype(np.int64)
    is_new = group >= len(counts)
    group[is_new] = len(counts) + np.arange(is_new.sum())
    return group


def matched_in_turn(atoms: FloatArray, owners: IntArray, prior: Prior, *, gamma: float, n_clients: int) -> IntArray:
    """Groups of all atoms when the clients are matched one after the other, those with most atoms first."""
    groups = np.full(len(atoms), -1, dtype=np.int64)
    for client in np.argsort(-np.bincount(owners), kind="stable"):
        own, placed = owners == client, groups >= 0
        sums, counts = totals(atoms[placed], groups[placed])
        groups[own] = match(atoms[own], sums, counts, prior, gamma=gamma, n_clients=n_clients)
    return groups


def totals(atoms: FloatArray, groups: IntArray) -> tuple[FloatArray, FloatArray]:
    """Sum and number of the atoms matched to each global atom."""
    counts = np.bincount(groups).astype(float)
    return sums_by_label(atoms, groups, len(counts)), counts


def rematch(
    atoms: FloatArray, groups: IntArray, own: BoolArray, prior: Prior, *, gamma: float, n_clients: int
) -> IntArray:
    """Groups of all atoms after one client's, the rows `own`, were taken out and matched again."""
    groups = groups.copy()
    groups[~own] = np.unique(groups[~own], return_inverse=True)[1]
    sums, counts = totals(atoms[~own], groups[~own])
    groups[own] = match(atoms[own], sums, counts, prior, gamma=gamma, n_clients=n_clients)
    return groups


def fitted_prior(atoms: FloatArray, groups: IntArray, prior: Prior) -> Prior:
    """Moment estimates of the prior given the matching; the old prior while no two atoms are matched."""
    sums, counts = totals(atoms, groups)
    total_variance = float(atoms.var(axis=0).sum())
    n_matched = len(atoms) - len(counts)
    if n_matched == 0 or total_variance == 0:
        return prior
    means = sums / counts[:, None]
    center = means.mean(axis=0)
    floor = LEAST_PRIOR_VARIANCE * total_variance
    noise = np.maximum(((atoms - means[groups]) ** 2).sum(axis=0) / n_matched, floor)
    scatter = np.maximum(((means - center) ** 2).mean(axis=0) - noise * (1 / counts).mean(), floor)
    return Prior(center=center, noise=noise, scatter=scatter)


def log_posterior(atoms: FloatArray, owners: IntArray, groups: IntArray, prior: Prior, *, gamma: float) -> float:
    """Twice the log joint density of atoms and matching, up to terms that depend on neither matching nor variances."""
    sums, counts = totals(atoms, groups)
    n_clients, n_global = int(owners.max()) + 1, len(counts)
    likelihood = evidence(sums, counts, prior).sum()
    likelihood -= (len(atoms) - n_global) * np.log(prior.noise).sum() + (atoms**2 / prior.noise).sum()
    is_held = np.zeros((n_global, n_clients), dtype=np.bool_)
    is_held[groups, owners] = True
    alike = np.unique(is_held, axis=0, return_counts=True)[1]
    process = n_global * np.log(gamma) - gammaln(alike + 1).sum()
    process += (gammaln(n_clients - counts + 1) + gammaln(counts) - gammaln(n_clients + 1)).sum()
    return float(likelihood + 2 * process)


def posterior_means(atoms: FloatArray, groups: IntArray, prior: Prior) -> FloatArray:
    """Maximum a posteriori global atoms, (n_global, n_features)."""
    sums, counts = totals(atoms, groups)
    n = counts[:, None]
    centers: FloatArray = (prior.center * prior.noise + sums * prior.scatter) / (n * prior.scatter + prior.noise)
    return centers


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """A matching of all atoms and how it was come by."""

    groups: IntArray  # (n_atoms,) global atom of each, numbered as they appear
    prior: Prior
    n_passes: int
    has_converged: bool  # the last pass changed nothing


def matching_from(
    atoms: FloatArray,
    owners: IntArray,
    prior: Prior,
    rng: np.random.Generator,
    *,
    gamma: float,
    n_passes: int,
    estimate_hyper: bool,
) -> Matching:
    """Match the clients in turn, then one after the other again, in random order, until a pass changes nothing."""
    n_clients = int(owners.max()) + 1
    groups = matched_in_turn(atoms, owners, prior, gamma=gamma, n_clients=n_clients)
    groups = in_order_of_appearance(groups)
    has_converged, done = False, 0
    while done < n_passes and not has_converged:
        if estimate_hyper:
            prior = fitted_prior(atoms, groups, prior)
        before = groups
        for client in rng.permutation(n_clients):
            groups = rematch(atoms, groups, owners == client, prior, gamma=gamma, n_clients=n_clients)
        groups = in_order_of_appearance(groups)
        has_converged = np.array_equal(groups, before)
        done += 1
    if estimate_hyper:
        prior = fitted_prior(atoms, groups, prior)
    return Matching(groups=groups, prior=prior, n_passes=done, has_converged=has_converged)


def start_priors(atoms: FloatArray, noise: float | None, scatter: float | None) -> list[Prior]:
    """Where the search starts: the variances given, else the atoms' own variance and several shares of it."""
    variances = atoms.var(axis=0)
    floored = (
        np.maximum(variances, LEAST_PRIOR_VARIANCE * variances.sum()) if variances.any() else np.ones(len(variances))
    )
    scatters = floored if scatter is None else np.full(len(variances), float(scatter))
    noises = [share * scatters for share in NOISE_SHARES] if noise is None else [np.full(len(variances), float(noise))]
    return [Prior(center=atoms.mean(axis=0), noise=start, scatter=scatters) for start in noises]


class SPAHM(Aggregator):
    """SPAHM: one round, finds the global number of clusters.

    A client sends the means of its phase-1 components; one that is nearest to fewer than `min_count` rows, or is
    itself a row, is withheld. The server matches the atoms of all clients under a Beta-Bernoulli process, no two of
    one client to the same global atom. Sizes and spreads of the components play no part.

    The search ends in a local optimum that depends on where the variances of the model start. By default several
    starts are tried, relative to the variance of the atoms, and the matching with the highest posterior is kept. The
    released program starts from ``noise_variance=1, scatter_variance=1``, whatever the units of the data. Two clients
    with one atom each cannot tell whether these are near.

    Parameters
    ----------
    gamma : float, default 1.0
        Mass of the process; larger opens more global atoms.
    n_passes : int, default 10
        Most passes over the clients in which each is matched again; it stops earlier if a pass changes nothing.
    estimate_hyper : bool, default True
        Whether to estimate center and variances of the model from the matching, before each pass.
    noise_variance : float or None, default None
        S2, start of the variance of a client's copy around its global atom; None tries several.
    scatter_variance : float or None, default None
        T2, start of the variance of the global atoms; None is the variance of the clients' atoms.
    min_count : int, default 2
        Rows a component must stand for to be sent; 1 may send a row itself.

    Examples
    --------
    >>> import numpy as np, koncord
    >>> rng = np.random.default_rng(0)
    >>> held = (0, 9), (9, 18), (0, 18)
    >>> sites = [np.concatenate([rng.normal(m, 1, (60, 2)) for m in each]) for each in held]
    >>> clustering = koncord.FederatedClustering(koncord.KnownCounts(2), koncord.SPAHM(), random_state=0)
    >>> np.sort(clustering.fit(sites).cluster_centers_[:, 0]).round().astype(int)
    array([ 0,  9, 18])
    """

    name = "spahm"
    client_steps: ClassVar[Mapping[type[Any], ClientStep]] = {SendAtoms: send_atoms}

    def __init__(
        self,
        *,
        gamma: float = 1.0,
        n_passes: int = 10,
        estimate_hyper: bool = True,
        noise_variance: float | None = None,
        scatter_variance: float | None = None,
        min_count: int = 2,
    ) -> None:
        self.gamma = gamma
        self.n_passes = n_passes
        self.estimate_hyper = estimate_hyper
        self.noise_variance = noise_variance
        self.scatter_variance = scatter_variance
        self.min_count = min_count

    def server(self, clients: tuple[str, ...], n_features: int, rng: np.random.Generator) -> Server:
        check_number("gamma", self.gamma, owner=self, least=0, above=True)
        check_count("n_passes", self.n_passes, owner=self, least=0)
        for name in ("noise_variance", "scatter_variance"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), owner=self, least=0, above=True)
        down = SendAtoms(min_count=check_count("min_count", self.min_count, owner=self, least=0))
        return self._one_round(down, n_features, rng)

    def _one_round(self, down: SendAtoms, n_features: int, rng: np.random.Generator) -> Server:
        replies = yield down
        sent = {client: up.atoms for client, up in replies.items()}
        atoms = stacked_rows(sent, n_features)
        if not len(atoms):
            raise KoncordError(
                f"No client sent an atom: no local component stands for {down.min_count} rows, or for as many as its "
                f"site reports at least. {LOWER_FLOOR}"
            )
        sizes = [len(part) for part in sent.values() if len(part)]  # a client that sent nothing takes no part
        owners = np.repeat(np.arange(len(sizes)), sizes)
        origin = atoms.mean(axis=0)  # squares lose no digits to a far-off origin
        atoms = atoms - origin
        found = [
            matching_from(
                atoms,
                owners,
                start,
                rng,
                gamma=self.gamma,
                n_passes=self.n_passes,
                estimate_hyper=self.estimate_hyper,
            )
            for start in start_priors(atoms, self.noise_variance, self.scatter_variance)
        ]
        values = [log_posterior(atoms, owners, m.groups, m.prior, gamma=self.gamma) for m in found]
        best = found[int(np.argmax(values))]
        centers = origin + posterior_means(atoms, best.groups, best.prior)
        diagnostics = Diagnostics(
            rounds=1,
            stopped="one round",
            objective=tuple(values),
            extra={
                "converged": best.has_converged,
                "passes": best.n_passes,
                "atoms_received": len(atoms),
                "clients_of_each_center": np.bincount(best.groups).tolist(),
                "noise_variance": best.prior.noise.tolist(),
                "scatter_variance": best.prior.scatter.tolist(),
            },
        )
        groups = unstacked(best.groups, sent)
        return Outcome(centers=centers, groups=groups, components=sent, diagnostics=diagnostics)
