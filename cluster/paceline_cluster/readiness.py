"""Waits until a cluster that was just started serves."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from paceline.documents.survey import Survey
from paceline.errors import AuthenticationFailed, AuthorizationFailed, PacelineError
from paceline_cluster.errors import NodeEnded, NodeMisconfigured, TooLate
from paceline_cluster.launch import POLL_S, Children, how_it_ended, log_tail, process_state
from paceline_cluster.node_calls import ask_status
from paceline_cluster.processes import ProcessState
from paceline_cluster.state import ClusterState, NodeEntry
from paceline_cluster.survey import survey

_CONFIGURATION_EXIT = 78
_CONNECT_S = 1.0
START_TIMEOUT_S = 60.0
PATIENCE_S = 10.0
"""How long replicas may make no progress on their way into sync."""


async def wait_until_ready(
    current: ClusterState, children: Children, *, timeout_s: float, in_sync: bool = False
) -> Survey:
    """Wait until every node answers and the quorum and all partitions have leaders; ``in_sync``:
    and then, as long as that comes nearer, until all replicas are in sync and leaders lead
    (:func:`wait_in_sync`).
    Where no node tells whoever asks, that all serve is enough.

    Raises NodeEnded or NodeMisconfigured with the end of the node's log when a process ends, and
    TooLate naming what was still missing.
    """
    deadline = trio.current_time() + timeout_s
    await _until_all_listen(current, children, deadline)
    while True:
        seen = await _look(current, children)
        if seen.is_closed():
            return seen
        if seen.is_ready():
            if not in_sync:
                return seen
            return await wait_in_sync(partial(_look, current, children), seen, deadline=deadline)
        if trio.current_time() > deadline:
            missing = "; ".join(seen.reasons())
            raise TooLate(f"the cluster is not ready after {timeout_s:g} s: {missing}")
        await trio.sleep(POLL_S)


async def _look(current: ClusterState, children: Children) -> Survey:
    _require_running(current, children)
    return await survey(current)


async def wait_in_sync(
    look: Callable[[], Awaitable[Survey]], seen: Survey, *, deadline: float = math.inf
) -> Survey:
    """Survey again until no partition lacks replicas in sync and all leaders lead, or for
    :data:`PATIENCE_S` none has got them, at most until ``deadline``: replicas that were down fetch
    what they missed, and one that cannot keeps nobody waiting. Returns the last survey. Raises what
    ``look`` raises."""
    least, since = _lacking(seen), trio.current_time()
    while (least or not seen.all_lead()) and trio.current_time() < min(
        deadline, since + PATIENCE_S
    ):
        await trio.sleep(POLL_S)
        seen = await look()
        if _lacking(seen) < least:
            least, since = _lacking(seen), trio.current_time()
    return seen


def _lacking(seen: Survey) -> float:
    """How many partitions lack replicas in sync; all there can be where nobody answers."""
    newest = seen.newest()
    return math.inf if newest is None else newest.under_replicated_count


async def _until_all_listen(current: ClusterState, children: Children, deadline: float) -> None:
    """Wait until all nodes accept connections, at most until ``deadline``. To be refused costs
    little; a survey would take time away from nodes that start."""
    waited_for = list(current.nodes)
    while trio.current_time() < deadline:
        _require_running(current, children)
        waited_for = [entry for entry in waited_for if not await _listens(entry)]
        if not waited_for:
            return
        await trio.sleep(POLL_S)


def _require_running(current: ClusterState, children: Children) -> None:
    for entry in current.nodes:
        code = children.exit_code(entry.id)
        if code is None and process_state(entry) is not ProcessState.STOPPED:
            continue
        text = f"{how_it_ended(entry.id, code)}; its log {entry.log_path} ends:\n{log_tail(entry)}"
        if code == _CONFIGURATION_EXIT:
            raise NodeMisconfigured(text)
        raise NodeEnded(text)


async def _listens(entry: NodeEntry) -> bool:
    """Whether something accepts connections where the node is to serve, on this machine."""
    host, _, port = entry.listeners["native"].rpartition(":")
    with contextlib.suppress(OSError), trio.move_on_after(_CONNECT_S):
        stream = await trio.open_tcp_stream(host, int(port))
        await stream.aclose()
        return True
    return False


async def wait_until_serves(
    current: ClusterState,
    entry: NodeEntry,
    children: Children,
    *,
    timeout_s: float = START_TIMEOUT_S,
) -> None:
    """Wait until a node that was just started serves. Raises NodeEnded with the end of its log, and
    TooLate with what it waits for."""
    deadline = trio.current_time() + timeout_s
    said = "it does not answer"
    while trio.current_time() < deadline:
        if process_state(entry) is ProcessState.STOPPED:
            how = how_it_ended(entry.id, children.exit_code(entry.id))
            raise NodeEnded(f"{how}; its log {entry.log_path} ends:\n{log_tail(entry)}")
        try:
            status = await ask_status(current.native(entry))
        except (AuthorizationFailed, AuthenticationFailed):
            return  # it serves, and does not tell everybody how it is
        except PacelineError as error:
            said = str(error)
        else:
            if status.state == "running":
                return
            said = f"it is {status.state} ({', '.join(status.reasons)})"
        await trio.sleep(POLL_S)
    raise TooLate(
        f"node {entry.id} was started and does not serve after {timeout_s:.0f} s: {said}; "
        "it may wait for others ('paceline up' starts all that are stopped)"
    )
