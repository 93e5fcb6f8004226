"""Authorities of tests, and the certificates they sign, as files in PEM form."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme


@dataclass(frozen=True)
class KeyPair:
    """Files: a certificate with what leads to its authority, and its key."""

    certificate: str
    key: str


class Authority:
    """Signs for whoever asks. ``path`` is its own certificate."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._authority = trustme.CA()
        self.path = str(directory / f"{name}.pem")
        self._authority.cert_pem.write_to_path(self.path)

    def issue(
        self,
        *names: str,
        common_name: str | None = None,
        is_expired: bool = False,
        good_days: int = 30,
    ) -> KeyPair:
        """A certificate for host names and addresses; of yesterday if it ``is_expired``."""
        now = datetime.now(UTC)
        ends = now - timedelta(days=1) if is_expired else now + timedelta(days=good_days)
        begins = now - timedelta(days=2)
        made = self._authority.issue_cert(
            *names, common_name=common_name, not_before=begins, not_after=ends
        )
        number = len(list(self._directory.glob("chain-*.pem")))
        chain = self._directory / f"chain-{number}.pem"
        key = self._directory / f"key-{number}.pem"
        chain.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        made.private_key_pem.write_to_path(str(key))
        return KeyPair(str(chain), str(key))

    def client(self, pair: KeyPair | None = None) -> ssl.SSLContext:
        """What a client uses that trusts this authority, and may show a certificate."""
        context = ssl.create_default_context(cafile=self.path)
        if pair is not None:
            context.load_cert_chain(pair.certificate, pair.key)
        return context
