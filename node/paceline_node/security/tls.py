"""TLS of client listeners: this node's certificate."""

from __future__ import annotations

import ssl
from collections.abc import Sequence

from paceline.errors import ConfigurationError


def server_context(certificate: str, key: str, protocols: Sequence[str] = ()) -> ssl.SSLContext:
    """What a listener offers with these PEM files: TLS 1.2 or newer, no certificate asked of
    clients. ``protocols`` are those to agree on in the handshake (ALPN), with clients that ask.
    Raises ConfigurationError naming the settings."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if protocols:
        context.set_alpn_protocols(list(protocols))
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"tls.certificate {certificate}, tls.key {key}: {error}; "
            "expected a certificate and its key in PEM form"
        ) from error
    return context
