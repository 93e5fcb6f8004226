"""How a command talks to the cluster: one client for its whole life."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import trio

from paceline.client import Client, ClientSettings, connect
from paceline.client.endpoint import Endpoint
from paceline.client.single_error_nursery import open_scope
from paceline.errors import (
    AuthenticationFailed,
    ConnectionLost,
    PacelineError,
    RemoteProtocolError,
    UnknownTopicOrPartition,
    Unreachable,
)
from paceline.login import ClientLogin
from paceline.tls import VARIABLES
from paceline_cluster.cli.find_cluster import Address, ClusterRef
from paceline_cluster.errors import LOG_IN, NobodyThere, OtherProtocol
from paceline_cluster.wrong_protocol import protocol_at

T = TypeVar("T")

CLIENT_ID = "paceline-cli"
_NOT_FOUND = "topic not found: "
SUSPICIOUS_S = 1.0
"""How long the first contact may take before the addresses are asked what they are."""


def with_client(ref: ClusterRef, work: Callable[[Client], Awaitable[T]]) -> T:
    """Connect to the cluster, do ``work``, disconnect. Raises PacelineError, ClusterError."""

    async def run() -> T:
        async with client_of(ref) as client:
            return await work(client)

    return trio.run(run)


def user_of(ref: ClusterRef) -> str:
    """As whom commands log in at the cluster; empty where they do not by name."""
    login = Endpoint.parse(ref.bootstrap()[0]).login or ClientLogin.from_environ()
    return "" if login is None else login.username


@contextlib.asynccontextmanager
async def client_of(ref: ClusterRef) -> AsyncIterator[Client]:
    """A client of the cluster. Raises ClusterStopped or NobodyThere when nothing takes connections
    at its addresses, OtherProtocol when what does is no node's native listener, and as
    :func:`paceline.client.connect` does."""
    settings = ClientSettings(client_id=CLIENT_ID, first_contact_timeout_s=ref.patience_s())
    addresses = ref.bootstrap()
    async with open_scope() as nursery, contextlib.AsyncExitStack() as stack:
        suspecting = trio.CancelScope()
        strange: RemoteProtocolError | None = None
        nursery.start_soon(_suspect, addresses, suspecting)
        try:
            client = await stack.enter_async_context(connect(addresses, settings))
        except Unreachable as error:
            if ref.is_stopped():
                raise ref.stopped() from None
            raise NobodyThere(
                f"{error} (tried for {ref.connect_timeout_s:g} s)",
                hint="is the cluster up? --connect-timeout waits longer for one that is starting",
            ) from None
        except AuthenticationFailed as error:
            _note_who_is_trusted(error, addresses[0])
            raise
        except ConnectionLost as error:
            if "tls handshake" in str(error).lower():
                error.add_note(
                    "does it take TLS? a listener without TLS is named by HOST:PORT alone"
                )
            raise
        except RemoteProtocolError as error:
            strange = error
        if strange is not None:
            await _refuse_others(addresses)
            raise strange
        suspecting.cancel()
        unknown: UnknownTopicOrPartition | None = None
        try:
            yield client
        except UnknownTopicOrPartition as error:
            unknown = _in_our_words(error)
        if unknown is not None:
            await _note_those_meant(client, unknown)
            raise unknown


def _note_who_is_trusted(error: AuthenticationFailed, address: Address) -> None:
    if "is not trusted" in str(error):
        plain = address.partition("?")[0]
        error.add_note(
            f"name who signs it: {plain}?authority=FILE, or {VARIABLES['authority']}=FILE in the "
            "environment"
        )
    elif "wants a log-in" in str(error):
        error.add_note(LOG_IN)


def _in_our_words(error: UnknownTopicOrPartition) -> UnknownTopicOrPartition:
    """The controller, which answers clients of all protocols, says of a missing topic what V1
    does; whoever only reads metadata is told by the client that there is none."""
    _, is_topic, name = str(error).partition(_NOT_FOUND)
    return UnknownTopicOrPartition(f"{name}: no such topic") if is_topic else error


async def _note_those_meant(client: Client, error: UnknownTopicOrPartition) -> None:
    """Name the topics that are spelled like the one that there is not."""
    name, is_topic, _ = str(error).partition(": no such topic")
    if not is_topic:
        return
    names: dict[str, str] = {}
    with trio.move_on_after(SUSPICIOUS_S), contextlib.suppress(PacelineError):
        topics = await client.admin.list_topics()
        names = {each.name.lower(): each.name for each in topics}
    close = difflib.get_close_matches(name.strip().lower(), names, n=3)
    if close:
        meant = " and ".join(f"'{names[each]}'" for each in close)
        error.add_note(f"there is {meant}; 'paceline topic list' shows all")


async def _suspect(addresses: tuple[Address, ...], scope: trio.CancelScope) -> None:
    with scope:
        await trio.sleep(SUSPICIOUS_S)
        await _refuse_others(addresses)


async def _refuse_others(addresses: tuple[Address, ...]) -> None:
    """Raises OtherProtocol when every address speaks something else for sure."""
    spoken = []
    for address in addresses:
        protocol = await protocol_at(address)
        if protocol is None:
            return
        spoken.append(f"{address} speaks {protocol}")
    raise OtherProtocol(
        f"{'; '.join(spoken)}, not the native protocol",
        hint="name a node's native listener, port 7400 by default; 'paceline status' shows those "
        "of a cluster on this machine",
    )
