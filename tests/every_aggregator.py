"""Every aggregator of koncord once, short, for tests that hold all of them to one rule."""

from koncord.aggregate.registry import AGGREGATORS, aggregator_named
from koncord.checks.aggregators import for_clusters

# Those with more than one form, and what makes a run of the others short.
FORMS = {
    "fedgem": {
        "fedgem": {"upsilon": 2, "n_rounds": 3},
        "fedgem, upsilon open": {"n_rounds": 3},
        "fedgem, released": {"upsilon": 2, "n_rounds": 5, "variant": "released"},
    },
    "fedkmeans": {"fedkmeans": {"n_rounds": 4}},
    "ffcm": {"ffcm avg1": {"max_rounds": 4}, "ffcm avg2": {"averaging": "avg2", "max_rounds": 4}},
    "afcl": {"afcl": {"n_rounds": 4}},
}


def every_aggregator(k, micro_rows):
    """By name, for k clusters; micro-clusters stand for at least `micro_rows` rows."""
    forms = FORMS | {"consensus": {"consensus": {"min_report": micro_rows}}}
    return {
        form: for_clusters(aggregator_named(name)(), k).set_params(**options)
        for name in AGGREGATORS.own
        for form, options in forms.get(name, {name: {}}).items()
    }
