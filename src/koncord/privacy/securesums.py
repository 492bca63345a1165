"""Sums over sites of which the coordinator sees the sum alone: pairwise masks, secret shares for sites that drop out.

Reference: K. Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning", CCS 2017, in the
form against a coordinator that does not keep to the protocol (signed keys, and agreement on who is in the sum).

Five messages go down, each answered by all sites that are still there:

1. *keys*: every site sends two public keys, signed with its registered key, so that nobody can put in keys of its own;
2. *shares*: every site checks the signatures, and sends every other a sealed share of its masking key and of a seed;
3. *masked*: every site sends its numbers plus a mask for each other site, which cancel in the sum, plus one of its own;
4. *agreed*: every site signs who sent masked numbers;
5. *unmask*: every site checks that enough others signed the same, and sends its shares of the seeds of those who are in
   the sum and of the masking keys of those who dropped out. It never sends both of one site.

Numbers are whole, modulo 2**64. Of fewer than `threshold` sites nothing is ever opened. A site answers each message
once. The steps are pure but for the secrets that a client draws. Keys and shares do not depend on the numbers: those of
the next sum go with the last messages of the one before, so that a sum takes three exchanges.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from secrets import token_bytes
from typing import Annotated, Any, Self

import numpy as np

from koncord.errors import MessageError, TooFewSites
from koncord.privacy.masking import (
    SECRET_BYTES,
    SHARE_BYTES,
    Masks,
    agreed_key,
    agreed_secret,
    joined,
    key_for,
    opened,
    public_of,
    sealed,
    shares_of,
    stream,
)
from koncord.protocol.schema import LARGEST, LARGEST_ROUND, Array, Names, Number
from koncord.protocol.wire import pack, unpack
from koncord.types import IntArray

WORD = 8
# A signature is sent as its length and its bytes, in so many words.
SIGNATURE_BYTES = LARGEST["signature_words"] * WORD

Sign = Callable[[bytes], bytes]
IsSigned = Callable[[str, bytes, bytes], bool]  # whether the site of this name has signed the data

# --- messages ---


@dataclass(frozen=True, slots=True, kw_only=True)
class AskKeys:
    """Server to client: the sum of this number begins, of at least so many sites."""

    number: Annotated[int, Number(least=1, most=LARGEST_ROUND)]
    threshold: Annotated[int, Number(least=2, most=LARGEST["n_sites"])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Client to server: two public keys, and a signature of both."""

    sealing: Annotated[IntArray, Array("key_words")]
    masking: Annotated[IntArray, Array("key_words")]
    signature: Annotated[IntArray, Array("signature_words")]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskShares:
    """Server to client: the keys of all sites; send each a sealed share of your secrets."""

    sites: Annotated[tuple[str, ...], Names("n_sites")]
    sealing: Annotated[IntArray, Array("n_sites", "key_words")]
    masking: Annotated[IntArray, Array("n_sites", "key_words")]
    signatures: Annotated[IntArray, Array("n_sites", "signature_words")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Client to server: for every site, in order, a share of the masking key and of the seed that only it can read."""

    sealed: Annotated[IntArray, Array("n_sites", "seal_words")]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskMasked:
    """Server to client: the sites that shared their secrets, and what each sealed for you; send your numbers."""

    sites: Annotated[tuple[str, ...], Names("n_sites")]
    sealed: Annotated[IntArray, Array("n_sites", "seal_words")]
    n_masked: Annotated[int, Number(least=1, size="n_masked")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Masked:
    """Client to server: its numbers under masks; alone they are chance."""

    numbers: Annotated[IntArray, Array("n_masked")]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskAgreement:
    """Server to client: the sites whose numbers are in the sum; sign them."""

    sites: Annotated[tuple[str, ...], Names("n_sites")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Client to server: a signature of the sites in the sum."""

    signature: Annotated[IntArray, Array("signature_words")]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskUnmask:
    """Server to client: who signed the sites in the sum, with the signatures; send the shares that open it."""

    sites: Annotated[tuple[str, ...], Names("n_sites")]
    signatures: Annotated[IntArray, Array("n_sites", "signature_words")]
    n_shared: Annotated[int, Number(least=1, size="n_shared")]  # sites that shared their secrets


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """Client to server: of every site that shared its secrets, a share of its seed, or of its key if it dropped out."""

    shares: Annotated[IntArray, Array("n_shared", "share_words")]


REPLIES: dict[type[Any], type[Any]] = {
    AskKeys: Keys,
    AskShares: Shares,
    AskMasked: Masked,
    AskAgreement: Agreement,
    AskUnmask: Opening,
}


def least_threshold(n_sites: int) -> int:
    """Sites that a sum needs, of `n_sites`: more than two thirds, so that no two sums of one exchange can be opened."""
    return max(ceil((2 * n_sites + 1) / 3), 2)


# --- client steps ---


@dataclass(slots=True, kw_only=True)
class SumClient:
    """One site's side of one sum. A message that comes twice, or out of turn, is refused.

    Parameters
    ----------
    name : str
        Of the site.
    session : bytes
        Names the sum, the same at all sites: run and round. Signatures and keys are good for this one only.
    sites : frozenset of str
        Sites of the federation, as they are registered: no other one can be in the sum, and it needs more than two
        thirds of them.
    sign : function
        Signs with the key of the site that is registered.
    is_signed : function
        Whether a site has signed something, by its registered key.
    """

    name: str
    session: bytes
    sites: frozenset[str]
    sign: Sign
    is_signed: IsSigned
    threshold: int = 0
    _sealing: bytes = field(default_factory=lambda: token_bytes(SECRET_BYTES), repr=False)
    _masking: bytes = field(default_factory=lambda: token_bytes(SECRET_BYTES), repr=False)
    _seed: bytes = field(default_factory=lambda: token_bytes(SECRET_BYTES), repr=False)
    _keys: dict[str, tuple[bytes, bytes]] = field(default_factory=dict, repr=False)
    _received: dict[str, bytes] = field(default_factory=dict, repr=False)
    _shared: dict[str, bytes] = field(default_factory=dict, repr=False)  # with each site, for sealing
    _in_sum: tuple[str, ...] = ()
    _turn: int = 0

    @property
    def has_sent(self) -> bool:
        """Whether its numbers have left it."""
        return self._turn > list(REPLIES).index(AskMasked)

    def answer(self, message: Any, numbers: IntArray | None = None) -> Any:
        """The reply to the next message; `MessageError` if the coordinator does not keep to the protocol.

        `numbers` (n_masked,) are what the site adds, when it is asked for them.
        """
        steps: tuple[Callable[[Any], Any], ...] = (
            self._send_keys,
            self._send_shares,
            self._send_masked,
            self._send_agreement,
            self._send_opening,
        )
        turn, self._turn = self._turn, len(steps)  # what is refused ends the sum for this site
        if turn >= len(steps) or type(message) is not tuple(REPLIES)[turn]:
            raise MessageError(f"site {self.name!r} was sent {type(message).__name__} out of turn in a secure sum.")
        reply = self._send_masked(message, numbers) if isinstance(message, AskMasked) else steps[turn](message)
        self._turn = turn + 1
        return reply

    def _send_keys(self, down: AskKeys) -> Keys:
        least = least_threshold(len(self.sites))
        if not least <= down.threshold <= len(self.sites):
            self._refuse(f"a sum of {down.threshold} sites; it takes part in sums of {least} or more")
        self.threshold = down.threshold
        sealing, masking = public_of(self._sealing), public_of(self._masking)
        signature = self.sign(keys_text(self.session, self.name, self.threshold, sealing, masking))
        return Keys(sealing=words(sealing), masking=words(masking), signature=signature_words(signature))

    def _send_shares(self, down: AskShares) -> Shares:
        self._check_sites(down.sites, self.sites)
        for name, *rows in zip(down.sites, down.sealing, down.masking, down.signatures, strict=True):
            sealing, masking = bytes_of(rows[0]), bytes_of(rows[1])
            text = keys_text(self.session, name, self.threshold, sealing, masking)
            if not self.is_signed(name, text, signature_in(rows[2])):
                self._refuse(f"keys of {name!r} that {name!r} has not signed")
            self._keys[name] = (sealing, masking)
        own = (public_of(self._sealing), public_of(self._masking))
        if self._keys[self.name] != own or len({key for keys in self._keys.values() for key in keys}) != 2 * len(
            self._keys
        ):
            self._refuse("keys that are not its own, or one key twice")
        n = len(down.sites)
        of_key, of_seed = (shares_of(secret, n, self.threshold) for secret in (self._masking, self._seed))
        texts = [
            sealed(self._seal_key(self.name, name), of_key[at] + of_seed[at]) for at, name in enumerate(down.sites)
        ]
        return Shares(sealed=np.array([words(text) for text in texts]))

    def _send_masked(self, down: AskMasked, numbers: IntArray | None = None) -> Masked:
        if numbers is None or len(numbers) != down.n_masked:
            self._refuse(f"{down.n_masked} numbers; it has {0 if numbers is None else len(numbers)}")
        assert numbers is not None
        self._check_sites(down.sites, self._keys)
        self._received = {
            name: opened(self._seal_key(name, self.name), bytes_of(text))
            for name, text in zip(down.sites, down.sealed, strict=True)
        }
        n = len(numbers)
        masked = np.ascontiguousarray(numbers).view(np.uint64) + stream(self._seed, n)
        for name in down.sites:
            if name != self.name:
                mask = pair_mask(self._masking, self._keys[name][1], self.session, n)
                masked = masked + mask if self.name < name else masked - mask
        return Masked(numbers=masked.view(np.int64))

    def _send_agreement(self, down: AskAgreement) -> Agreement:
        self._check_sites(down.sites, self._received)
        self._in_sum = down.sites
        return Agreement(signature=signature_words(self.sign(sum_text(self.session, down.sites))))

    def _send_opening(self, down: AskUnmask) -> Opening:
        self._check_sites(down.sites, self._in_sum)
        text = sum_text(self.session, self._in_sum)
        for name, signature in zip(down.sites, down.signatures, strict=True):
            if not self.is_signed(name, text, signature_in(signature)):
                self._refuse(f"a list of sites in the sum that {name!r} has not signed")
        halves = [
            share[SHARE_BYTES:] if name in self._in_sum else share[:SHARE_BYTES]
            for name, share in self._received.items()
        ]
        return Opening(shares=np.array([words(half) for half in halves]))

    def _seal_key(self, sender: str, receiver: str) -> bytes:
        other = receiver if sender == self.name else sender
        purpose = b"\0".join([b"koncord seal", self.session, sender.encode(), receiver.encode()])
        if other not in self._shared:
            self._shared[other] = agreed_secret(self._sealing, self._keys[other][0])
        return key_for(purpose, self._shared[other])

    def _check_sites(self, sites: tuple[str, ...], known: Any) -> None:
        """Sites in order, each once, this one among them, all known from the step before, and enough of them."""
        if list(sites) != sorted(set(sites)) or self.name not in sites or not set(sites) <= set(known):
            self._refuse("a list of sites that cannot be")
        if len(sites) < self.threshold:
            self._refuse(f"a sum of {len(sites)} sites; {self.threshold} were agreed")

    def _refuse(self, what: str) -> None:
        raise MessageError(f"site {self.name!r} was asked in a secure sum for {what}.")

    def kept(self) -> "KeptSum":
        """All it needs to go on in another process; it holds the secrets."""
        names, received = tuple(self._keys), tuple(self._received)
        return KeptSum(
            threshold=self.threshold,
            turn=self._turn,
            secrets=words(self._sealing + self._masking + self._seed),
            names=names,
            keys=stacked_words([self._keys[name][0] + self._keys[name][1] for name in names], 2 * SECRET_BYTES),
            senders=received,
            shares=stacked_words(list(self._received.values()), 2 * SHARE_BYTES),
            in_sum=self._in_sum,
        )

    def restored(self, kept: "KeptSum") -> Self:
        """This client as it was when it was kept."""
        secrets = bytes_of(kept.secrets)
        parts = [secrets[at : at + SECRET_BYTES] for at in range(0, 3 * SECRET_BYTES, SECRET_BYTES)]
        self._sealing, self._masking, self._seed = parts
        self.threshold, self._turn, self._in_sum = kept.threshold, kept.turn, kept.in_sum
        both = [bytes_of(row) for row in kept.keys]
        halves = [(each[:SECRET_BYTES], each[SECRET_BYTES:]) for each in both]
        self._keys = dict(zip(kept.names, halves, strict=True))
        self._received = dict(zip(kept.senders, map(bytes_of, kept.shares), strict=True))
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSum:
    """What a site keeps of a sum that goes on, on its own disk."""

    threshold: int
    turn: int
    secrets: IntArray  # the words of three secrets
    names: tuple[str, ...]  # of the sites whose keys it has
    keys: IntArray  # (n_names, 8)
    senders: tuple[str, ...]  # of the sites whose shares it has
    shares: IntArray  # (n_senders, 10)
    in_sum: tuple[str, ...]

    def as_words(self) -> IntArray:
        return words(pack(self))

    @classmethod
    def from_words(cls, numbers: IntArray) -> "KeptSum":
        found: KeptSum = unpack(bytes_of(numbers), (cls,))[0]
        return found


# --- server steps ---


@dataclass(slots=True, kw_only=True)
class SumServer:
    """The coordinator's side of one sum: what to ask next, and the sum in the end. It holds no secret.

    Parameters
    ----------
    session : bytes
        Names the sum.
    number : int
        Of the sum, in its run.
    sites : tuple of str
        Sites that are asked, in name order.
    threshold : int or None, default None
        Sites that must be there in every step; None is the fewest that the sites allow.
    n_numbers : int, default 0
        Numbers of the sum; known when they are asked for.
    """

    session: bytes
    number: int
    sites: tuple[str, ...]
    threshold: int | None = None
    n_numbers: int = 0
    _keys: dict[str, Keys] = field(default_factory=dict)
    _shares: dict[str, Shares] = field(default_factory=dict)
    _masked: dict[str, Masked] = field(default_factory=dict)
    _step: int = 0

    @property
    def least(self) -> int:
        return least_threshold(len(self.sites)) if self.threshold is None else self.threshold

    @property
    def in_sum(self) -> tuple[str, ...]:
        """The sites whose numbers are in the sum."""
        return tuple(sorted(self._masked))

    def begin(self) -> dict[str, AskKeys]:
        """What every site is asked first."""
        return dict.fromkeys(self.sites, AskKeys(number=self.number, threshold=self.least))

    def next(self, replies: Mapping[str, Any]) -> dict[str, Any]:
        """What the sites that are still there are asked next; `TooFewSites` if they are too few."""
        self._step += 1
        here = tuple(sorted(replies))
        if len(here) < self.least:
            gone = {site: "no answer in a secure sum" for site in self.sites if site not in here}
            raise TooFewSites(self._step, len(here), self.least, gone)
        return (self._ask_shares, self._ask_masked, self._ask_agreement, self._ask_unmask)[self._step - 1](
            here, replies
        )

    def _ask_shares(self, here: tuple[str, ...], replies: Mapping[str, Keys]) -> dict[str, AskShares]:
        self._keys = {site: replies[site] for site in here}
        every = AskShares(
            sites=here,
            sealing=np.array([replies[site].sealing for site in here]),
            masking=np.array([replies[site].masking for site in here]),
            signatures=np.array([replies[site].signature for site in here]),
        )
        return dict.fromkeys(here, every)

    def _ask_masked(self, here: tuple[str, ...], replies: Mapping[str, Shares]) -> dict[str, AskMasked]:
        self._shares = {site: replies[site] for site in here}
        places = {site: at for at, site in enumerate(sorted(self._keys))}
        return {
            site: AskMasked(
                sites=here,
                sealed=np.array([replies[other].sealed[places[site]] for other in here]),
                n_masked=self.n_numbers,
            )
            for site in here
        }

    def _ask_agreement(self, here: tuple[str, ...], replies: Mapping[str, Masked]) -> dict[str, AskAgreement]:
        self._masked = {site: replies[site] for site in here}
        return dict.fromkeys(here, AskAgreement(sites=here))

    def _ask_unmask(self, here: tuple[str, ...], replies: Mapping[str, Agreement]) -> dict[str, AskUnmask]:
        signatures = np.array([replies[site].signature for site in here])
        return dict.fromkeys(here, AskUnmask(sites=here, signatures=signatures, n_shared=len(self._shares)))

    def opened(self, replies: Mapping[str, Opening]) -> IntArray:
        """The sum of the numbers of the sites in it, from shares of the sites that are there in the end."""
        here = tuple(sorted(replies))
        if len(here) < self.least:
            gone = {site: "no answer in a secure sum" for site in self.sites if site not in here}
            raise TooFewSites(len(REPLIES), len(here), self.least, gone)
        places = {site: at for at, site in enumerate(sorted(self._keys))}
        total: Masks = np.zeros(self.n_numbers, dtype=np.uint64)
        for masked in self._masked.values():
            total = total + masked.numbers.view(np.uint64)
        for at, site in enumerate(sorted(self._shares)):
            given = {places[other]: bytes_of(replies[other].shares[at]) for other in here[: self.least]}
            secret = joined(given)
            total = total - (stream(secret, self.n_numbers) if site in self._masked else self._left_by(site, secret))
        return total.view(np.int64)

    def _left_by(self, gone: str, secret: bytes) -> Masks:
        """The masks for a site that dropped out, which do not cancel in the sum of the others."""
        if public_of(secret) != bytes_of(self._keys[gone].masking):
            raise MessageError(f"the shares that sites sent of the key of {gone!r} are not of its key.")
        left: Masks = np.zeros(self.n_numbers, dtype=np.uint64)
        for site in self._masked:
            mask = pair_mask(secret, bytes_of(self._keys[site].masking), self.session, self.n_numbers)
            left = left + mask if site < gone else left - mask
        return left


def pair_mask(secret: bytes, public: bytes, session: bytes, n: int) -> Masks:
    """The mask of two sites; one adds it, the other takes it off."""
    return stream(agreed_key(secret, public, b"koncord mask\0" + session), n)


def keys_text(session: bytes, name: str, threshold: int, sealing: bytes, masking: bytes) -> bytes:
    """What a site signs of its keys."""
    return b"\0".join([b"koncord keys", session, name.encode(), f"{threshold}".encode(), sealing + masking])


def sum_text(session: bytes, sites: tuple[str, ...]) -> bytes:
    """What a site signs of the sites in the sum."""
    return b"\0".join([b"koncord sum", session, *(site.encode() for site in sites)])


def words(data: bytes) -> IntArray:
    """Bytes as the whole numbers that messages hold."""
    return np.frombuffer(data, dtype="<i8").astype(np.int64)


def stacked_words(texts: Sequence[bytes], n_bytes: int) -> IntArray:
    """Texts of so many bytes each, a row for each."""
    return words(b"".join(texts)).reshape(len(texts), n_bytes // WORD)


def bytes_of(numbers: IntArray) -> bytes:
    return np.ascontiguousarray(numbers, dtype="<i8").tobytes()


def signature_words(signature: bytes) -> IntArray:
    """A signature of any length, with its length before it."""
    if len(signature) >= SIGNATURE_BYTES:
        raise ValueError(f"a signature may have {SIGNATURE_BYTES - 1} bytes; got {len(signature)}.")
    return words((len(signature).to_bytes(1) + signature).ljust(SIGNATURE_BYTES, b"\0"))


def signature_in(numbers: IntArray) -> bytes:
    data = bytes_of(numbers)
    return data[1 : 1 + data[0]]
