"""Who comes in by an encrypted port: the handshake, and whom the client's certificate names. And
who takes another one for encrypted."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import trio

from paceline.errors import AuthenticationFailed
from paceline_node.net.connection_limit import address_of
from paceline_node.net.disconnects import plain_of
from paceline_node.net.tls_handshake import HandshakeFailed, Handshakes
from paceline_node.observe.rate_limited_log import RateLimitedLog
from paceline_node.security.principals import ANONYMOUS, Principal

_HANDSHAKE = b"\x16"
"""The first byte of who begins a TLS handshake."""
_RECORD = b"\x16\x03"


class TlsAcceptor:
    """Of one listener. ``context`` gives what is offered to the next connection: a new certificate
    changes it. ``identify`` makes a principal of a client's certificate, and raises
    AuthenticationFailed. With ``plain_too``, one whose first byte begins no handshake is let in as
    it is; that byte may be long in coming."""

    def __init__(
        self,
        protocol: str,
        context: Callable[[], ssl.SSLContext],
        handshakes: Handshakes,
        identify: Callable[[dict[str, Any]], Principal],
        *,
        plain_too: bool = False,
    ) -> None:
        self._protocol = protocol
        self._context = context
        self._handshakes = handshakes
        self._identify = identify
        self._plain_too = plain_too
        self._log = RateLimitedLog(component="tls")

    async def enter(self, stream: trio.abc.Stream) -> tuple[trio.abc.Stream, Principal] | None:
        """The connection as its protocol is to see it, and who it is; None for one that is refused,
        and closed."""
        if self._plain_too and not await _begins_tls(stream):
            return stream, ANONYMOUS
        client = address_of(stream)
        try:
            encrypted = await self._handshakes.accept(stream, self._context())
        except HandshakeFailed as error:
            self._refuse(client, error.cause, error)
            return None
        certificate = encrypted.getpeercert()
        try:
            return encrypted, self._identify(certificate) if certificate else ANONYMOUS
        except AuthenticationFailed as error:
            self._refuse(client, "name", error)
        await trio.aclose_forcefully(stream)
        return None

    def _refuse(self, client: str, cause: str, error: Exception) -> None:
        self._log.warning(
            "client refused", cause=cause, protocol=self._protocol, client=client, reason=str(error)
        )


class ClearText:
    """A port that is not encrypted: says which clients believe it is. The protocol refuses them as
    it does all nonsense."""

    def __init__(self, protocol: str) -> None:
        self._protocol = protocol
        self._log = RateLimitedLog(component="tls")

    def look(self, stream: trio.SocketStream, data: bytes | bytearray) -> None:
        """At what a client says first."""
        if data.startswith(_RECORD):
            self._log.warning(
                "client refused",
                cause=self._protocol,
                protocol=self._protocol,
                client=address_of(stream),
                reason="the client speaks TLS, and this port does not",
            )


async def _begins_tls(stream: trio.abc.Stream) -> bool:
    """Whether a client's first byte is a TLS record's. Streams that cannot be looked into are not
    of the network, and not encrypted."""
    plain = plain_of(stream)
    if plain is None:
        return False
    with suppress(OSError):
        return await plain.socket.recv(1, socket.MSG_PEEK) == _HANDSHAKE
    return False
