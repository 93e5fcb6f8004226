"""The real network: TCP through trio's sockets. A driver module."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket

import trio

BACKLOG = 1024
UNSENT_BYTES = 1024 * 1024
"""Kernel buffer of bytes not yet sent; trio's 16 KiB would cost a wake-up per 16 KiB."""

_NO_ROUTE = frozenset(
    {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.ENETUNREACH, errno.EHOSTUNREACH}
)


class RealNetwork:
    """Connects and listens; streams have TCP_NODELAY, listeners SO_REUSEADDR."""

    async def connect(self, host: str, port: int) -> trio.abc.Stream:
        """Open a connection. Raises OSError, its text naming the address; ConnectionRefusedError
        only when every address of ``host`` that this machine can reach refused."""
        try:
            stream = await trio.open_tcp_stream(host, port)
        except OSError as error:
            raise _connect_error(host, port, error) from error
        _tune(stream)
        return stream

    async def listen(self, host: str, port: int) -> list[trio.abc.Listener[trio.abc.Stream]]:
        """Bind; an empty host means every address of both families; port 0 picks one port.

        Raises OSError whose text names the address.
        """
        try:
            listeners = await trio.open_tcp_listeners(port, host=host or None, backlog=BACKLOG)
        except OSError as error:
            raise _named_error(f"cannot listen on {host}:{port}", error) from error
        if port == 0 and len(listeners) > 1:
            # Each family got a port of its own; one address must have one port.
            listeners.sort(key=lambda listener: listener.socket.family != socket.AF_INET)
            for other in listeners[1:]:
                other.socket.close()
            listeners = listeners[:1]
        return [_TunedListener(listener) for listener in listeners]

    def bound_port(self, listener: trio.abc.Listener[trio.abc.Stream]) -> int:
        """The port a listener of this network is bound to."""
        assert isinstance(listener, _TunedListener), "not a listener of this network"
        return listener.port


class _TunedListener(trio.abc.Listener[trio.abc.Stream]):
    def __init__(self, listener: trio.SocketListener) -> None:
        self._listener = listener
        self.port = int(listener.socket.getsockname()[1])

    async def accept(self) -> trio.abc.Stream:
        stream = await self._listener.accept()
        _tune(stream)
        return stream

    async def aclose(self) -> None:
        await self._listener.aclose()


def _tune(stream: trio.SocketStream) -> None:
    # trio has set TCP_NODELAY already; macOS and old kernels lack the other option.
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        with contextlib.suppress(OSError):
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)


def _connect_error(host: str, port: int, error: OSError) -> OSError:
    """trio raises one OSError over all addresses tried; find out what it means."""
    causes: list[BaseException] = [error]
    if isinstance(error.__cause__, BaseExceptionGroup):
        causes = list(error.__cause__.exceptions)
    elif isinstance(error.__cause__, OSError):
        causes = [error.__cause__]
    refused = [cause for cause in causes if isinstance(cause, ConnectionRefusedError)]
    others = [
        cause
        for cause in causes
        if isinstance(cause, OSError) and cause not in refused and cause.errno not in _NO_ROUTE
    ]
    what = f"cannot connect to {host}:{port}"
    if refused and not others:
        return ConnectionRefusedError(errno.ECONNREFUSED, f"{what}: connection refused")
    return _named_error(what, (others or [error])[0])


def _named_error(what: str, error: BaseException) -> OSError:
    number = error.errno if isinstance(error, OSError) else None
    if number is None or isinstance(error, socket.gaierror):
        return OSError(f"{what}: {error}")
    return OSError(number, f"{what}: {os.strerror(number)}")


class RealDescriptors:
    """This process's descriptors (``accepting.Descriptors``)."""

    def limit(self) -> int:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return soft if soft != resource.RLIM_INFINITY else 1 << 30

    def next_number(self) -> int:
        try:
            number = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                return self.limit()
            raise
        os.close(number)
        return number
