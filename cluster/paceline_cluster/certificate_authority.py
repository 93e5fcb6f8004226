"""A throwaway authority for a cluster, and the certificates that it signs.

For clusters on one machine, and for a start elsewhere: who has certificates of his own names them
in ``tls.*``. There are two authorities, one for listeners and clients, and one for nodes among each
other, since a certificate of the latter is half of what it takes to be a node (security/DESIGN 3).
Keys are for nobody but their owner (mode 0600); they are on P-256, whose handshakes cost least.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.tls import ClientTls
from paceline_cluster import state
from paceline_cluster.errors import BadSetting

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

FOLDER = "tls"
CLIENT_NAME = "client"
VALID_DAYS = 365
_EARLIER = datetime.timedelta(hours=1)
"""Clocks differ."""


def require_library() -> None:
    """Raise BadSetting where certificates cannot be made."""
    if find_spec("cryptography") is None:
        raise BadSetting(
            "making certificates needs the package cryptography",
            hint="pip install 'paceline[tls]', or in a checkout: ./scripts/setup",
        )


def make(directory: Path, client_name: str = CLIENT_NAME) -> ClientTls:
    """Make the authorities of a cluster in its directory, and a certificate for its clients, who
    are ``client_name`` by it. Returns what clients need. Raises BadSetting."""
    require_library()
    folder = directory / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    _make_authority(folder, "authority", f"Paceline {directory.name}")
    _make_authority(folder, "peers", f"Paceline {directory.name} nodes")
    _Authority(folder, "authority").sign(folder, CLIENT_NAME, common_name=client_name)
    return ClientTls(
        authority=str(folder / "authority.pem"),
        certificate=str(folder / f"{CLIENT_NAME}.pem"),
        key=str(folder / f"{CLIENT_NAME}.key"),
    )


def certify(directory: Path, folder: Path, node_id: int, hosts: Sequence[str]) -> None:
    """Put what node ``node_id`` needs into ``folder``, for listeners reached as ``hosts``. Raises
    BadSetting, also where the cluster has no authority."""
    require_library()
    authorities = directory / FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    servers, peers = _Authority(authorities, "authority"), _Authority(authorities, "peers")
    servers.sign(folder, "server", common_name=hosts[0], names=hosts)
    name = f"node-{node_id}.paceline"
    peers.sign(folder, "peer", common_name=name, names=[name])
    for each in ("authority", "peers"):
        text = (authorities / f"{each}.pem").read_text(encoding="ascii")
        state.write_file(folder / f"{each}.pem", text)


class _Authority:
    """Signs with the key that lies in a file."""

    def __init__(self, folder: Path, name: str) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization

        try:
            self._certificate = x509.load_pem_x509_certificate(
                (folder / f"{name}.pem").read_bytes()
            )
            key = (folder / f"{name}.key").read_bytes()
        except OSError as error:
            raise BadSetting(
                f"{error.filename}: {error.strerror}; the cluster was not made with --tls"
            ) from None
        self._key = serialization.load_pem_private_key(key, None)

    def sign(self, folder: Path, name: str, *, common_name: str, names: Sequence[str] = ()) -> None:
        """Write a new key, and a certificate for it that is good at both ends of a connection."""
        from cryptography import x509
        from cryptography.x509.oid import ExtendedKeyUsageOID

        key = _new_key()
        builder = _builder(common_name, self._certificate.subject, key)
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(both), critical=False)
        builder = builder.add_extension(
            x509.BasicConstraints(ca=False, path_length=None), critical=True
        )
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._certificate.public_key()),  # type: ignore[arg-type]
            critical=False,
        )
        if names:
            alternatives = x509.SubjectAlternativeName([_general_name(each) for each in names])
            builder = builder.add_extension(alternatives, critical=False)
        _write(folder, name, _signed(builder, self._key), key)  # type: ignore[arg-type]


def _make_authority(folder: Path, name: str, common_name: str) -> None:
    from cryptography import x509

    key = _new_key()
    subject = _subject(common_name)
    builder = _builder(common_name, subject, key)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = builder.add_extension(usage, critical=True)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = builder.add_extension(identifier, critical=False)
    _write(folder, name, _signed(builder, key), key)


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _subject(common_name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64])])


def _builder(
    common_name: str, issuer: x509.Name, key: EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_subject(common_name))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
    )


def _general_name(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _signed(builder: x509.CertificateBuilder, key: EllipticCurvePrivateKey) -> x509.Certificate:
    from cryptography.hazmat.primitives import hashes

    return builder.sign(key, hashes.SHA256())


def _write(
    folder: Path, name: str, certificate: x509.Certificate, key: EllipticCurvePrivateKey
) -> None:
    """The key first: who is killed between them leaves a pair that fits no more, and says so."""
    from cryptography.hazmat.primitives import serialization

    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    state.write_file(folder / f"{name}.key", secret.decode("ascii"), mode=0o600)
    text = certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")
    state.write_file(folder / f"{name}.pem", text, mode=0o600)
