"""The link of a run that is watched: a line for every exchange, and its state in the coordinator's folder."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from time import perf_counter
from typing import Any

from koncord.aggregate.base import Replies
from koncord.network.flower.link import FlowerLink
from koncord.network.places import Coordinator
from koncord.network.processes import say
from koncord.network.runstate import RUNNING, RunState, write_state
from koncord.session.rounds import RoundRequest


class Watched(FlowerLink):
    """Says on stderr what is asked, who answered, and who was missing and why; and keeps it for others to see.

    Parameters
    ----------
    place : Coordinator
        The coordinator, in whose folder the state is kept.
    state : RunState
        What is known of the run before its first exchange.
    *arguments, **options
        Those of `FlowerLink`.
    """

    def __init__(self, place: Coordinator, state: RunState, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, coordinator=place, **options)
        self.place, self.state = place, state

    def exchange_all(self, asked: Sequence[RoundRequest]) -> list[Replies]:
        began = perf_counter()
        n_before, sent_before = len(self.absences), len(self.departures)
        kinds = tuple(dict.fromkeys(type(message).__name__ for each in asked for message in each.down.values()))
        awaited = tuple(sorted({site for each in asked for site in each.down} - set(self.set_aside)))
        self.note(state=RUNNING, asked=kinds, answered=(), awaited=awaited)
        received = super().exchange_all(asked)
        answered, seconds = sorted(set().union(*received)), perf_counter() - began
        absences = self.absences[n_before:]
        exchange = {
            "exchange": self.n_exchanges,
            "asked": list(kinds),
            "answered": answered,
            "seconds": round(seconds, 3),
            "bytes": sum(departure.n_bytes for departure in self.departures[sent_before:]),
        }
        self.note(
            state=RUNNING,
            asked=(),
            answered=(),
            awaited=(),
            exchanges=(*self.state.exchanges, exchange),
            missing=(*self.state.missing, *map(asdict, absences)),
        )
        missing = [f"{absence.site} ({absence.reason})" for absence in absences]
        line = f"exchange {self.n_exchanges}: {' + '.join(kinds)}: {', '.join(answered)} ({seconds:.1f} s)"
        say(line + (f"; missing: {', '.join(missing)}" if missing else ""))
        return received

    def note_progress(self, answered: Collection[str], awaited: Collection[str]) -> None:
        now = {"answered": tuple(sorted({*self.state.answered, *answered})), "awaited": tuple(sorted(awaited))}
        if now != {name: getattr(self.state, name) for name in now}:
            self.note(**now)

    def note_answers(self, versions: Mapping[str, str]) -> None:
        self.place.note_seen(versions)

    def note(self, **changes: Any) -> None:
        """Write what has changed of the state of the run."""
        self.state = replace(self.state, **changes)
        write_state(self.place.folder, self.state)
