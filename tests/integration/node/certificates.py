"""A certificate for this machine, and the authority that clients may trust for it."""

from __future__ import annotations

from pathlib import Path

from tests.authority import Authority


class Certificates:
    """``settings`` are a node's; ``authority`` is a file in PEM form."""

    def __init__(self, directory: Path) -> None:
        self.issuer = Authority(directory)
        pair = self.issuer.issue("localhost", "127.0.0.1")
        self.settings = {"tls.certificate": pair.certificate, "tls.key": pair.key}
        self.authority = self.issuer.path
