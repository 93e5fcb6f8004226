"""V1's ADMIN_REGISTER_BROKER, BROKER_HEARTBEAT, FENCE, UNFENCE and RECONCILE (DESIGN 11).

Ids that no node owns are kept as *external* entries: listed in metadata, never assigned, never
elected. They are bounded in size and number, for every node keeps them for ever: one that was
silent for an hour gives its place to a new one, and ``UNREGISTER_BROKER`` removes one. For ids of
real nodes the commands report success and change nothing, but fencing, which
moves leaderships away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from paceline.errors import BrokerNotRegistered, InvalidRequest, Throttled
from paceline.types import BrokerEpoch, NodeId
from paceline.wire.native.admin import (
    Done,
    FenceBroker,
    Reconciled,
    ReconcileExternal,
    RegisterExternal,
)
from paceline_node.controller import elections
from paceline_node.controller.context import MAX_STEP_RECORDS, Context, Draft, Outcome
from paceline_node.controller.metadata_records import ExternalBroker, UnregisterBroker

MAX_HOST = 255
"""The longest name that DNS has."""
MAX_PORT = 65_535
MAX_ID = 2**31 - 1
MAX_EPOCH = 2**63 - 1
FORGOTTEN_MS = 60 * 60 * 1000
NO_EPOCH = BrokerEpoch(-1)


def register_external(request: RegisterExternal, context: Context) -> Outcome:
    """Record or refresh an external entry. Raises InvalidRequest (Throttled when there are as many
    as there may be), or BrokerNotRegistered for the heartbeat (empty host) of an unknown id."""
    if not 0 <= request.node <= MAX_ID:
        raise InvalidRequest(f"broker id must be >= 0 and at most {MAX_ID}")
    draft = Draft(context.image)
    externals = context.image.externals
    if request.node not in context.image.brokers:
        entry = _entry(request, context)
        if request.node not in externals and len(externals) >= context.settings.max_externals:
            draft.add(UnregisterBroker(_replaceable(externals, context.wall_ms), NO_EPOCH))
        draft.add(entry)
    return _done(draft)


def _replaceable(externals: Mapping[NodeId, ExternalBroker], wall_ms: int) -> NodeId:
    """The entry that was silent for longest, if that is long. Raises Throttled."""
    oldest = min(externals.values(), key=lambda each: (each.last_heartbeat_ms, each.node_id))
    if wall_ms - oldest.last_heartbeat_ms < FORGOTTEN_MS:
        raise Throttled(
            f"{len(externals)} external brokers are registered, the most there may be "
            "(limits.external_brokers), and none was silent for an hour; remove some: paceline "
            "node remove ID --bootstrap HOST:PORT"
        )
    return oldest.node_id


def _entry(request: RegisterExternal, context: Context) -> ExternalBroker:
    if not request.host:
        known = context.image.externals.get(request.node)
        if known is None:
            raise BrokerNotRegistered(f"broker not found: {request.node}")
        return replace(known, fenced=False, last_heartbeat_ms=context.wall_ms)
    if request.port <= 0:
        raise InvalidRequest("broker port must be > 0")
    if request.port > MAX_PORT:
        raise InvalidRequest(f"broker port must be at most {MAX_PORT}")
    if len(request.host) > MAX_HOST:
        raise InvalidRequest(f"broker host has {len(request.host)} characters, at most {MAX_HOST}")
    if request.epoch > MAX_EPOCH:
        raise InvalidRequest(f"broker epoch must be at most {MAX_EPOCH}")
    return ExternalBroker(
        node_id=request.node,
        host=request.host,
        port=request.port,
        epoch=request.epoch if request.epoch > 0 else context.wall_ms * 1_000_000,
        fenced=False,
        last_heartbeat_ms=context.wall_ms,
    )


def fence_broker(request: FenceBroker, context: Context) -> Outcome:
    """An operator's fence of a real or external broker, or its end. Raises BrokerNotRegistered."""
    draft = Draft(context.image, MAX_STEP_RECORDS)
    external = context.image.externals.get(request.node)
    if request.node in context.image.brokers:
        act = elections.operator_fence if request.fenced else elections.operator_unfence
        act(draft, request.node)
    elif external is not None:
        if external.fenced != request.fenced:
            draft.add(replace(external, fenced=request.fenced))
    else:
        raise BrokerNotRegistered(f"broker not found: {request.node}")
    return _done(draft)


def reconcile(request: ReconcileExternal, context: Context) -> Outcome:
    """Fence external entries silent for longer than the time-out, unfence the others; real nodes
    are judged by their sessions alone. Raises InvalidRequest."""
    if request.timeout_ms <= 0:
        raise InvalidRequest("timeout must be > 0")
    draft = Draft(context.image)
    for _, external in sorted(context.image.externals.items()):
        silent = context.wall_ms - external.last_heartbeat_ms > request.timeout_ms
        if silent != external.fenced:
            draft.add(replace(external, fenced=silent))
    count = len(draft.records)
    return Outcome(tuple(draft.records), lambda at: Reconciled(count, at.offset, at.term))


def _done(draft: Draft) -> Outcome:
    return Outcome(tuple(draft.records), lambda at: Done(at.offset, at.term), draft.unfinished)
