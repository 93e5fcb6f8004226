"""TLS contexts from files in PEM form (DESIGN 1, 2)."""

from __future__ import annotations

import ssl
from collections.abc import Sequence

from paceline.errors import ConfigurationError
from paceline.values import dataclass
from paceline_node.security.der import not_after


@dataclass(frozen=True, slots=True)
class KeyFiles:
    """A certificate and its key, and the settings that named them, for errors."""

    certificate: str
    key: str
    prefix: str = ""

    @property
    def named(self) -> str:
        """Both, as an operator knows them."""
        return f"tls.{self.prefix}certificate {self.certificate}, tls.{self.prefix}key {self.key}"


def server_context(files: KeyFiles, protocols: Sequence[str] = ()) -> ssl.SSLContext:
    """What a listener offers: TLS 1.2 or newer, no certificate asked of clients. ``protocols`` are
    those to agree on in the handshake (ALPN), with clients that ask. Raises ConfigurationError
    naming the settings."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    if protocols:
        context.set_alpn_protocols(list(protocols))
    _load(context, files)
    return context


def ask_for_certificates(
    context: ssl.SSLContext, authorities: str, setting: str, *, required: bool
) -> None:
    """Have a context ask its clients for certificates that one of ``authorities`` signed. Raises
    ConfigurationError."""
    _trust(context, authorities, setting)
    context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    # A session resumed later would bring a certificate that has expired since, or whose authority
    # is trusted no more.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET


@dataclass(frozen=True, slots=True)
class PeerContexts:
    """For connections to nodes, and from nodes; ``certificate`` is what both show, in DER."""

    dialing: ssl.SSLContext
    accepting: ssl.SSLContext
    certificate: bytes


def peer_contexts(files: KeyFiles, authority: str) -> PeerContexts:
    """Of TLS 1.3; each side shows a certificate that the cluster's authority signed. Raises
    ConfigurationError."""
    accepting = server_context(files)
    ask_for_certificates(accepting, authority, "tls.peer_authority", required=True)
    dialing = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    dialing.check_hostname = False  # the certificate names a node, wherever it is (DESIGN 3)
    _load(dialing, files)
    _trust(dialing, authority, "tls.peer_authority")
    for context in (accepting, dialing):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    return PeerContexts(dialing, accepting, certificates(files.certificate)[0])


def _load(context: ssl.SSLContext, files: KeyFiles) -> None:
    try:
        context.load_cert_chain(files.certificate, files.key, password=_no_passphrase)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"{files.named}: {error}; expected a certificate and its key in PEM form"
        ) from error


def _no_passphrase() -> str:
    raise ssl.SSLError("the key has a passphrase")  # OpenSSL would ask for it at the terminal


def _trust(context: ssl.SSLContext, authorities: str, setting: str) -> None:
    try:
        context.load_verify_locations(authorities)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"{setting} {authorities}: {error}; expected certificates of authorities in PEM form"
        ) from error


def certificates(path: str) -> list[bytes]:
    """All certificates of a PEM file, in DER. Raises ConfigurationError."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            text = file.read()
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror or error}") from error
    head, tail = ssl.PEM_HEADER, ssl.PEM_FOOTER
    found = []
    for part in text.split(head)[1:]:
        try:
            found.append(ssl.PEM_cert_to_DER_cert(f"{head}{part.partition(tail)[0]}{tail}\n"))
        except ValueError as error:
            raise ConfigurationError(f"{path}: {error}") from error
    if not found:
        raise ConfigurationError(f"{path}: no certificate in it")
    return found


def expiry(path: str) -> int:
    """When the first certificate of a PEM file to expire does, in seconds since 1970. Raises
    ConfigurationError."""
    return min(not_after(each) for each in certificates(path))
