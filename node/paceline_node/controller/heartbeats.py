"""HEARTBEAT: a broker says what state it is in, and what follows (DESIGN 3)."""

from __future__ import annotations

from paceline.wire.peer.control import HeartbeatRequest, HeartbeatResponse
from paceline_node.controller import elections
from paceline_node.controller.context import MAX_STEP_RECORDS, Context, Draft, Outcome
from paceline_node.controller.image import Broker


def heartbeat(request: HeartbeatRequest, context: Context) -> Outcome:
    """Renew the session; fence, unfence, drain or relieve the broker as its report demands.

    Raises BrokerNotRegistered, StaleBrokerEpoch, NotController.
    """
    broker = context.broker(request.node_id, request.broker_epoch)
    sessions = context.sessions
    sessions.heard(
        broker.node_id,
        context.now,
        request.image_offset,
        request.wall_ms,
        request.durable_offset,
    )
    draft = Draft(context.image, MAX_STEP_RECORDS)
    should_shutdown = False
    if request.offline:
        _take_offline(draft, broker)
    elif request.want_shutdown:
        should_shutdown = _drain(draft, broker, context)
    elif request.want_fence:
        if not broker.fenced:
            elections.fence(draft, broker.node_id)
    elif _may_unfence(broker, request, context):
        elections.unfence(draft, broker.node_id)
        context.sessions.unfenced(broker.node_id)
    _note_degraded(draft, broker, request)
    after = draft.broker(broker.node_id)
    assert after is not None
    reply = HeartbeatResponse(
        fenced=after.fenced,
        caught_up=_caught_up(broker, request),
        should_shutdown=should_shutdown,
        cluster_ms=sessions.cluster_ms(len(context.image.brokers), context.now),
    )
    return Outcome(tuple(draft.records), lambda at: reply, draft.unfinished)


def _caught_up(broker: Broker, request: HeartbeatRequest) -> bool:
    """Whether the broker's image has reached its own registration (the gate of 3.1)."""
    return request.image_offset >= broker.broker_epoch


def _may_unfence(broker: Broker, request: HeartbeatRequest, context: Context) -> bool:
    """One that was fenced while it ran must have learned of it, or it would go on in the roles that
    it has lost; a new process has none before its registration."""
    if not broker.fenced or broker.in_controlled_shutdown:
        return False
    if not broker.activated:
        return _caught_up(broker, request)
    if not context.settled:
        return False  # it may lose more yet
    point = context.sessions.fence_point(broker.node_id, context.image.offset)
    return request.image_offset >= point


def _take_offline(draft: Draft, broker: Broker) -> None:
    """The disk failed: what it acknowledged cannot be counted on any more."""
    if not broker.fenced:
        draft.change_broker(broker.node_id, fenced=True)
    elections.distrust(draft, broker.node_id)


def _drain(draft: Draft, broker: Broker, context: Context) -> bool:
    """Move on with a controlled shutdown; True once the broker may stop: it leads nothing, and
    every other active broker has learned so."""
    elections.shut_down(draft, broker.node_id)
    if draft.records:
        return False
    sessions = context.sessions
    point = sessions.shutdown_point(broker.node_id, context.image.offset)
    return all(
        other.node_id == broker.node_id or sessions.image_offset(other.node_id) >= point
        for other in context.image.active_brokers()
    )


def _note_degraded(draft: Draft, broker: Broker, request: HeartbeatRequest) -> None:
    draft.change_broker(broker.node_id, degraded=request.degraded)
    if request.degraded and draft.active(broker.node_id):
        elections.hand_over(draft, broker.node_id)
