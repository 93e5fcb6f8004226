"""Binding client listeners and giving their connections to the protocols."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

import structlog
import trio

from paceline_node.env import Network
from paceline_node.peers.accepting import AcceptGate, OpenConnections, serve
from paceline_node.settings import Listener

Serve = Callable[[trio.abc.Stream, str, bool], Awaitable[None]]
"""Serves one connection and closes it; gets the client's address and whether it is loopback."""


@dataclass(frozen=True, slots=True)
class BoundListener:
    """A configured listener with its open sockets; ``address`` is what others are told."""

    config: Listener
    sockets: Sequence[trio.abc.Listener[trio.abc.Stream]]
    address: tuple[str, int]

    async def close(self) -> None:
        """Free the port; idempotent, also when cancelled."""
        with trio.CancelScope(shield=True):
            for socket in self.sockets:
                await trio.aclose_forcefully(socket)


class PortInUse(Exception):
    """A listener cannot be bound; process exit code 78."""


async def bind(net: Network, config: Listener) -> BoundListener:
    """Open a listener's sockets. Raises PortInUse with one sentence that says what to change."""
    try:
        sockets = await net.listen(config.host, config.port)
    except OSError as error:
        raise PortInUse(
            f"listeners: {config} cannot be bound: {error}; "
            "choose another port, or stop what uses it"
        ) from error
    return BoundListener(config, sockets, config.advertised(net.bound_port(sockets[0])))


async def serve_clients(
    bound: BoundListener,
    handle: Serve,
    *,
    max_connections: int,
    gate: AcceptGate,
    opened: OpenConnections | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve a client listener until cancelled."""

    async def one(stream: trio.abc.Stream) -> None:
        name, is_loopback = _client(stream)
        try:
            await handle(stream, name, is_loopback)
        except* AssertionError:
            # A broken invariant: going on could lose what was acknowledged.
            raise
        except* Exception as group:  # noqa: BLE001  see below
            # One client's connection must not end the others'.
            structlog.get_logger().error(
                "connection failed", protocol=bound.config.kind.value, client=name, exc_info=group
            )

    await serve(
        bound.sockets,
        one,
        max_connections=max_connections,
        gate=gate,
        opened=opened,
        task_status=task_status,
    )


def _client(stream: trio.abc.Stream) -> tuple[str, bool]:
    """The client's address, and whether it is on this machine. In-memory streams are."""
    if not isinstance(stream, trio.SocketStream):
        return "memory", True
    try:
        host, port = stream.socket.getpeername()[:2]
    except OSError:
        return "gone", False
    return f"{host}:{port}", _is_loopback(host.partition("%")[0])


def _is_loopback(host: str) -> bool:
    address = ip_address(host)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback
