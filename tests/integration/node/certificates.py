"""A certificate for this machine, and the authority that clients may trust for it."""

from __future__ import annotations

from pathlib import Path

import trustme


class Certificates:
    """``settings`` are a node's; ``authority`` is a file in PEM form."""

    def __init__(self, directory: Path) -> None:
        authority = trustme.CA()
        certificate = authority.issue_cert("localhost", "127.0.0.1")
        chain, key = directory / "chain.pem", directory / "key.pem"
        chain.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
        certificate.private_key_pem.write_to_path(str(key))
        self.settings = {"tls.certificate": str(chain), "tls.key": str(key)}
        self.authority = str(directory / "authority.pem")
        authority.cert_pem.write_to_path(self.authority)
