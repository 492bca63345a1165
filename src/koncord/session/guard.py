"""What each side holds a message of the other against, beyond what the message says of itself.

The server knows what it asked, of whom, in which round, and what was agreed; the site knows what it has answered. A
message that does not fit is refused before anything is computed with it.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from koncord.aggregate.base import Aggregator, as_instance
from koncord.errors import BadReply, MessageError
from koncord.protocol import setup
from koncord.protocol.schema import Sizes
from koncord.protocol.wire import settled_by, unpack, wire_name
from koncord.types import FloatArray

# Times that a site answers each opening in one run: more than once only because a reply was lost.
MOST_REPEATS = 10
# Questions of one run that a site refuses, or fails to answer, before it answers no more: each tells the server that
# much. A server that keeps to the protocol is refused none.
MOST_REFUSALS = 10

# What is not answered once the other was.
EXCLUDES: dict[type[Any], type[Any]] = {setup.Measure: setup.Describe, setup.Describe: setup.Measure}


@runtime_checkable
class AddsUp(Protocol):
    """A reply that describes all rows of a client, and so has the moments of these."""

    def moments(self) -> tuple[int, FloatArray, FloatArray]:
        """Count, means and summed squared deviations (n_features,) on the agreed scale."""


class ReplyGuard:
    """The server's: a reply is of the type, the round and the sizes that its client was asked for.

    What a client says of itself holds for the rest of the run: a client of 100 rows may not count 200 later, and one
    that found 3 components may not send 4.
    """

    def __init__(self) -> None:
        self.replies = dict(setup.REPLIES)
        self.agreed: Sizes = {}
        self.said: dict[str, Sizes] = {}
        self.moments: dict[str, setup.Moments] = {}
        self.prepare: setup.Prepare | None = None

    def expect(self, replies: Mapping[type[Any], type[Any]]) -> None:
        """From now on take these replies, each to its message: those of the aggregator that is run."""
        self.replies |= replies

    def read(self, client: str, data: bytes, asked: Any, round_: int) -> Any:
        """The reply of `client` to the message `asked`; `BadReply` if it is anything else."""
        settles = settled_by(asked)
        try:
            sizes = {**self.agreed, **self.said.get(client, {}), **settles}
            reply, replied = unpack(data, (self.replies[type(asked)],), sizes)
            if replied != round_:
                raise MessageError(f"a reply of round {replied} came where round {round_} was asked.")
            self._check_counted(asked, reply)
            self._check_adds_up(client, reply)
        except MessageError as error:
            raise BadReply(client, str(error)) from error
        self._remember(client, asked, settles, reply)
        return reply

    def _check_counted(self, asked: Any, reply: Any) -> None:
        """`MessageError` if a client keeps the local k that it was asked for, or tells one that it was not."""
        if isinstance(reply, setup.Prepared) and (reply.local_k is not None) != asked.asks_local_k:
            raise MessageError(f"a local k was {'' if asked.asks_local_k else 'not '}asked for.")

    def _check_adds_up(self, client: str, reply: Any) -> None:
        """`MessageError` if a reply that describes all rows of a client is not of the rows that its moments are of."""
        moments, prepare = self.moments.get(client), self.prepare
        if not isinstance(reply, AddsUp) or moments is None or prepare is None or moments.epsilon is not None:
            return
        if prepare.categories:  # levels have no moments
            return
        reason = setup.why_not_same_rows(reply.moments(), moments, prepare)
        if reason is not None:
            raise MessageError(f"what it sent of its rows does not add up to its own moments: {reason}.")

    def _remember(self, client: str, asked: Any, settles: Sizes, reply: Any) -> None:
        if isinstance(reply, setup.Moments | setup.Sketch) and (reply.count or isinstance(reply, setup.Moments)):
            self.said.setdefault(client, {})["rows"] = reply.count
        if isinstance(reply, setup.Moments):
            self.moments[client] = reply
        elif isinstance(reply, setup.Measured):
            self._remember_sums(client, asked, reply)
        elif isinstance(reply, setup.Prepared):
            self.agreed |= {**settles, "n_features": asked.n_features}
            self.prepare = asked
            if reply.local_k is not None:
                self.said.setdefault(client, {})["local_k"] = reply.local_k

    def _remember_sums(self, client: str, asked: setup.Measure, reply: setup.Measured) -> None:
        """Sums of shaped values as moments, where they are of all rows: what is sent later must add up to them."""
        rows = self.said.get(client, {}).get("rows", 0)
        if rows and (reply.counts == rows).all():
            self.moments[client] = setup.Moments(
                columns=asked.columns,
                count=rows,
                means=asked.means + asked.scales * reply.means,
                scatters=asked.scales**2 * reply.scatters,
            )


class QuestionGuard:
    """The site's: every message is one of its protocol, about the agreed columns, in turn, no more than the method has.

    Openings (Survey, Measure, Describe, Prepare) belong to round 0 and may come again a few times, as a reply may have
    been lost. Every other round is answered once, there are no more rounds, and no more messages of a kind, than the
    aggregator itself has with its parameters, and Attribute is the last. What was refused counts, too.

    Sums of the values themselves and sums of the fenced values differ by what lies beyond the fence, which may be one
    row: after Describe there is no Measure, after Measure no Describe.
    """

    def __init__(self, site: str, aggregator: Aggregator | type[Aggregator], *, has_budget: bool = False) -> None:
        asked = as_instance(aggregator)
        private = asked.private_messages()
        self.site = site
        self.kinds = (*setup.REPLIES, *asked.replies)
        most = {**{kind: n if has_budget else 0 for kind, n in private.items()}, **asked.most_messages()}
        self.most_rounds = asked.most_rounds() + (sum(private.values()) if has_budget else 0)
        self.most_at_once = len(setup.OPENINGS) + asked.most_parts
        self.most = {**dict.fromkeys(setup.OPENINGS, MOST_REPEATS), **most}
        self.answered: set[int] = set()
        self.n_answered: Counter[str] = Counter()  # by the name of the message
        self.n_refused = 0
        self.is_over = False

    def check_exchange(self, n_messages: int) -> None:
        """`MessageError` if that many messages are more than the method has in one exchange."""
        if n_messages > self.most_at_once:
            raise MessageError(
                f"site {self.site!r} was sent {n_messages} messages in one exchange; its method has at most "
                f"{self.most_at_once}."
            )

    def read(self, data: bytes, prepared: setup.Prepare | None) -> tuple[Any, int]:
        """The server's message and its round; `MessageError` if the site does not take it now.

        `prepared` is what the site was prepared with, if it was: all later messages are about these columns.
        """
        if self.n_refused >= MOST_REFUSALS:
            raise MessageError(
                f"site {self.site!r} has refused {self.n_refused} questions of this run, and takes no more."
            )
        sizes = {} if prepared is None else {"n_features": prepared.n_features}
        message, round_ = unpack(data, self.kinds, sizes)
        reason = self._why_not(message, round_, prepared is not None)
        if reason is not None:
            raise MessageError(f"site {self.site!r} was sent {type(message).__name__} {reason}.")
        return message, round_

    def _why_not(self, message: Any, round_: int, is_prepared: bool) -> str | None:
        if self.is_over:
            return "after the last message of the run"
        if isinstance(message, setup.OPENINGS):
            excluded = EXCLUDES.get(type(message))
            if excluded is not None and self.n_answered[wire_name(excluded)]:
                return f"after {excluded.__name__}, which together tell single rows"
            return f"in round {round_}, not 0" if round_ else self._why_no_more(message)
        if not is_prepared:
            return "before Prepare"
        if round_ < 1 or round_ in self.answered:
            return f"in round {round_}, which is over"
        if isinstance(message, setup.Attribute):
            return None
        if len(self.answered) >= self.most_rounds:
            return f"after {self.most_rounds} rounds; its method has no more"
        return self._why_no_more(message)

    def _why_no_more(self, message: Any) -> str | None:
        n, most = self.n_answered[wire_name(type(message))], self.most[type(message)]
        if n < most:
            return None
        return f"after {n} of them; its method has no more" if most else "which its method does not ask for"

    def note(self, message: Any, round_: int) -> None:
        """Remember that the message was answered."""
        if round_:
            self.answered.add(round_)
        self.n_answered[wire_name(type(message))] += 1
        self.is_over = isinstance(message, setup.Attribute)

    def kept(self) -> dict[str, Any]:
        """What it remembers, as JSON values."""
        return {
            "answered": sorted(self.answered),
            "n_answered": dict(self.n_answered),
            "n_refused": self.n_refused,
            "is_over": self.is_over,
        }

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Go on from what another one remembered."""
        self.answered, self.n_answered = set(kept["answered"]), Counter(kept["n_answered"])
        self.n_refused, self.is_over = kept["n_refused"], kept["is_over"]
