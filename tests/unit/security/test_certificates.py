"""Certificates in files: until when they are good, and what is wrong with them."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from paceline.errors import ConfigurationError
from paceline_node.security.der import not_after
from paceline_node.security.tls import KeyFiles, certificates, expiry, peer_contexts, server_context
from tests.authority import Authority

KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(ends: datetime.datetime, name: str = "x") -> bytes:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(KEY.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.datetime(1960, 1, 1))
        .not_valid_after(ends)
        .sign(KEY, hashes.SHA256())
        .public_bytes(serialization.Encoding.DER)
    )


@pytest.mark.parametrize("year", [1969, 1999, 2026, 2049, 2050, 9999])  # two digits until 2049
@pytest.mark.parametrize("name", ["x", "y" * 64])
def test_the_end_of_a_certificate(year: int, name: str) -> None:
    ends = datetime.datetime(year, 12, 31, 23, 59, 58, tzinfo=datetime.UTC)
    assert not_after(certificate(ends, name)) == ends.timestamp()


def test_no_certificate_at_all() -> None:
    whole = certificate(datetime.datetime(2040, 1, 1))
    for bad in (b"", b"\x30", b"\x30\x03abc", whole[:100], b"\x31" + whole[1:]):
        with pytest.raises(ConfigurationError, match="cannot be read"):
            not_after(bad)


def test_the_first_of_a_file_to_expire_counts(tmp_path: Path) -> None:
    path = tmp_path / "all.pem"
    ends = [datetime.datetime(year, 1, 1, tzinfo=datetime.UTC) for year in (2040, 2031, 2050)]
    path.write_text("".join(ssl.DER_cert_to_PEM_cert(certificate(each)) for each in ends))
    assert expiry(str(path)) == ends[1].timestamp()
    assert len(certificates(str(path))) == 3


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair, other = authority.issue("localhost"), authority.issue("localhost")
    nothing, locked = tmp_path / "nothing.pem", tmp_path / "locked.pem"
    nothing.write_text("hello")
    locked.write_bytes(
        KEY.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    for files, said in (
        (KeyFiles("/nowhere", pair.key), r"tls\.certificate /nowhere.*No such file"),
        (KeyFiles(str(nothing), pair.key), r"nothing\.pem"),
        (KeyFiles(pair.certificate, other.key), "(?i)mismatch"),
        (KeyFiles(pair.certificate, str(locked)), "passphrase"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            server_context(files)
    good = KeyFiles(pair.certificate, pair.key)
    for path, said in (("/nowhere", "No such file"), (str(nothing), "nothing.pem")):
        with pytest.raises(ConfigurationError, match=rf"tls\.peer_authority.*{said}"):
            peer_contexts(good, path)
    for path in ("/nowhere", str(nothing)):
        with pytest.raises(ConfigurationError, match=path):
            expiry(path)
