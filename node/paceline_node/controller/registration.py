"""REGISTER_BROKER, and the end of registrations (spec replication 5.4, rules 1 to 7).

A registration is how a broker process takes the place of the node's former process. What its logs
are worth is decided here: only a process of the same directory that follows directly on the
registered one, and that started trusted, keeps the node's place in the ELRs.
"""

from __future__ import annotations

from paceline.errors import (
    BrokerNotRegistered,
    DuplicateBrokerRegistration,
    InconsistentClusterId,
    InvalidRegistration,
    InvalidRequest,
    NotController,
    UnsupportedVersion,
)
from paceline.types import BrokerEpoch, NodeId
from paceline.wire.native import admin
from paceline.wire.peer.control import (
    PartitionRef,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    ReportDamagedRequest,
)
from paceline_node.controller import elections
from paceline_node.controller.context import Context, Draft, Outcome
from paceline_node.controller.image import METADATA_FEATURE, Broker, Image
from paceline_node.controller.partition_change import RECOVERY_DAMAGED, Change
from paceline_node.controller.records import Endpoint, RegisterBroker, UnregisterBroker


def register(request: RegisterBrokerRequest, context: Context) -> Outcome:
    """Accept a broker process, fencing the one before it in the same entry.

    Raises InconsistentClusterId, UnsupportedVersion, InvalidRegistration,
    DuplicateBrokerRegistration (retriable: the other session still runs), NotController.
    """
    image = context.image
    _check_cluster(request, image)
    _check_directory(request, image)
    known = image.brokers.get(request.node_id)
    if known is not None:
        if known.incarnation_id == request.incarnation_id:
            epoch = known.broker_epoch
            return Outcome((), lambda at: RegisterBrokerResponse(epoch))
        _check_start(request, known)
    if request.prev_epoch > image.offset:
        raise NotController(f"broker epoch {request.prev_epoch} is beyond offset {image.offset}")
    successor = known is not None and _follows(request, known)
    if not successor and context.sessions.alive(request.node_id, context.now):
        raise DuplicateBrokerRegistration(
            f"node {request.node_id}: another process is registered and its session still runs"
        )
    draft = Draft(image)
    _replace_process(draft, request, keeps_place=successor and request.trusted)
    context.sessions.registered(request.node_id, context.now)
    return Outcome(tuple(draft.records), lambda at: RegisterBrokerResponse(BrokerEpoch(at.offset)))


def _check_cluster(request: RegisterBrokerRequest, image: Image) -> None:
    if request.cluster_id != image.cluster_id:
        raise InconsistentClusterId(
            f"node {request.node_id} belongs to cluster {request.cluster_id}, "
            f"this is {image.cluster_id}"
        )
    level = image.features.get(METADATA_FEATURE, 0)
    if not request.feature_min <= level <= request.feature_max:
        raise UnsupportedVersion(
            f"node {request.node_id} supports metadata feature levels {request.feature_min} to "
            f"{request.feature_max}, the cluster runs at {level}"
        )
    if request.node_id < 0:
        raise InvalidRegistration(f"node id {request.node_id} is negative")


def _check_directory(request: RegisterBrokerRequest, image: Image) -> None:
    """A data directory serves one node for life, and not after another took its place."""
    owner = image.retired.get(request.directory_id)
    if owner is not None:
        raise InvalidRegistration(
            f"directory {request.directory_id} was given up by node {owner}; "
            "format it with --replace to use the disk again"
        )
    for broker in image.brokers.values():
        if broker.directory_id == request.directory_id and broker.node_id != request.node_id:
            raise InvalidRegistration(
                f"directory {request.directory_id} is registered to node {broker.node_id}, "
                f"not to node {request.node_id}"
            )


def _check_start(request: RegisterBrokerRequest, known: Broker) -> None:
    """A process counts its start before it registers, so a count that is not higher is a late
    message of a dead process, or a copy of its directory."""
    if request.directory_id == known.directory_id and request.boot_seq <= known.boot_seq:
        raise InvalidRegistration(
            f"node {request.node_id}: start {request.boot_seq} of directory "
            f"{request.directory_id}, but start {known.boot_seq} is registered; if this is an old "
            "copy of the disk, format it with --replace"
        )


def _follows(request: RegisterBrokerRequest, known: Broker) -> bool:
    """Whether the process comes directly after the registered one, on its directory.

    The second form covers a process that was accepted but died before it could write down its
    epoch, and therefore before it could append anything.
    """
    if request.directory_id != known.directory_id:
        return False
    if request.prev_epoch == known.broker_epoch:
        return True
    return request.prev_epoch == known.prev_epoch and not known.activated


def _replace_process(draft: Draft, request: RegisterBrokerRequest, *, keeps_place: bool) -> None:
    node = request.node_id
    if draft.broker(node) is not None:
        draft.change_broker(node, fenced=True)
    damaged = {(ref.topic_id, ref.partition) for ref in request.damaged}
    for partition in draft.partitions():
        if not keeps_place or (partition.topic_id, partition.partition) in damaged:
            elections.distrust_in(draft, node, partition)
        elif node in partition.isr:
            elections.leave_isr(draft, node, partition)
    _hold_damaged(draft, node, request.damaged)
    draft.add(
        RegisterBroker(
            node_id=node,
            broker_epoch=BrokerEpoch(-1),
            incarnation_id=request.incarnation_id,
            boot_seq=request.boot_seq,
            directory_id=request.directory_id,
            prev_epoch=request.prev_epoch,
            trusted=request.trusted,
            endpoints=tuple(Endpoint(a.name, a.host, a.port) for a in request.endpoints),
            rack=request.rack,
        )
    )


def report_damaged(request: ReportDamagedRequest, context: Context) -> Outcome:
    """A broker found corruption below its durable mark: it leaves those ISRs and ELRs (2.5).

    Where it is in neither, its leader may just be proposing to re-admit it, having seen it caught
    up; the new partition epoch kills that proposal. Raises BrokerNotRegistered, StaleBrokerEpoch.
    """
    context.broker(request.node_id, request.broker_epoch)
    draft = Draft(context.image)
    for ref in request.partitions:
        partition = draft.partition(ref.topic_id, ref.partition)
        if partition is None or request.node_id not in partition.replicas:
            continue
        if elections.distrust_in(draft, request.node_id, partition) is partition:
            draft.change(partition, Change(bump=True))
    _hold_damaged(draft, request.node_id, request.partitions)
    return Outcome(tuple(draft.records), lambda at: admin.Done(at.offset, at.term))


def _hold_damaged(draft: Draft, node: NodeId, damaged: tuple[PartitionRef, ...]) -> None:
    """Keep sole replicas that are damaged from being elected without an operator (2.5)."""
    for ref in damaged:
        partition = draft.partition(ref.topic_id, ref.partition)
        if partition is None or partition.replicas != (node,) or partition.isr or partition.elr:
            continue
        draft.change(partition, Change(recovery=RECOVERY_DAMAGED))


def unregister(request: admin.UnregisterBroker, context: Context) -> Outcome:
    """Forget a broker that will not come back; its directory may not register again.

    Raises BrokerNotRegistered, or InvalidRequest while the broker is alive.
    """
    broker = context.image.brokers.get(request.node)
    if broker is None:
        raise BrokerNotRegistered(f"broker not found: {request.node}")
    if not broker.fenced or context.sessions.alive(request.node, context.now):
        raise InvalidRequest(f"node {request.node} is alive; stop it before unregistering it")
    draft = Draft(context.image)
    elections.distrust(draft, request.node)
    draft.add(UnregisterBroker(request.node, broker.broker_epoch))
    context.sessions.end(request.node)
    return Outcome(tuple(draft.records), lambda at: admin.Done(at.offset, at.term))
