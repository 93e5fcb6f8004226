"""REGISTER_BROKER, and the end of registrations (DESIGN 2).

A registration is how a broker process takes the place of the node's former process. What its logs
are worth is decided here: only a process of the same directory that follows directly on the
registered one, and that started trusted, keeps the node's place in the ELRs.
"""

from __future__ import annotations

from dataclasses import replace

from paceline.errors import (
    BrokerNotRegistered,
    DuplicateBrokerRegistration,
    InconsistentClusterId,
    InvalidRegistration,
    InvalidRequest,
    NotController,
    UnsupportedVersion,
)
from paceline.types import NO_NODE, BrokerEpoch, NodeId
from paceline.wire.native import admin
from paceline.wire.peer.control import (
    LackingRef,
    PartitionRef,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    ReportDamagedRequest,
)
from paceline_node.controller import elections
from paceline_node.controller.context import Context, Draft, Outcome
from paceline_node.controller.durable_offsets import NOT_KNOWN
from paceline_node.controller.image import METADATA_FEATURE, Broker, Image
from paceline_node.controller.metadata_records import (
    Endpoint,
    PartitionRegistration,
    RegisterBroker,
    UnregisterBroker,
)
from paceline_node.controller.partition_change import (
    RECOVERY_CLEAN,
    RECOVERY_DAMAGED,
    RECOVERY_UNCONFIRMED,
    Change,
)


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
    is_trusted = request.trusted and not _is_outdated(request, image)
    _replace_process(draft, request, is_trusted=is_trusted, keeps_place=successor and is_trusted)
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
            "copy of the disk, format it with --replace; if only the count is old, or nobody else "
            "has all of its records, remove its file 'incarnation' and start it again: it keeps "
            "what it has, and is not trusted before it has caught up"
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


def _is_outdated(request: RegisterBrokerRequest, image: Image) -> bool:
    """Whether the directory is an older copy of itself, by the metadata that its process said it
    holds for good (DESIGN 2.8)."""
    known = image.brokers.get(request.node_id)
    if (
        known is None
        or known.directory_id != request.directory_id
        or request.metadata_offset == NOT_KNOWN
    ):
        return False
    return request.metadata_offset < image.durable_offsets.get(request.node_id, NOT_KNOWN)


def _replace_process(
    draft: Draft, request: RegisterBrokerRequest, *, is_trusted: bool, keeps_place: bool
) -> None:
    node = request.node_id
    known = draft.broker(node)
    is_emptied = known is not None and known.directory_id != request.directory_id
    if known is not None:
        draft.change_broker(node, fenced=True)
    damaged = {(ref.topic_id, ref.partition) for ref in request.damaged}
    for partition in draft.partitions():
        is_damaged = (partition.topic_id, partition.partition) in damaged
        if is_damaged and node in partition.replicas and node not in partition.damaged:
            # Until it reports itself repaired, no leader can bring it back.
            partition = draft.change(
                partition, Change(damaged=(*partition.damaged, node), bump=True)
            )
        if not keeps_place or is_damaged:
            elections.distrust_in(draft, node, partition, is_emptied=is_emptied)
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
            trusted=is_trusted,
            endpoints=tuple(Endpoint(a.name, a.host, a.port) for a in request.endpoints),
            rack=request.rack,
            most_partitions=max(0, request.most_partitions),
        )
    )


def report_damaged(request: ReportDamagedRequest, context: Context) -> Outcome:
    """A broker found damage below its durable mark, or has repaired it (DESIGN 5.1); or its leader
    lacks what is committed.

    A damaged replica leaves ISR and ELR, and stays marked until it reports itself repaired: until
    then it joins neither, whatever leaders saw of it before. Each report raises the partition
    epoch, which kills proposals and reports of repair that are under way. Raises
    BrokerNotRegistered, StaleBrokerEpoch.
    """
    context.broker(request.node_id, request.broker_epoch)
    draft = Draft(context.image)
    node = request.node_id
    for done in request.repaired:
        partition = draft.partition(done.topic_id, done.partition)
        if partition is None or node not in partition.damaged:
            continue
        if done.partition_epoch == partition.partition_epoch:
            draft.change(partition, Change(damaged=_without(partition.damaged, node)))
    lost = {(ref.topic_id, ref.partition) for ref in request.partitions}
    for ref in (*request.partitions, *request.holes):
        partition = draft.partition(ref.topic_id, ref.partition)
        if partition is None or node not in partition.replicas:
            continue
        change = Change(damaged=(*partition.damaged, node), bump=True)
        if (ref.topic_id, ref.partition) in lost:
            change = replace(
                change, isr=_without(partition.isr, node), untrusted=frozenset((node,))
            )
        draft.change(partition, change)
    _hold_damaged(draft, node, request.partitions)
    for lacking in request.lacking:
        _replace_leader(draft, node, lacking)
    return Outcome(tuple(draft.records), lambda at: admin.Done(at.offset, at.term))


def _replace_leader(draft: Draft, node: NodeId, lacking: LackingRef) -> None:
    """``node``, which is complete, says that the leader lacks committed records.

    The leader counts as damaged. Nor does anybody else count until it has caught up with ``node``:
    it may have been cut to what the leader has.
    """
    partition = draft.partition(lacking.topic_id, lacking.partition)
    if partition is None or lacking.leader_epoch != partition.leader_epoch:
        return
    if not lacking.is_committed:
        _take_longer(draft, node, partition)
        return
    leader = partition.leader
    complete = (*partition.isr, *partition.elr)
    if leader in (NO_NODE, node) or node not in complete or node in partition.damaged:
        return
    draft.change(
        partition,
        Change(
            isr=tuple(each for each in partition.isr if each == node),
            untrusted=frozenset(complete) - {node},
            damaged=(*partition.damaged, leader),
            bump=True,
        ),
    )


def _take_longer(draft: Draft, node: NodeId, partition: PartitionRegistration) -> None:
    """``node`` has a longer log than the leader, which was elected by what it was before nobody was
    left in sync.

    As long as nothing was committed since, the longest log has all that is. The shorter one stays
    in the ELR: most often it lacks nothing, and should the longer one's disk be lost it is needed.
    But where ``node`` is no complete one another member must be heard first, if there is one.
    Where an operator keeps ``node`` from leading the leader stays, and others are cut; one that is
    fenced for now asks again.
    """
    if partition.recovery != RECOVERY_UNCONFIRMED or partition.leader in (NO_NODE, node):
        return
    if node not in partition.replicas or node in partition.damaged:
        return
    broker = draft.broker(node)
    assert broker is not None
    if broker.operator_fenced or node in partition.marks:
        draft.change(partition, Change(recovery=RECOVERY_CLEAN))
        return
    if not broker.electable:
        return
    stays = node in partition.elr or not partition.elr
    passed = frozenset[NodeId]() if stays else frozenset(partition.isr)
    draft.change(partition, Change(isr=(node,), untrusted=passed, leader=node))


def _without(nodes: tuple[NodeId, ...], node: NodeId) -> tuple[NodeId, ...]:
    return tuple(other for other in nodes if other != node)


def _hold_damaged(draft: Draft, node: NodeId, damaged: tuple[PartitionRef, ...]) -> None:
    """Keep sole replicas that are damaged from being elected without an operator (DESIGN 5.3)."""
    for ref in damaged:
        partition = draft.partition(ref.topic_id, ref.partition)
        if partition is None or partition.replicas != (node,) or partition.isr or partition.elr:
            continue
        draft.change(partition, Change(recovery=RECOVERY_DAMAGED))


def unregister(request: admin.UnregisterBroker, context: Context) -> Outcome:
    """Forget a broker that will not come back; its directory may not register again. Or an external
    entry.

    Raises BrokerNotRegistered, or InvalidRequest while the broker is alive.
    """
    broker = context.image.brokers.get(request.node)
    if broker is None and request.node in context.image.externals:
        record = UnregisterBroker(request.node, BrokerEpoch(-1))
        return Outcome((record,), lambda at: admin.Done(at.offset, at.term))
    if broker is None:
        raise BrokerNotRegistered(f"broker not found: {request.node}")
    if not broker.fenced or context.sessions.alive(request.node, context.now):
        raise InvalidRequest(f"node {request.node} is alive; stop it before unregistering it")
    draft = Draft(context.image)
    elections.distrust(draft, request.node)
    draft.add(UnregisterBroker(request.node, broker.broker_epoch))
    context.sessions.end(request.node)
    return Outcome(tuple(draft.records), lambda at: admin.Done(at.offset, at.term))
