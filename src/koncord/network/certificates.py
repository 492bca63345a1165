"""A private certificate authority, the server's certificate, and the keys of sites.

Private keys are in files that only their owner can read.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from koncord._files import write_atomic
from koncord.errors import KoncordError

VALID_FOR = timedelta(days=3650)
CLOCKS_DIFFER = timedelta(days=1)  # a site whose clock is behind accepts a certificate of today
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def write_authority(folder: Path, hosts: Sequence[str]) -> None:
    """Write ca.key, ca.crt, server.key and server.crt; the server's is valid for `hosts` and this machine itself."""
    authority_key, server_key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    authority_name = named("koncord federation")
    authority = (
        certificate(authority_name, authority_name, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(signs_certificates=True), critical=True)
        .sign(authority_key, hashes.SHA384())
    )
    server = (
        certificate(named("koncord server"), authority_name, server_key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternative_names([*hosts, *LOOPBACK])), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA384())
    )
    write_atomic(folder / "ca.key", private_pem(authority_key), private=True)
    write_atomic(folder / "server.key", private_pem(server_key), private=True)
    write_atomic(folder / "ca.crt", authority.public_bytes(Encoding.PEM))
    write_atomic(folder / "server.crt", server.public_bytes(Encoding.PEM))


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


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
