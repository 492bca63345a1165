"""The link of a run that a person watches: a line for every exchange, with who took part and how long it took."""

from collections.abc import Sequence
from time import perf_counter

from koncord.aggregate.base import Replies
from koncord.network.flower.link import FlowerLink
from koncord.network.processes import say
from koncord.session.rounds import Asked


class Watched(FlowerLink):
    """Tells on stderr what is asked, who answered, and who was missing and why."""

    def exchange_all(self, asked: Sequence[Asked]) -> list[Replies]:
        began = perf_counter()
        n_before = len(self.absences)
        received = super().exchange_all(asked)
        answered = sorted(set().union(*received))
        kinds = dict.fromkeys(type(message).__name__ for each in asked for message in each.down.values())
        line = (
            f"exchange {self.n_exchanges}: {' + '.join(kinds)}: {', '.join(answered)} ({perf_counter() - began:.1f} s)"
        )
        missing = [f"{absence.site} ({absence.reason})" for absence in self.absences[n_before:]]
        say(line + (f"; missing: {', '.join(missing)}" if missing else ""))
        return received
