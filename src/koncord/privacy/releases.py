"""A site that adds to secure sums: its releases, with its share of the noise, leave it under masks alone.

The coordinator asks for numbers (`AskNumbers`): one release of the rows, as a vector of whole numbers. They are drawn
and wait for their masks; what leaves is what the messages of `koncord.privacy.securesums` hold.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np

from koncord._validation import LARGEST_VALUE
from koncord.errors import MessageError
from koncord.privacy import securesums
from koncord.privacy.budget import HISTOGRAM, HOLDINGS, KINDS, MOMENTS, PRODUCTS, Accountant, Budget
from koncord.privacy.masking import has_signed, signing_keys
from koncord.privacy.mechanism import Ball, Mechanism
from koncord.privacy.securesums import AskKeys, AskMasked, AskShares, IsSigned, KeptSum, Sign, SumClient
from koncord.privacy.withheld import names_alone, nothing_held
from koncord.protocol import setup
from koncord.protocol.schema import Array, Number, Word
from koncord.protocol.wire import pack
from koncord.types import FloatArray, IntArray

# Keys of one sum more than there are may have been asked for when a run ends.
SPARE_SUMS = 1

# --- messages ---


@dataclass(frozen=True, slots=True, kw_only=True)
class AskNumbers:
    """Server to client: draw this release; moments are of the agreed ball, products of a ball, others by center."""

    kind: Annotated[str, Word(*KINDS)]
    centers: Annotated[FloatArray | None, Array("global_k", "n_features")] = None
    ball_center: Annotated[FloatArray | None, Array("n_features")] = None
    ball_radius: Annotated[float | None, Number(least=1e-150, most=LARGEST_VALUE)] = None

    def __post_init__(self) -> None:
        if any((part is None) != (self.kind == MOMENTS) for part in (self.ball_center, self.ball_radius)):
            raise ValueError("'ball_center' and 'ball_radius' go with every release but moments.")
        if (self.centers is None) != (self.kind in (MOMENTS, PRODUCTS)):
            raise ValueError("'centers' go with every release but moments and products.")

    @property
    def ball(self) -> Ball:
        assert self.ball_center is not None
        assert self.ball_radius is not None
        return Ball(center=self.ball_center, radius=self.ball_radius)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """Client to server: so many numbers wait for their masks."""

    n_masked: Annotated[int, Number(least=1, size="n_masked")]


REPLIES: dict[type[Any], type[Any]] = {AskNumbers: Ready, **securesums.REPLIES}


# --- who adds up ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Parties:
    """The sites of a secure sum, as one of them knows them."""

    sites: frozenset[str]
    session: bytes  # names the run and what was stated of it, the same at all sites
    sign: Sign = field(repr=False)
    is_signed: IsSigned = field(repr=False)

    @property
    def n_sharing(self) -> int:
        """Sites that the noise is divided over: as many as every sum has at least."""
        return securesums.least_threshold(len(self.sites))


def parties_in_process(names: frozenset[str], secrets: dict[str, bytes], session: bytes) -> dict[str, Parties]:
    """The sites of one process, each with a key from its 32 secret bytes."""
    keys = {name: signing_keys(secret) for name, secret in secrets.items()}
    return {
        name: Parties(
            sites=names,
            session=session,
            sign=keys[name][0].sign,
            is_signed=lambda other, data, signature: other in keys and has_signed(keys[other][1], data, signature),
        )
        for name in names
    }


def most_sums(n_releases: int) -> dict[type[Any], int]:
    """Messages of each kind that a site with so many releases answers at most."""
    return {**dict.fromkeys(REPLIES, n_releases), AskKeys: n_releases + SPARE_SUMS, AskShares: n_releases + SPARE_SUMS}


# --- steps of a client ---


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptReleases:
    """What a site needs to go on after a restart; on its own disk, for it holds secrets."""

    n_used: IntArray  # releases of each kind so far
    number: int  # of the last sum that began
    numbers: IntArray | None  # that wait for their masks
    coming: IntArray | None  # the sum that began, in words
    sent: IntArray | None  # and the one whose numbers were sent
    sent_number: int


class SummedClient:
    """Answers the messages of one run in which the server sees sums over sites only.

    Parameters
    ----------
    name : str
        Of the site.
    X : array (n_samples, n_features)
    columns : tuple of str
        Names of the columns.
    accountant : Accountant
        Draws the site's share of the noise.
    parties : Parties
        The sites of the sums.
    """

    def __init__(
        self, name: str, X: FloatArray, columns: tuple[str, ...], accountant: Accountant, parties: Parties
    ) -> None:
        self.name, self.columns, self.parties = name, columns, parties
        self.accountant = accountant
        self.prepared: setup.Prepare | None = None
        self._table = X
        self._mechanism: Mechanism | None = None
        self._numbers: IntArray | None = None
        self._number = self._sent_number = 0
        self._coming: SumClient | None = None
        self._sent: SumClient | None = None

    @property
    def budget(self) -> Budget:
        """What was agreed."""
        return self.accountant.budget

    @property
    def epsilon(self) -> float:
        """What the sums cost so far, with the noise of all sites in them."""
        return self.accountant.epsilon

    def answer(self, message: Any, stream_of: Callable[[int], tuple[int, ...]]) -> Any:
        """The reply to a message; nothing here is drawn from the streams of seeds."""
        if isinstance(message, setup.Survey):
            return names_alone(self.columns, self.budget)
        if isinstance(message, setup.Prepare):
            return self._prepare(message)
        if isinstance(message, setup.Attribute):
            return nothing_held(len(message.centers))
        if isinstance(message, AskNumbers):
            return self._draw(message)
        if type(message) in securesums.REPLIES:
            return self._sum(message)
        raise MessageError(f"site {self.name!r} adds to secure sums in this run, and answers nothing else.")

    def _prepare(self, message: setup.Prepare) -> setup.Prepared:
        """Take the columns in the agreed order, as they are. Asked again, the same."""
        if self.prepared is None:
            self._take(message)
        elif pack(self.prepared) != pack(message):
            raise MessageError(f"site {self.name!r} was sent a second Prepare that is not the first.")
        return setup.Prepared(local_k=0 if message.asks_local_k else None)

    def _take(self, message: setup.Prepare) -> None:
        if not message.is_plain or message.means.any() or (message.scales != 1).any():
            raise MessageError(f"site {self.name!r} was asked for a scale, which a secure sum does not have.")
        if not set(message.columns) <= set(self.columns):
            raise MessageError(f"site {self.name!r} was asked for columns that are not those of its table.")
        order = setup.order_of(self.columns, message.columns)
        self._mechanism = Mechanism(self._table[:, order], self.accountant)
        self.prepared = message

    def _draw(self, message: AskNumbers) -> Ready:
        """Draw a release, noise included; it waits for the sum that began."""
        if self._mechanism is None or self._coming is None:
            raise MessageError(f"site {self.name!r} was asked for numbers before a sum began.")
        if message.kind == MOMENTS:
            d = len(self._mechanism_columns)
            agreed = Ball(center=np.full(d, self.budget.center), radius=self.budget.bound)
            released = self._mechanism.released_moments(agreed)
        elif message.kind == PRODUCTS:
            released = self._mechanism.released_products(message.ball)
        elif message.kind in (HISTOGRAM, HOLDINGS):
            released = self._mechanism.released_counts(self._centers_of(message), message.ball, message.kind)
        else:
            released = self._mechanism.released_cells(self._centers_of(message), message.ball, message.kind)
        self._numbers = released.ravel()
        return Ready(n_masked=len(self._numbers))

    @property
    def _mechanism_columns(self) -> tuple[str, ...]:
        assert self.prepared is not None
        return self.prepared.columns

    def _centers_of(self, message: AskNumbers) -> FloatArray:
        assert message.centers is not None
        return message.centers

    def _sum(self, message: Any) -> Any:
        """A step of the sum that began or, of the last two steps, of the one whose numbers were sent."""
        if isinstance(message, AskKeys):
            if message.number <= self._number:
                raise MessageError(f"site {self.name!r} was asked for sum {message.number} after {self._number}.")
            self._number, self._coming = message.number, self._client(message.number)
        is_coming = isinstance(message, AskKeys | AskShares | AskMasked)
        client = self._coming if is_coming else self._sent
        if client is None:
            raise MessageError(f"site {self.name!r} was sent {type(message).__name__} of no sum that it is in.")
        numbers, self._numbers = (self._numbers, None) if isinstance(message, AskMasked) else (None, self._numbers)
        reply = client.answer(message, numbers)
        if client.has_sent and is_coming:
            self._sent, self._sent_number, self._coming = client, self._number, None
        return reply

    def _client(self, number: int) -> SumClient:
        parties = self.parties
        return SumClient(
            name=self.name,
            session=session_of(parties.session, number),
            sites=parties.sites,
            sign=parties.sign,
            is_signed=parties.is_signed,
        )

    @property
    def known(self) -> KeptReleases:
        """What to keep."""
        return KeptReleases(
            n_used=np.array(list(self.accountant.n_used.values()), dtype=np.int64),
            number=self._number,
            numbers=self._numbers,
            coming=None if self._coming is None else self._coming.kept().as_words(),
            sent=None if self._sent is None else self._sent.kept().as_words(),
            sent_number=self._sent_number,
        )

    def restore(self, known: KeptReleases, prepared: setup.Prepare | None) -> None:
        """Go on as if this client had just answered what it kept this from."""
        self.accountant.n_used = dict(zip(KINDS, known.n_used.tolist(), strict=True))
        self._number, self._sent_number, self._numbers = known.number, known.sent_number, known.numbers
        if known.coming is not None:
            self._coming = self._client(self._number).restored(KeptSum.from_words(known.coming))
        if known.sent is not None:
            self._sent = self._client(self._sent_number).restored(KeptSum.from_words(known.sent))
        if prepared is not None:
            self._take(prepared)


def session_of(run: bytes, number: int) -> bytes:
    """The name of one sum of a run."""
    return b"\0".join([run, f"{number}".encode()])
