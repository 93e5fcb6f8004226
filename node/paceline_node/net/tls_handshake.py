"""TLS over a connection: the handshake beside the event loop, then trio's stream.

A handshake is arithmetic: 0.2 ms for a key on P-256, 4 ms for RSA of 4096 bits, more on a busy
machine, and who begins one need not be anybody. So each step of it runs in a thread (DESIGN 4);
what it has to say goes through buffers in memory, which trio's stream has anyway.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import cast

import trio

from paceline_node.threads import in_thread

_READ_BYTES = 16 * 1024
_LAST_WORD_S = 1.0
_NO_TLS = frozenset(
    {
        "BAD_PACKET_LENGTH",
        "BAD_RECORD_TYPE",
        "HTTP_REQUEST",
        "HTTPS_PROXY_REQUEST",
        "RECORD_LAYER_FAILURE",
        "UNKNOWN_PROTOCOL",
        "WRONG_VERSION_NUMBER",
    }
)
"""What OpenSSL calls bytes that are none of TLS."""
_NO_TLS_ALERT = b"\x15\x03\x01\x00\x02\x02\x46"
"""A fatal alert, protocol_version: OpenSSL says nothing to such bytes, and whoever sent them may
know an alert when it sees one, and tell its user."""


class HandshakeFailed(Exception):
    """The other side is gone, silent, speaks no TLS, or is not trusted. ``cause`` is one of few
    words; the text says more."""

    def __init__(self, cause: str, text: str) -> None:
        super().__init__(text)
        self.cause = cause


class Handshakes:
    """Performs them, ``at_once`` at a time in threads; those that wait have not begun to cost."""

    def __init__(self, *, timeout_s: float, at_once: int = 2) -> None:
        self._timeout_s = timeout_s
        self._limiter = trio.CapacityLimiter(at_once)

    async def accept(
        self, stream: trio.abc.Stream, context: ssl.SSLContext
    ) -> trio.SSLStream[trio.abc.Stream]:
        """The server's side. Raises HandshakeFailed; the connection is closed then, as it is on
        cancellation."""
        return await self._perform(stream, context, server_side=True)

    async def connect(
        self, stream: trio.abc.Stream, context: ssl.SSLContext
    ) -> trio.SSLStream[trio.abc.Stream]:
        """The client's side, as :meth:`accept`. The server's name is not looked at."""
        return await self._perform(stream, context, server_side=False)

    async def _perform(
        self, stream: trio.abc.Stream, context: ssl.SSLContext, *, server_side: bool
    ) -> trio.SSLStream[trio.abc.Stream]:
        between = _Between(context)
        # Compatible: many close without saying so first.
        encrypted = trio.SSLStream(
            stream,
            cast(ssl.SSLContext, between),
            server_side=server_side,
            https_compatible=True,
        )
        try:
            await self._exchange_in_time(stream, between)
            await encrypted.do_handshake()  # it is done; trio's stream takes note
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        finally:
            # It keeps its own method, for a handshake that is done now, or never: a cycle, with
            # all that OpenSSL has of the connection.
            encrypted._handshook._afn = _no_more
        return encrypted

    async def _exchange_in_time(self, stream: trio.abc.Stream, between: _Between) -> None:
        try:
            with trio.fail_after(self._timeout_s):
                await self._exchange(stream, between)
        except trio.TooSlowError:
            raise HandshakeFailed("slow", f"no TLS handshake in {self._timeout_s:g} s") from None
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            raise _failure(error) from error

    async def _exchange(self, stream: trio.abc.Stream, between: _Between) -> None:
        """To and fro until both sides are content. Raises SSLError, what the stream raises, and
        BrokenResourceError at its end."""
        while True:
            wrong: ssl.SSLError | None = None
            is_done = False
            try:
                is_done = await in_thread(between.step, self._limiter)
            except ssl.SSLError as error:
                wrong = error.with_traceback(None)
            await _send(stream, between)  # an alert that says why, too
            if wrong is not None:
                if wrong.reason in _NO_TLS:
                    await stream.send_all(_NO_TLS_ALERT)
                await _let_read(stream)
                try:
                    raise wrong
                finally:
                    del wrong  # a cycle otherwise (``bare_errors.py``)
            if is_done:
                return
            data = await stream.receive_some(_READ_BYTES)
            if not data:
                raise trio.BrokenResourceError("ended within the TLS handshake")
            between.incoming.write(data)


class _Between:
    """Stands between a context and trio's stream, which asks it for one connection, and keeps the
    buffers of that."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self._do: Callable[[], None] = partial(_never, "no connection was asked for")

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        *,
        server_side: bool,
        server_hostname: str | bytes | None,
    ) -> ssl.SSLObject:
        """What trio's stream calls."""
        self.incoming, self.outgoing = incoming, outgoing
        made = self._context.wrap_bio(
            incoming, outgoing, server_side=server_side, server_hostname=server_hostname
        )
        self._do = made.do_handshake
        return made

    def step(self) -> bool:
        """Go as far as what has arrived allows, in whatever thread; whether that is the end."""
        try:
            self._do()
        except ssl.SSLWantReadError:
            return False
        return True


async def _no_more(*_: object) -> None:
    raise AssertionError("one handshake was performed")


def _never(text: str) -> None:
    raise AssertionError(text)


async def _send(stream: trio.abc.Stream, between: _Between) -> None:
    data = between.outgoing.read()
    if data:
        await stream.send_all(data)


async def _let_read(stream: trio.abc.Stream) -> None:
    """Give the other side time to read why: closing while its bytes are unread would reset the
    connection, and take the alert with it."""
    with trio.move_on_after(_LAST_WORD_S), suppress(trio.BrokenResourceError):
        if isinstance(stream, trio.abc.HalfCloseableStream):
            await stream.send_eof()
        while await stream.receive_some(_READ_BYTES):
            pass


def _failure(error: Exception) -> HandshakeFailed:
    if not isinstance(error, ssl.SSLError):
        return HandshakeFailed("gone", "the other side went away within the TLS handshake")
    if isinstance(error, ssl.SSLCertVerificationError):
        return HandshakeFailed(
            "certificate", f"the other side's certificate is refused: {error.verify_message}"
        )
    reason = error.reason or "unknown"
    if reason in _NO_TLS:
        return HandshakeFailed("no TLS", "the other side does not speak TLS, and here all do")
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return HandshakeFailed("no certificate", "the other side shows no certificate")
    return HandshakeFailed(reason.lower(), f"the TLS handshake failed: {alert_text(reason)}")


def alert_text(reason: str) -> str:
    """OpenSSL's word for what went wrong, for people."""
    text = reason.lower().replace("_", " ")
    for prefix in ("tlsv1 alert ", "tlsv13 alert ", "sslv3 alert "):
        if text.startswith(prefix):
            return f"the other side says: {text.removeprefix(prefix)}"
    return text
