"""The link of `koncord run`: every exchange goes through the run of Flower that it has claimed."""

from collections.abc import Collection, Mapping, Sequence

from koncord.aggregate.base import Replies
from koncord.network.flower.exchange import Asked, Came, Exchange, Roll
from koncord.network.places import Coordinator
from koncord.protocol.setup import Prepare
from koncord.session.policy import ServerPolicy
from koncord.session.rounds import RoundRequest
from koncord.session.transport import Carried, Journal, PackedLink, set_aside_for

REVOKED = "its key was revoked"


class FlowerLink(PackedLink):
    """Link to sites by way of Flower.

    Parameters
    ----------
    roll : Roll
        Which node is which site, and the way to them.
    nodes : mapping of str to int or None
        Flower's number of every site, by its name; None for one without a key, which is asked for its name.
    run : str
        Name of the run, the same when it is resumed.
    method : str
        Estimator and aggregator of the run, as JSON for the sites.
    policy : ServerPolicy
        Quorum and timeouts.
    coordinator : Coordinator or None, default None
        Tells the sites whose key was revoked, which do not take part any more; looked up in every exchange.
    """

    def __init__(
        self,
        roll: Roll,
        nodes: Mapping[str, int | None],
        *,
        run: str,
        method: str,
        policy: ServerPolicy,
        journal: Journal | None,
        coordinator: Coordinator | None = None,
    ) -> None:
        super().__init__(list(nodes), min_sites=policy.min_sites, journal=journal)
        self.roll, self.nodes, self.run, self.method = roll, dict(nodes), run, method
        self.policy = policy
        self.coordinator = coordinator
        self._waits = policy.round_timeout

    def exchange_all(self, asked: Sequence[RoundRequest]) -> list[Replies]:
        # One site that comes late does its phase 1 while the others go on.
        n_prepared = sum(isinstance(message, Prepare) for each in asked for message in each.down.values())
        self._waits = self.policy.first_timeout if n_prepared >= self.min_sites else self.policy.round_timeout
        return super().exchange_all(asked)

    def carry(self, exchange: int, down: Mapping[str, Sequence[bytes]]) -> Carried:
        gone = self.revoked()
        asked = {site: messages for site, messages in down.items() if site not in gone}
        came = self._ask(exchange, asked)
        gone = self.revoked()  # also one that answered in between
        self.note_answers({site: answer.version for site, answer in came.received.items() if answer.version})
        refused = {site: set_aside_for(reason) for site, reason in came.refused.items()}
        refused |= {site: f"its owner refused: {reason}" for site, reason in came.declined.items()}
        refused |= {site: REVOKED for site in down if site in gone}
        taken = {site: came.received[site] for site in down if site in came.received and site not in refused}
        return Carried(
            replies={site: list(answer.replies) for site, answer in taken.items()},
            missing=came.missing,
            refused=refused,
            seconds={site: answer.seconds for site, answer in taken.items() if answer.seconds},
        )

    def revoked(self) -> set[str]:
        """Sites whose key was revoked by now."""
        return set() if self.coordinator is None else self.coordinator.revoked()

    def note_progress(self, answered: Collection[str], awaited: Collection[str]) -> None:
        """Called when sites have answered the exchange that goes on, with all that have and all that have not."""

    def note_answers(self, versions: Mapping[str, str]) -> None:
        """Called when some sites have answered, with the version of koncord each says it has."""

    def _ask(self, exchange: int, down: Mapping[str, Sequence[bytes]]) -> Came:
        asked = Asked(
            run=self.run,
            exchange=exchange,
            method=self.method,
            messages=down,
            nodes={site: self.nodes[site] for site in down},
            timeout=self._waits,
            returns_within=self.policy.round_timeout,
            needed=self.policy.min_sites,
            revoked=self.revoked,
            progress=self.note_progress,
        )
        return Exchange(self.roll, asked).carry_out()
