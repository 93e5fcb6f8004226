"""V1's ADMIN_REGISTER_BROKER, BROKER_HEARTBEAT, FENCE, UNFENCE and RECONCILE (spec v1 9.5).

Ids that no node owns are kept as *external* entries: listed in metadata, never assigned, never
elected. For ids of real nodes the commands report success and change nothing, but fencing, which
moves leaderships away.
"""

from __future__ import annotations

from dataclasses import replace

from paceline.errors import BrokerNotRegistered, InvalidRequest
from paceline.wire.native.admin import (
    Done,
    FenceBroker,
    Reconciled,
    ReconcileExternal,
    RegisterExternal,
)
from paceline_node.controller import elections
from paceline_node.controller.context import Context, Draft, Outcome
from paceline_node.controller.records import ExternalBroker


def register_external(request: RegisterExternal, context: Context) -> Outcome:
    """Record or refresh an external entry. Raises InvalidRequest, or BrokerNotRegistered for the
    heartbeat (empty host) of an unknown id."""
    if request.node < 0:
        raise InvalidRequest("broker id must be >= 0")
    draft = Draft(context.image)
    if request.node not in context.image.brokers:
        draft.add(_entry(request, context))
    return _done(draft)


def _entry(request: RegisterExternal, context: Context) -> ExternalBroker:
    if not request.host:
        known = context.image.externals.get(request.node)
        if known is None:
            raise BrokerNotRegistered(f"broker not found: {request.node}")
        return replace(known, fenced=False, last_heartbeat_ms=context.wall_ms)
    if request.port <= 0:
        raise InvalidRequest("broker port must be > 0")
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
    draft = Draft(context.image)
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
    return Outcome(tuple(draft.records), lambda at: Done(at.offset, at.term))
