"""Every aggregator once, short, for tests that hold all of them to one rule."""

from koncord import AFCL, FFCM, SPAHM, Consensus, FedGEM, FedKMeans, KFed


def every_aggregator(k, leaf_rows):
    """By name, for k clusters; the leaves of Consensus stand for at least `leaf_rows` rows."""
    return {
        "fedgem": FedGEM(upsilon=2, n_rounds=3),
        "fedgem, upsilon open": FedGEM(n_rounds=3),
        "fedgem, released": FedGEM(upsilon=2, n_rounds=5, variant="released"),
        "consensus": Consensus(leaf_rows),
        "kfed": KFed(k),
        "fedkmeans": FedKMeans(k, n_rounds=4),
        "ffcm avg1": FFCM(k, max_rounds=4),
        "ffcm avg2": FFCM(k, averaging="avg2", max_rounds=4),
        "spahm": SPAHM(),
        "afcl": AFCL(2 * k, allow_disclosure=True, n_rounds=4),
    }
