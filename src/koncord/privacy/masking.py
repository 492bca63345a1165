"""Keys that two sites agree on, streams of masks, sealed words, and secrets in shares.

X25519 (RFC 7748) for agreement, HKDF-SHA256 (RFC 5869) for keys, ChaCha20 (RFC 8439) for streams, ChaCha20-Poly1305 for
what is sealed, all from `cryptography`; and Shamir's shares (1979) of 32 bytes.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from secrets import randbelow

import numpy as np
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from koncord.errors import MessageError

# The smallest prime above 2**256: a secret of 32 bytes is a number below it.
PRIME = 2**256 + 297
SECRET_BYTES, SHARE_BYTES = 32, 40
# Steps of a polynomial's value between two divisions by the prime.
HORNER_STEPS = 16
# Every key is used for one stream or one sealed text only, so no nonce has to differ.
STREAM_NONCE, SEAL_NONCE = bytes(16), bytes(12)

Masks = NDArray[np.uint64]


def public_of(secret: bytes) -> bytes:
    """The public half of an X25519 key."""
    return private_key(secret).public_key().public_bytes_raw()


@lru_cache(maxsize=2)  # a site agrees with all others by the same key, one after the other
def private_key(secret: bytes) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(secret)


def agreed_secret(secret: bytes, public: bytes) -> bytes:
    """What the owners of two X25519 keys share; `MessageError` for what is no public key."""
    try:
        return private_key(secret).exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as error:  # a point of small order gives everybody the same key
        raise MessageError("a public key of a site is none.") from error


def key_for(purpose: bytes, shared: bytes) -> bytes:
    """A key for one purpose from what two sites share."""
    return HKDF(algorithm=SHA256(), length=SECRET_BYTES, salt=None, info=purpose).derive(shared)


def agreed_key(secret: bytes, public: bytes, purpose: bytes) -> bytes:
    """The key that the owners of two X25519 keys share, for one purpose."""
    return key_for(purpose, agreed_secret(secret, public))


def stream(seed: bytes, n: int) -> Masks:
    """`n` numbers modulo 2**64 that only the owners of the seed can tell from chance."""
    keystream = Cipher(ChaCha20(seed, STREAM_NONCE), mode=None).encryptor().update(bytes(8 * n))
    return np.frombuffer(keystream, dtype="<u8").astype(np.uint64)


def sealed(key: bytes, text: bytes) -> bytes:
    """The text, readable and changeable with the key only; a key seals one text."""
    return ChaCha20Poly1305(key).encrypt(SEAL_NONCE, text, None)


def opened(key: bytes, text: bytes) -> bytes:
    try:
        return ChaCha20Poly1305(key).decrypt(SEAL_NONCE, text, None)
    except InvalidTag as error:
        raise MessageError("what another site sealed was changed on the way.") from error


def shares_of(secret: bytes, n: int, threshold: int) -> list[bytes]:
    """`n` shares of a secret of 32 bytes, any `threshold` of which make it up; fewer tell nothing."""
    coefficients = [int.from_bytes(secret), *(randbelow(PRIME) for _ in range(threshold - 1))]
    found = []
    coefficients.reverse()
    for at in range(1, n + 1):
        value = 0
        for start in range(0, threshold, HORNER_STEPS):
            for coefficient in coefficients[start : start + HORNER_STEPS]:
                value = value * at + coefficient
            value %= PRIME
        found.append(value.to_bytes(SHARE_BYTES))
    return found


def joined(shares: Mapping[int, bytes]) -> bytes:
    """The secret that shares make up, by their places from 0; `MessageError` if they are no shares of one."""
    weights = weights_at_zero(tuple(sorted(shares)))
    parts = (weight * int.from_bytes(shares[place]) for place, weight in zip(sorted(shares), weights, strict=True))
    value = sum(parts) % PRIME
    if value >= 2**256:
        raise MessageError("the shares that sites sent of a secret do not make up one.")
    return value.to_bytes(SECRET_BYTES)


@lru_cache(maxsize=64)
def weights_at_zero(places: Sequence[int]) -> list[int]:
    """Lagrange's weights of the values at `places` + 1 for the value at 0."""
    at = [place + 1 for place in places]
    weights = []
    for one in at:
        above, below = 1, 1
        for other in at:
            if other != one:
                above, below = above * other % PRIME, below * (other - one) % PRIME
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return weights


def signing_keys(secret: bytes) -> tuple[Ed25519PrivateKey, Ed25519PublicKey]:
    """A key that signs, and one that verifies, for sites of one process, which have no registered keys."""
    key = Ed25519PrivateKey.from_private_bytes(secret)
    return key, key.public_key()


def has_signed(key: Ed25519PublicKey, data: bytes, signature: bytes) -> bool:
    try:
        key.verify(signature, data)
    except InvalidSignature:
        return False
    return True
