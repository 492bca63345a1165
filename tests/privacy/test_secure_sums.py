"""Sums under masks: exact, blind for the coordinator, and refused where it does not keep to the protocol."""

from dataclasses import replace
from functools import cache, lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare, kstest

from koncord.errors import MessageError, TooFewSites
from koncord.network.certificates import is_signed, signed, site_key
from koncord.privacy.masking import agreed_key, joined, opened, public_of, sealed, shares_of, stream
from koncord.privacy.securesums import (
    REPLIES,
    AskAgreement,
    AskKeys,
    AskMasked,
    AskUnmask,
    KeptSum,
    SumClient,
    SumServer,
    bytes_of,
    least_threshold,
    words,
)
from koncord.protocol.wire import pack, unpack

SESSION = b"run 7, round 1"
SECRETS = ("_sealing", "_masking", "_seed")
NAMES = ("a", "b", "c", "d", "e")


@cache
def registered(name):
    return site_key()


@lru_cache(maxsize=100_000)
def has_signed(name, data, signature):
    return is_signed(registered(name)[1], data, signature)


def clients_of(numbers, session=SESSION, keeps=True):
    return {
        name: Adding(
            SumClient(
                name=name,
                session=session,
                sites=frozenset(numbers),
                sign=lambda data, name=name: signed(registered(name)[0], data),
                is_signed=has_signed,
            ),
            own,
            keeps,
        )
        for name, own in numbers.items()
    }


class Adding:
    """A client with the numbers it adds; it `keeps` its state between messages, as one whose process ends each time."""

    def __init__(self, client, numbers, keeps):
        self.client, self.numbers, self.keeps = client, numbers, keeps

    def answer(self, message):
        if self.keeps:
            kept = KeptSum.from_words(self.client.kept().as_words())
            forgotten = {**dict.fromkeys(SECRETS, bytes(32)), "_keys": {}, "_received": {}, "_shared": {}}
            self.client = replace(self.client, **forgotten).restored(kept)
        return self.client.answer(message, self.numbers if isinstance(message, AskMasked) else None)


def tables(n=7, names=NAMES, seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.integers(-(2**62), 2**62, n) for name in names}


def add_up(numbers, *, gone=(), watch=None, keeps=True):
    """The sum over sites; `gone[step]` are those that do not answer from that step on. Every message travels."""
    clients = clients_of(numbers, keeps=keeps)
    n = len(next(iter(numbers.values())))
    server = SumServer(session=SESSION, number=1, sites=tuple(sorted(numbers)), n_numbers=n)
    gone = dict(gone)
    left: set[str] = set()
    down = server.begin()
    for step in range(len(REPLIES)):
        left |= set(gone.get(step, ()))
        replies = {}
        for name, message in down.items():
            if name not in left:
                asked, _ = unpack(pack(message), tuple(REPLIES))
                replies[name], _ = unpack(pack(clients[name].answer(asked)), tuple(REPLIES.values()))
        if watch is not None:
            watch(step, down, replies)
        if step == len(REPLIES) - 1:
            return server.opened(replies), server.in_sum
        down = server.next(replies)
    raise AssertionError


def plain(numbers, names):
    return np.sum([numbers[name] for name in names], axis=0)  # int64 wraps as the masks do


# --- the sum ---


@pytest.mark.parametrize("names", [("a", "b"), ("a", "b", "c"), NAMES])
def test_the_sum_is_the_plain_sum_to_the_bit(names):
    numbers = tables(names=names)
    found, in_sum = add_up(numbers)
    assert in_sum == names
    assert found.dtype == np.int64
    assert np.array_equal(found, plain(numbers, names))


@pytest.mark.parametrize("step", range(5))
def test_a_site_that_drops_out_in_any_step_does_not_spoil_the_sum(step):
    """Until its numbers came it is left out of the sum; after that it is in it."""
    numbers = tables(seed=step)
    found, in_sum = add_up(numbers, gone={step: ("c",)})
    assert in_sum == (NAMES if step > 2 else ("a", "b", "d", "e"))
    assert np.array_equal(found, plain(numbers, in_sum))


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=9, max_size=9), st.integers(0, 2**32))
def test_whoever_drops_out_when_the_sum_is_right_or_there_is_none(leaves, seed):
    """Each of nine sites leaves in a step of its own, 5 being never."""
    names = tuple("abcdefghi")
    numbers = tables(3, names, seed)
    gone = {step: tuple(name for name, at in zip(names, leaves, strict=True) if at == step) for step in range(5)}
    try:
        found, in_sum = add_up(numbers, gone=gone)
    except TooFewSites:
        assert sum(at >= 5 for at in leaves) < least_threshold(9)
        return
    assert sum(at >= 5 for at in leaves) >= least_threshold(9)
    assert in_sum == tuple(name for name, at in zip(names, leaves, strict=True) if at > 2)
    assert np.array_equal(found, plain(numbers, in_sum))


@pytest.mark.parametrize("step", range(5))
def test_below_the_threshold_there_is_no_sum(step):
    with pytest.raises(TooFewSites, match="at least 4"):
        add_up(tables(), gone={step: ("a", "e")})


def test_two_hundred_sites_in_one_process_ten_of_which_drop_out():
    names = tuple(f"s{at:03}" for at in range(200))
    numbers = tables(20, names)
    found, in_sum = add_up(numbers, gone={2: names[:5], 4: names[5:10]}, keeps=False)
    assert in_sum == names[5:]
    assert np.array_equal(found, plain(numbers, in_sum))


# --- what the coordinator sees ---


def test_what_one_site_sends_is_uniform_whatever_its_numbers_are():
    """The same zeros in every sum: the masked words have the distribution of chance, bit by bit and as a whole."""
    n, seen = 2000, []
    for _ in range(3):
        add_up(
            dict.fromkeys(("a", "b", "c"), np.zeros(n, dtype=np.int64)),
            watch=lambda step, down, replies: seen.extend(up.numbers for up in replies.values()) if step == 2 else None,
        )
    assert len(seen) == 9
    for numbers in seen:
        as_bytes = np.frombuffer(numbers.tobytes(), dtype=np.uint8)
        assert chisquare(np.bincount(as_bytes, minlength=256)).pvalue > 1e-5
        assert kstest(numbers.view(np.uint64) / 2.0**64, "uniform").pvalue > 1e-5
    for one in range(9):
        for other in range(one):
            assert (seen[one] != seen[other]).all()
            if one // 3 == other // 3:  # two sites of one sum: their difference is as uniform
                gap = seen[one].view(np.uint64) - seen[other].view(np.uint64)
                assert kstest(gap / 2.0**64, "uniform").pvalue > 1e-5


def test_no_message_but_the_masked_numbers_depends_on_them():
    """All other messages are of keys, shares and signatures: a site with other numbers could have sent them."""
    clients = clients_of(tables())
    for name, client in clients.items():
        reply = client.answer(AskKeys(number=1, threshold=4))
        sealing, masking = bytes_of(reply.sealing), bytes_of(reply.masking)
        assert client.numbers.tobytes() not in sealing + masking
        assert has_signed(name, *_signed_text(client.client, sealing, masking, reply))


def _signed_text(client, sealing, masking, reply):
    from koncord.privacy.securesums import keys_text, signature_in

    return keys_text(client.session, client.name, 4, sealing, masking), signature_in(reply.signature)


# --- a coordinator that does not keep to the protocol ---


def until(step, numbers=None):
    """Clients, server and the messages of a step, all before it answered."""
    numbers = numbers or tables()
    clients = clients_of(numbers)
    server = SumServer(session=SESSION, number=1, sites=tuple(sorted(numbers)), n_numbers=7)
    down = server.begin()
    for _ in range(step):
        down = server.next({name: clients[name].answer(message) for name, message in down.items()})
    return clients, server, down


def test_keys_that_the_coordinator_puts_in_are_found_by_the_signature():
    """The coordinator in the middle: it gives `a` keys of its own in the name of `b`."""
    clients, _, down = until(1)
    mine = bytes(range(32))
    for part in ("sealing", "masking"):
        keys = getattr(down["a"], part).copy()
        keys[1] = words(public_of(mine))
        with pytest.raises(MessageError, match="keys of 'b' that 'b' has not signed"):
            replace(clients["a"].client).answer(replace(down["a"], **{part: keys}))


def test_keys_of_another_sum_are_found_by_the_signature():
    clients, _, down = until(1)
    other = clients_of(tables(), session=b"run 6, round 1")["b"].answer(AskKeys(number=1, threshold=4))
    old = {part: getattr(down["a"], part).copy() for part in ("sealing", "masking", "signatures")}
    for part, theirs in (("sealing", other.sealing), ("masking", other.masking), ("signatures", other.signature)):
        old[part][1] = theirs
    with pytest.raises(MessageError, match="keys of 'b' that 'b' has not signed"):
        clients["a"].answer(replace(down["a"], **old))


def test_invented_sites_do_not_count():
    clients, _, down = until(1)
    with pytest.raises(MessageError, match="a list of sites that cannot be"):
        clients["a"].answer(replace(down["a"], sites=("a", "b", "c", "d", "x")))


@pytest.mark.parametrize("threshold", [1, 2, 3, 6])
def test_a_site_takes_part_in_no_sum_of_too_few(threshold):
    with pytest.raises((MessageError, ValueError), match=r"sums of 4 or more|threshold"):
        clients_of(tables())["a"].answer(AskKeys(number=1, threshold=threshold))


def test_a_share_that_was_changed_on_the_way_is_found():
    clients, _, down = until(2)
    changed = down["a"].sealed.copy()
    changed[1, 0] ^= 1
    with pytest.raises(MessageError, match="changed on the way"):
        clients["a"].answer(replace(down["a"], sealed=changed))


@pytest.mark.parametrize("n", [6, 8])
def test_as_many_numbers_leave_as_a_site_has(n):
    clients, _, down = until(2)
    with pytest.raises(MessageError, match=f"{n} numbers; it has 7"):
        clients["a"].answer(replace(down["a"], n_masked=n))


def test_two_lists_of_who_is_in_the_sum_open_nothing():
    """To learn what `e` sent, the coordinator tells half of the sites that `e` dropped out: they do not open."""
    clients, _, _ = until(3)
    lists = {name: NAMES if name in "ab" else NAMES[:4] for name in "abcd"}
    replies = {name: clients[name].answer(AskAgreement(sites=lists[name])) for name in "abcd"}
    assert least_threshold(5) == 4
    for name in "abcd":
        every = AskUnmask(
            sites=tuple("abcd"), signatures=np.array([replies[each].signature for each in "abcd"]), n_shared=5
        )
        with pytest.raises(MessageError, match="has not signed"):
            clients[name].answer(every)
    few, _, _ = until(3)
    answers = {name: few[name].answer(AskAgreement(sites=NAMES)) for name in NAMES}
    signatures = np.array([answers[name].signature for name in "ab"])
    with pytest.raises(MessageError, match="a sum of 2 sites; 4 were agreed"):
        few["a"].answer(AskUnmask(sites=("a", "b"), signatures=signatures, n_shared=5))


@pytest.mark.parametrize("step", range(5))
def test_no_step_is_answered_twice_and_none_out_of_turn(step):
    clients, _, down = until(step)
    clients["a"].answer(down["a"])
    with pytest.raises(MessageError, match="out of turn"):
        clients["a"].answer(down["a"])
    clients, _, down = until(step)
    unmask = AskUnmask(sites=NAMES, signatures=np.zeros((5, 16), dtype=np.int64), n_shared=5)
    other = unmask if step < 4 else AskKeys(number=1, threshold=4)
    with pytest.raises(MessageError, match="out of turn"):
        clients["a"].answer(other)
    with pytest.raises(MessageError, match="out of turn"):  # what was refused ends the sum
        clients["a"].answer(down["a"])


def test_shares_of_another_key_are_found():
    """A site that drops out leaves masks, which only its own key takes off."""
    clients, server, down = until(2)
    down = server.next({name: clients[name].answer(message) for name, message in down.items() if name != "e"})
    down = server.next({name: clients[name].answer(message) for name, message in down.items()})
    replies = {name: clients[name].answer(message) for name, message in down.items()}
    spoiled = replies["a"].shares.copy()
    spoiled[4, 0] ^= 1
    with pytest.raises(MessageError, match="shares that sites sent of"):
        server.opened({**replies, "a": replace(replies["a"], shares=spoiled)})


# --- the parts ---


@settings(max_examples=40, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.integers(1, 12), st.data())
def test_any_shares_above_the_threshold_make_up_the_secret(secret, n, data):
    threshold = data.draw(st.integers(1, n))
    shares = shares_of(secret, n, threshold)
    chosen = data.draw(st.permutations(range(n)))[: data.draw(st.integers(threshold, n))]
    assert joined({at: shares[at] for at in chosen}) == secret


def test_fewer_shares_than_the_threshold_tell_nothing():
    """With one share missing every secret is as likely: two secrets give the same distribution of what is there."""
    lowest = {secret: [shares_of(secret, 3, 3)[0][-1] for _ in range(3000)] for secret in (bytes(32), b"\xff" * 32)}
    for values in lowest.values():
        assert chisquare(np.bincount(values, minlength=256)).pvalue > 1e-5


def test_streams_and_seals_are_those_of_the_standard():
    """ChaCha20 of RFC 8439, A.1, first vector: key and nonce are zero."""
    assert stream(bytes(32), 2).tobytes().hex() == "76b8e0ada0f13d90405d6ae55386bd28"
    one, other = bytes(range(32)), bytes(range(1, 33))
    assert agreed_key(one, public_of(other), b"x") == agreed_key(other, public_of(one), b"x")
    assert agreed_key(one, public_of(other), b"x") != agreed_key(one, public_of(other), b"y")
    with pytest.raises(MessageError, match="is none"):
        agreed_key(one, bytes(32), b"x")
    key = bytes(range(32))
    assert opened(key, sealed(key, b"text")) == b"text"
