"""Asks every node how it is, for :class:`Survey` to judge the cluster from the answers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

import trio

from paceline.client.endpoint import Endpoint
from paceline.documents.nodes import UNREACHABLE
from paceline.documents.survey import SeenNode, Survey
from paceline.errors import AuthenticationFailed, AuthorizationFailed, PacelineError
from paceline.values import dataclass
from paceline.wire.native.data import MetadataReply
from paceline_cluster import processes, refused
from paceline_cluster.log_lines import last_complaint, last_words
from paceline_cluster.node_calls import (
    ask_metadata,
    ask_status,
    ask_to_stop,
    count_internal_topics,
)
from paceline_cluster.processes import ProcessState
from paceline_cluster.state import ClusterState, NodeEntry


@dataclass(frozen=True, slots=True)
class NodeView(SeenNode):
    """A node as it is seen from a terminal."""

    @property
    def refusal(self) -> str:
        return self.error.removeprefix(f"{Endpoint.parse(self.address)}: ")

    def advice(self) -> str:
        """As to somebody who types commands."""
        return refused.what_to_do(self.refusal)


async def survey(state: ClusterState) -> Survey:
    """Ask all nodes of a local cluster at once."""
    seen = await _ask_all(
        [(entry.id, state.native(entry), _process_of(entry)) for entry in state.nodes]
    )
    return Survey(tuple(_with_complaint(view, state.node(view.id)) for view in seen.nodes))


def _with_complaint(view: SeenNode, entry: NodeEntry) -> SeenNode:
    # A node serves clients only once it follows the quorum: until then only its log can tell.
    if view.state == UNREACHABLE:
        return replace(view, complaint=last_complaint(entry.log_path))
    # Whoever stops a node forgets its pid.
    if view.process is ProcessState.STOPPED and entry.pid is not None:
        return replace(view, ended=True, complaint=last_words(entry.log_path))
    return view


async def metadata_of(seen: Survey) -> MetadataReply | None:
    """All topics as the node knows them whose metadata are the newest; None where it says nothing
    of them, for it has ended since."""
    newest = seen.newest()
    for view in seen.nodes:
        if view.status is not None and view.status is newest:
            with contextlib.suppress(PacelineError):
                return await ask_metadata(view.address, None)
    return None


async def survey_addresses(addresses: Sequence[str]) -> Survey:
    """Ask the cluster behind any of the addresses: all brokers that the first answer names.

    Raises the last PacelineError when none answers.
    """
    last: PacelineError | None = None
    for address in addresses:
        try:
            status = await ask_status(address)
        except PacelineError as error:
            last = error
            continue
        asked = Endpoint.parse(address)
        pattern = Endpoint(asked.host, asked.port, None, asked.tls, asked.login)
        found = [(broker.node_id, pattern.for_broker(broker)) for broker in status.brokers]
        return await _ask_all(
            [(int(node), where.url, None) for node, where in found if where is not None]
        )
    assert last is not None, "a cluster reference has at least one address"
    raise last


def _process_of(entry: NodeEntry) -> ProcessState:
    return processes.state_of(entry.pid, entry.pid_started)


async def _ask_all(nodes: Iterable[tuple[int, str, ProcessState | None]]) -> Survey:
    views: list[NodeView] = []

    async def ask(node_id: int, address: str, process: ProcessState | None) -> None:
        if process in (ProcessState.STOPPED, ProcessState.SUSPENDED):
            views.append(NodeView(node_id, address, process, None))
            return
        try:
            status = await ask_status(address)
        except (AuthorizationFailed, AuthenticationFailed) as error:
            views.append(NodeView(node_id, address, process, None, str(error), is_closed=True))
        except PacelineError as error:
            views.append(NodeView(node_id, address, process, None, str(error)))
        else:
            views.append(NodeView(node_id, address, process, status))

    async with trio.open_nursery() as nursery:
        for node in nodes:
            nursery.start_soon(ask, *node)
    return Survey(tuple(sorted(views, key=lambda view: view.id)))


async def with_internal_topics(seen: Survey) -> Survey:
    """The same, with how many topics are the brokers' own, where a node tells."""
    newest = seen.newest()
    asked = [view for view in seen.nodes if view.status is not None and view.status is newest]
    for view in asked:
        with contextlib.suppress(PacelineError):  # it has ended meanwhile
            return replace(seen, internal_topics=await count_internal_topics(view.address))
    return seen


async def tell_to_stop(state: ClusterState, entries: Iterable[NodeEntry]) -> None:
    """Tell each of these nodes that the whole cluster stops; one that does not answer is passed
    over, since SIGTERM follows anyway."""

    async def tell(address: str) -> None:
        try:
            await ask_to_stop(address)
        except PacelineError:
            return

    async with trio.open_nursery() as nursery:
        for entry in entries:
            nursery.start_soon(tell, state.native(entry))
