"""Binding client listeners and giving their connections to the protocols."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import field, replace
from ipaddress import ip_address

import trio

from paceline.errors import RequestTimedOut
from paceline.types import NodeId
from paceline.values import dataclass
from paceline_node.client_addresses import host_of, source_of
from paceline_node.client_connections import Connection, Connections
from paceline_node.client_memory import FREE_BYTES, ClientMemory, Holding, unlimited
from paceline_node.env import Network
from paceline_node.loop_turns import Turns
from paceline_node.net.accepting import AcceptGate, OpenConnections, contained, serve
from paceline_node.net.disconnects import plain_of
from paceline_node.net.tls_acceptor import ClearText, TlsAcceptor
from paceline_node.observe.rate_limited_log import RateLimitedLog
from paceline_node.security.principals import ANONYMOUS, Principal, Proof
from paceline_node.security.quotas import ClientQuotas, no_quotas
from paceline_node.settings import Listener, Login
from paceline_node.settings.address_rules import AddressRule, name_by_address

_LAST_ANSWERS_S = 1.0


def soon(scope: trio.CancelScope) -> Callable[[], None]:
    """What ends a connection whose scope that is (:attr:`Client.end`)."""

    def end() -> None:
        scope.deadline = min(scope.deadline, trio.current_time() + _LAST_ANSWERS_S)

    return end


def _do_nothing() -> None:
    """There is no connection that could end."""


@dataclass(frozen=True, slots=True)
class Client:
    """Who is on the other side of a connection: address for logs, whether it is this machine, as
    whom its requests are judged, what the node's memory it holds is charged to, whether others
    could listen, and whether it may do nothing before it has proved who it is. ``quotas`` say when
    it has to wait, and in ``turns`` its small requests stand behind others'. ``end`` ends the
    connection within a second, in which what it has asked for is answered; later it does nothing.
    Operators see of its ``connection`` who it was last.
    """

    name: str
    is_loopback: bool
    principal: Principal = ANONYMOUS
    memory: Holding = field(default_factory=unlimited, compare=False)
    is_encrypted: bool = False
    must_log_in: bool = False
    end: Callable[[], None] = field(default=_do_nothing, compare=False)
    connection: Connection | None = field(default=None, compare=False)
    quotas: ClientQuotas = field(default_factory=no_quotas, compare=False)
    turns: Turns = field(default_factory=Turns, compare=False)

    def __post_init__(self) -> None:
        asks = replace(
            self.principal,
            source=self.account,
            host=host_of(self.address),
            reached_from=host_of(self.name.rpartition(":")[0]),
        )
        object.__setattr__(self, "principal", asks)
        if self.connection is not None:
            self.connection.principal = str(asks)
            self.connection.is_encrypted = self.is_encrypted

    @property
    def address(self) -> str:
        """The name without the port."""
        return self.name.rpartition(":")[0] or self.name

    @property
    def source(self) -> str:
        """Whose address it is."""
        return source_of(self.address)

    @property
    def account(self) -> str:
        """Whom quotas count it for: the principal, or the address of one without credentials."""
        if self.principal.proof is not Proof.NONE:
            return str(self.principal)
        return self.source


_LAST_WORD_S = 1.0
_RECEIVE_BYTES = 64 * 1024
_TAKEN_BYTES = 64 * 1024
_FORWARDED_FACTOR = 3
"""What a request takes while it is carried out: its frame, what was read out of it, a copy."""

Serve = Callable[[trio.abc.Stream, Client], Awaitable[None]]
"""Serves one connection and closes it."""


@dataclass(frozen=True, slots=True)
class BoundListener:
    """A configured listener with its open sockets; ``address`` is what others are told."""

    config: Listener
    sockets: Sequence[trio.abc.Listener[trio.abc.Stream]]
    address: tuple[str, int]

    async def close(self) -> None:
        """Free the port; idempotent, also when cancelled."""
        with trio.CancelScope(shield=True):
            for each in self.sockets:
                await trio.aclose_forcefully(each)


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
    memory: ClientMemory,
    connections: Connections | None = None,
    opened: OpenConnections | None = None,
    idle_s: float = float("inf"),
    quotas: ClientQuotas | None = None,
    turns: Turns | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve a client listener until cancelled. What its clients hold is charged to ``memory``,
    which may end them; so may newcomers, once one has been silent for ``idle_s`` and all places are
    taken."""
    kind = bound.config.kind.value
    task_name = f"{kind} connection"
    log = RateLimitedLog()
    connections = connections or Connections()
    quotas = quotas or no_quotas()
    turns = turns or Turns()

    async def one(stream: trio.abc.Stream) -> None:
        client = client_of(stream)
        trio.lowlevel.current_task().name = task_name
        async with contained(kind, client.name, log):
            with (
                trio.CancelScope() as scope,
                memory.holding(kind, client.address, scope.cancel) as held,
                connections.entered(kind, client.name) as connection,
            ):
                connection.memory = held
                asks = replace(
                    client,
                    memory=held,
                    must_log_in=bound.config.login is Login.REQUIRED,
                    end=soon(scope),
                    connection=connection,
                    quotas=quotas,
                    turns=turns,
                )
                await handle(stream, asks)

    await serve(
        bound.sockets,
        one,
        max_connections=max_connections,
        gate=gate,
        opened=opened,
        idle_s=idle_s,
        look=None if bound.config.tls else ClearText(kind).look,
        task_status=task_status,
    )


def behind(door: TlsAcceptor, handle: Serve) -> Serve:
    """``handle``, for those whom the door lets in: as whom their certificate names."""

    async def admitted(stream: trio.abc.Stream, client: Client) -> None:
        entered = await door.enter(stream)
        if entered is not None:
            inner, principal = entered
            is_encrypted = inner is not stream
            await handle(inner, replace(client, principal=principal, is_encrypted=is_encrypted))

    return admitted


def by_address(rules: Sequence[AddressRule], handle: Serve) -> Serve:
    """``handle``, for clients who are somebody by their address unless a certificate says who."""

    async def named(stream: trio.abc.Stream, client: Client) -> None:
        name = name_by_address(rules, host_of(client.address))
        if name and client.principal.proof is Proof.NONE:
            client = replace(client, principal=Principal(name, Proof.ADDRESS))
        await handle(stream, client)

    return named


def client_of(stream: trio.abc.Stream) -> Client:
    """Who connected, as far as the stream tells. In-memory streams are of this machine; those of a
    simulated network say by their ``peer_host`` whose share of everything they count for."""
    plain = plain_of(stream)
    if plain is None:
        return Client(getattr(stream, "peer_host", "memory"), is_loopback=True)
    try:
        host, port = plain.socket.getpeername()[:2]
    except OSError:
        return Client("gone", is_loopback=False)
    return Client(f"{host}:{port}", ip_address(host_of(host)).is_loopback)


def member_host(principal: Principal) -> str:
    """From where a member of a group speaks, as Kafka writes it; empty where that is nowhere."""
    return f"/{principal.reached_from}" if principal.reached_from else ""


@asynccontextmanager
async def forwarded(memory: ClientMemory, node: NodeId, size: int) -> AsyncIterator[None]:
    """Around the work on a request of ``size`` bytes that another node forwards. It is charged as
    if the node were a client's address, and ended where a connection would be: RequestTimedOut, for
    it may have been carried out."""
    if size <= FREE_BYTES:
        yield
        return
    with (
        trio.CancelScope() as scope,
        memory.holding("peer", f"node {node}", scope.cancel) as held,
    ):
        held.change(_FORWARDED_FACTOR * size)
        yield
    if held.is_ending:
        raise RequestTimedOut("memory for clients is short on the node that leads")


async def send_to(stream: trio.abc.Stream, data: bytes, stall_s: float) -> None:
    """Send to a client that takes all of it, or 64 KiB, in each ``stall_s``. Raises
    BrokenResourceError for one that does not."""
    view = memoryview(data)
    for at in range(0, len(view), _TAKEN_BYTES):
        with trio.move_on_after(stall_s) as patience:
            await stream.send_all(view[at : at + _TAKEN_BYTES])
        if patience.cancelled_caught:
            raise trio.BrokenResourceError("the client does not take what it is sent")


async def let_read(stream: trio.abc.Stream) -> None:
    """Give the client time to read a last answer: closing while its bytes are unread would reset
    the connection and take the answer with it."""
    if isinstance(stream, trio.abc.HalfCloseableStream):
        await stream.send_eof()
    with trio.move_on_after(_LAST_WORD_S):
        while await stream.receive_some(_RECEIVE_BYTES):
            pass
