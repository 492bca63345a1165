"""Feed damaged bytes to the codec, and to a site that takes them for the server's.

    python -m venv /tmp/fuzz && /tmp/fuzz/bin/pip install atheris -e .
    /tmp/fuzz/bin/python tests/fuzz/codec.py /tmp/found tests/fuzz/corpus -max_total_time=300 -max_len=4096

The first folder takes what is found, the second is where it starts. Anything but a message or a `MessageError` stops
the run and is kept. The corpus is replayed by tests/fuzz/test_codec.py, which needs no fuzzer.
"""

import sys
from contextlib import nullcontext, suppress
from copy import copy

import numpy as np

is_fuzzing = __name__ == "__main__"
if is_fuzzing:
    import atheris

# Whoever only replays the corpus needs no fuzzer; it counts the branches of what it is to break.
with (
    atheris.instrument_imports(include=["koncord.protocol", "koncord.session", "koncord.aggregate", "json"])
    if is_fuzzing
    else nullcontext()
):
    from koncord import KnownCounts
    from koncord.aggregate.registry import AGGREGATORS as REGISTERED
    from koncord.aggregate.registry import aggregator_named
    from koncord.checks.aggregators import for_clusters
    from koncord.errors import MessageError
    from koncord.protocol import setup
    from koncord.protocol.wire import pack, unpack
    from koncord.session import guard
    from koncord.session.policy import SitePolicy
    from koncord.session.site import Site

AGGREGATORS = tuple(for_clusters(aggregator_named(name)(), 2) for name in REGISTERED.own)
KINDS = tuple(
    dict.fromkeys(
        kind
        for aggregator in AGGREGATORS
        for kind in (
            *setup.REPLIES,
            *setup.REPLIES.values(),
            *aggregator.replies,
            *aggregator.replies.values(),
        )
    )
)
COLUMNS = ("a", "b")
ROWS = np.random.default_rng(0).normal(size=(12, 2))
PREPARE = setup.Prepare(seed=0, columns=COLUMNS, means=np.zeros(2), scales=np.ones(2))


def try_codec(data: bytes) -> None:
    """What is read can be written and read again, to the same bytes."""
    with suppress(MessageError):
        message, round_ = unpack(data, KINDS)
        written = pack(message, round_=round_)
        again, _ = unpack(written, KINDS)
        assert pack(again, round_=round_) == written


def try_sites(data: bytes) -> None:
    """A site answers or refuses; it does not break."""
    for aggregator in AGGREGATORS:
        site = prepared_site(aggregator)
        with suppress(MessageError), np.errstate(all="ignore"):
            site.answer(data)


def prepared_site(aggregator):
    """A site that has answered Prepare and nothing else; it is fitted once."""
    if aggregator.name not in _prepared:
        policy = SitePolicy(min_report=1)
        site = Site("s", ROWS, COLUMNS, estimator=KnownCounts(1, n_init=1), aggregator=aggregator, policy=policy)
        site.answer(pack(PREPARE))
        _prepared[aggregator.name] = site
    site = copy(_prepared[aggregator.name])
    site.guard = guard.QuestionGuard("s", aggregator)
    return site


_prepared: dict[str, Site] = {}


def one_input(data: bytes) -> None:
    try_codec(data)
    with suppress(MessageError):
        unpack(data, KINDS)
        try_sites(data)


if is_fuzzing:
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
