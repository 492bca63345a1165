"""A private certificate authority, the server's certificate, and the keys of sites: what they sign, and who signed.

Private keys are in files that only their owner can read.
"""

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from secrets import token_hex

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_ssh_private_key,
    load_ssh_public_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from koncord._files import write_atomic
from koncord.errors import KoncordError

VALID_FOR = timedelta(days=3650)
CLOCKS_DIFFER = timedelta(days=1)  # a site whose clock is behind accepts a certificate of today
NEXT_KEY, ANNOUNCEMENT = "next-ca.key", "authority.json"
OTHER_KIND = "a key of another kind than sites have (ECDSA, P-384)."
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def write_authority(folder: Path, hosts: Sequence[str]) -> None:
    """Write ca.key, ca.crt, server.key and server.crt; the server's is valid for `hosts` and this machine itself."""
    key, authority = new_authority()
    write_atomic(folder / "ca.key", private_pem(key), private=True)
    write_atomic(folder / "ca.crt", authority)
    write_server(folder, hosts)


def new_authority() -> tuple[ec.EllipticCurvePrivateKey, bytes]:
    """The key of a new authority, and its certificate."""
    key = ec.generate_private_key(ec.SECP384R1())
    # Two authorities of one coordinator, in the time when sites trust both, have different names.
    name = named(f"koncord federation {token_hex(4)}")
    made = (
        certificate(name, name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA384())
    )
    return key, made.public_bytes(Encoding.PEM)


def write_server(folder: Path, hosts: Sequence[str]) -> None:
    """Write a new server.key and a server.crt that the authority of ca.key signs."""
    authority_key = authority_key_in(folder / "ca.key")
    authority = next(
        each for each in certificates_in(folder / "ca.crt") if each.public_key() == authority_key.public_key()
    )
    server_key = ec.generate_private_key(ec.SECP384R1())
    server = (
        certificate(named("koncord server"), authority.subject, server_key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternative_names([*hosts, *LOOPBACK])), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA384())
    )
    # One after the other: nginx reads both only when it reloads.
    write_atomic(folder / "server.key", private_pem(server_key), private=True)
    write_atomic(folder / "server.crt", server.public_bytes(Encoding.PEM))


def authority_key_in(path: Path) -> ec.EllipticCurvePrivateKey:
    key = load_pem_private_key(path.read_bytes(), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def certificates_in(path: Path) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(path.read_bytes())


# --- a new authority, while sites still trust the old one ---


def announce_authority(folder: Path) -> None:
    """Make the next authority (next-ca.key) beside the one in use, and the announcement by which sites learn it.

    The announcement is signed with the key of the authority in use: one who has the server's key alone cannot make one.
    """
    key, made = new_authority()
    trusted = (folder / "ca.crt").read_bytes() + made
    write_atomic(folder / NEXT_KEY, private_pem(key), private=True)
    signature = authority_key_in(folder / "ca.key").sign(made, ec.ECDSA(hashes.SHA384()))
    announcement = {"certificate": made.decode(), "signature": b64encode(signature).decode()}
    write_atomic(folder / ANNOUNCEMENT, json.dumps(announcement).encode())
    write_atomic(folder / "ca.crt", trusted)


def switch_authority(folder: Path, hosts: Sequence[str]) -> None:
    """From now on the authority that was announced signs; the one of before is no longer in new invitations."""
    key = authority_key_in(folder / NEXT_KEY)
    write_atomic(folder / "ca.key", private_pem(key), private=True)
    write_server(folder, hosts)
    kept = [each for each in certificates_in(folder / "ca.crt") if each.public_key() == key.public_key()]
    write_atomic(folder / "ca.crt", b"".join(each.public_bytes(Encoding.PEM) for each in kept))
    (folder / NEXT_KEY).unlink()


def announced(content: bytes, trusted: Path) -> bytes | None:
    """The certificate of an announced authority, if one that is trusted announced it and it is not trusted yet."""
    try:
        announcement = json.loads(content)
        made = announcement["certificate"].encode()
        signature = b64decode(announcement["signature"], validate=True)
        new = x509.load_pem_x509_certificate(made)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    known = certificates_in(trusted)
    if any(each.public_key() == new.public_key() for each in known):
        return None
    for each in known:
        key = each.public_key()
        if isinstance(key, ec.EllipticCurvePublicKey):
            try:
                key.verify(signature, made, ec.ECDSA(hashes.SHA384()))
            except InvalidSignature:
                continue
            return new.public_bytes(Encoding.PEM)
    return None


def valid_until(path: Path) -> datetime:
    """The end of the first certificate in a file."""
    return certificates_in(path)[0].not_valid_after_utc


def named(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def check_not_expired(pem: bytes, what: str, way_out: str) -> None:
    """KoncordError if the certificate has expired; whether it is one at all is for TLS to say."""
    try:
        end = x509.load_pem_x509_certificate(pem).not_valid_after_utc
    except ValueError:
        return
    if end < datetime.now(UTC):
        raise KoncordError(f"{what} expired on {end:%Y-%m-%d}: {way_out}. Or is the clock of this machine wrong?")


def certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCKS_DIFFER)
        .not_valid_after(now + VALID_FOR)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def alternative_names(hosts: Sequence[str]) -> list[x509.GeneralName]:
    """Host names and addresses, each once."""
    names: list[x509.GeneralName] = []
    for host in dict.fromkeys(hosts):
        try:
            names.append(x509.IPAddress(ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return names


def site_key() -> tuple[bytes, bytes]:
    """A new private key for a site and its public half, as Flower reads them."""
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    return private, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)


def public_half(private: bytes) -> bytes:
    """The public half of a site's private key; `ValueError` if it is none."""
    return private_key(private).public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)


def fingerprint(public: bytes) -> str:
    """What two people compare instead of a key: the same as ``ssh-keygen -l`` prints."""
    public_key(public)
    digest = hashlib.sha256(b64decode(public.split()[1])).digest()
    return f"SHA256:{b64encode(digest).decode().rstrip('=')}"


def signed(private: bytes, data: bytes) -> bytes:
    """The signature of a site's key under some bytes."""
    return private_key(private).sign(data, ec.ECDSA(hashes.SHA384()))


def is_signed(public: bytes, data: bytes, signature: bytes) -> bool:
    """Whether the holder of the private half of `public` signed these bytes."""
    try:
        public_key(public).verify(signature, data, ec.ECDSA(hashes.SHA384()))
    except InvalidSignature:
        return False
    return True


def signing_calls(private: bytes) -> Callable[[bytes], bytes]:
    """Makes the signatures of a site's key as Flower checks them, with another digest than `signed`."""
    key = private_key(private)
    return lambda data: key.sign(data, ec.ECDSA(hashes.SHA256()))


def public_pem(public: bytes) -> bytes:
    """A site's public key in the form in which Flower keeps it."""
    return public_key(public).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def private_key(private: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_ssh_private_key(private, password=None)
    except Exception as error:  # cryptography has several for bytes that are no key
        raise ValueError(f"not a private key in OpenSSH's form without a password ({error}).") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP384R1):
        raise ValueError(OTHER_KIND)
    return key


def public_key(public: bytes) -> ec.EllipticCurvePublicKey:
    try:
        key = load_ssh_public_key(public)
    except Exception as error:
        raise ValueError(f"not a public key in OpenSSH's form ({error}).") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP384R1):
        raise ValueError(OTHER_KIND)
    return key


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
