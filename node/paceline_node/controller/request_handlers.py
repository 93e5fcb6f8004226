"""The controller's state machine: a request and an image in, records and an answer out.

What belongs here: which handler answers which request, and who may ask. The decisions lie in the
handlers' own modules (``registration``, ``heartbeats``, ``isr_proposals``, ``elections``,
``roles``, ``topics``, ``external_brokers``). Nothing here waits, reads a clock or draws a number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from paceline.errors import AuthorizationFailed, InvalidRequest
from paceline.types import NodeId
from paceline.wire.message import Message
from paceline.wire.native import acls as acl_requests
from paceline.wire.native import admin
from paceline.wire.native import quotas as quotas_wire
from paceline.wire.native import users as users_wire
from paceline.wire.peer import control
from paceline_node.controller import (
    acls,
    elections,
    external_brokers,
    group_topics,
    heartbeats,
    internal_topics,
    isr_proposals,
    partition_budget,
    quotas,
    reassignment,
    registration,
    roles,
    stream_segments,
    topics,
    users,
)
from paceline_node.controller.context import Context, Draft, Outcome
from paceline_node.controller.metadata_records import ProducerIds
from paceline_node.settings import topic_config

PRODUCER_ID_BLOCK = 1_000


def allocate_producer_ids(request: control.AllocateProducerIdsRequest, context: Context) -> Outcome:
    """A block of ids that nobody else gets; lost blocks are never reused."""
    context.broker(request.node_id, request.broker_epoch)
    first = context.image.next_producer_id
    record = ProducerIds(request.node_id, request.broker_epoch, first + PRODUCER_ID_BLOCK)
    reply = control.AllocateProducerIdsResponse(first, PRODUCER_ID_BLOCK)
    return Outcome((record,), lambda at: reply)


def reassign(request: admin.ReassignPartition, context: Context) -> Outcome:
    """Move a partition to other replicas, or (with none named) give up a move under way.

    Raises UnknownTopicOrPartition, InvalidReplicationFactor, InvalidRequest, PolicyViolation,
    NoReassignmentInProgress.
    """
    topic = context.image.topic(request.topic)
    partition = context.image.partition(request.topic, request.partition)
    draft = Draft(context.image)
    configured = topic_config.min_insync_replicas(topic.configs)
    place = f"{request.topic}/{request.partition}"
    if request.replicas:
        topics.check_assignment(place, request.replicas, context)
        new = tuple(node for node in request.replicas if node not in partition.replicas)
        partition_budget.check(place, context.image, (new,))
        reassignment.start(draft, partition, request.replicas, configured)
    else:
        reassignment.cancel(draft, place, partition, configured)
    return Outcome(tuple(draft.records), lambda at: admin.Done(at.offset, at.term))


_HANDLERS: Mapping[type[Message], Callable[[Any, Context], Outcome]] = {
    control.RegisterBrokerRequest: registration.register,
    control.HeartbeatRequest: heartbeats.heartbeat,
    control.AlterPartitionRequest: isr_proposals.alter_partitions,
    control.ReportDamagedRequest: registration.report_damaged,
    control.AllocateProducerIdsRequest: allocate_producer_ids,
    control.CreateSegmentRequest: stream_segments.create_segment,
    control.DeleteSegmentRequest: stream_segments.delete_segment,
    control.CreateInternalTopicRequest: internal_topics.create_on_demand,
    admin.CreateTopic: topics.create_topic,
    admin.DeleteTopic: topics.delete_topic,
    admin.AlterTopic: topics.alter_topic,
    admin.AddPartitions: topics.add_partitions,
    admin.AlterGroup: group_topics.alter_group,
    admin.ElectLeader: elections.elect_leader,
    admin.SetRole: roles.set_role,
    admin.FenceBroker: external_brokers.fence_broker,
    admin.RegisterExternal: external_brokers.register_external,
    admin.ReconcileExternal: external_brokers.reconcile,
    admin.ReassignPartition: reassign,
    admin.UnregisterBroker: registration.unregister,
    acl_requests.CreateAcls: acls.create,
    acl_requests.DeleteAcls: acls.delete,
    quotas_wire.AlterQuotas: quotas.alter,
    users_wire.AlterUser: users.alter_user,
    users_wire.DeleteUser: users.delete_user,
}

HANDLED = frozenset(_HANDLERS)
"""The request types that the controller answers."""

_SPEAKS_FOR_ITSELF = (
    control.RegisterBrokerRequest,
    control.HeartbeatRequest,
    control.AlterPartitionRequest,
    control.ReportDamagedRequest,
    control.AllocateProducerIdsRequest,
)


def handle(sender: NodeId | None, request: Message, context: Context) -> Outcome:
    """Decide ``request``. ``sender`` is the node that the connection is bound to, None for this
    process itself. Raises typed errors; then nothing is to be appended.

    Only a broker's own requests are tied to the sender: administrative ones are forwarded for
    clients by any node.
    """
    if isinstance(request, _SPEAKS_FOR_ITSELF) and sender not in (None, request.node_id):
        raise AuthorizationFailed(f"node {sender} spoke for node {request.node_id}")
    handler = _HANDLERS.get(type(request))
    if handler is None:
        raise InvalidRequest(f"{type(request).__name__} is no request to the controller")
    return handler(request, context)
