"""Between the coordinator and the nodes whose partitions and groups are in transactions.

Each method works on whichever node it is called: what this node can do itself it does, the rest
goes out over the peer protocol (``wire/peer/transactions.py``), whose requests end up in the same
code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from uuid import UUID

import trio

from paceline.errors import (
    CoordinatorNotAvailable,
    LeaderChangedAfterAppend,
    NotLeader,
    PacelineError,
    UnknownTopicOrPartition,
)
from paceline.types import Acks, LeaderEpoch, NodeId
from paceline.wire.batch import iter_batches
from paceline.wire.frame import Frame
from paceline.wire.message import Message
from paceline.wire.peer import transactions as wire
from paceline.wire.peer.api import PeerApi
from paceline.wire.peer.names import GroupName, PartitionName
from paceline_node.bare_errors import bare
from paceline_node.controller.image import Image
from paceline_node.controller.metadata_store import MetadataStore
from paceline_node.env import Env
from paceline_node.groups.committed_offsets import Commit
from paceline_node.groups.cursus_groups import CursusMember
from paceline_node.groups.engine import GroupEngine
from paceline_node.groups.keys import GROUPS_TOPIC, GroupKey, partition_of
from paceline_node.groups.offset_pieces import pieces
from paceline_node.groups.offset_shares import UNKNOWN
from paceline_node.groups.transactional_offsets import Ticket
from paceline_node.net.framestream import Payload
from paceline_node.peers.auth import Lane
from paceline_node.peers.links import PeerLinks
from paceline_node.peers.server import PeerServer, Session
from paceline_node.replication.hosted_partitions import HostedPartitions
from paceline_node.replication.partition import ProduceResult
from paceline_node.replication.transaction_gate import MarkerOrder
from paceline_node.services.future import Future
from paceline_node.services.transactions.forgotten_producers import ForgottenProducers
from paceline_node.state_machines.machine import EVERYTHING
from paceline_node.state_machines.topic import StateTopic
from paceline_node.transaction_names import Family, ProducerIdentity, TransactionKey
from paceline_node.transactions.engine import TransactionEngine
from paceline_node.transactions.hanging import OpenHere
from paceline_node.transactions.keys import PARTITION, TRANSACTIONS_TOPIC
from paceline_node.transactions.records import KnownTopic

_MARKERS_AT_ONCE = 100
"""Markers that are appended before others have their turn."""
_COMMIT_S = 5.0
_GRACE_S = 1.0
"""An answer may take this much longer to arrive than the work may take."""


class TransactionRpc:
    """Both ends of every request between nodes that is about transactions. ``groups``: those of
    this node."""

    def __init__(
        self,
        env: Env,
        node_id: NodeId,
        store: MetadataStore,
        links: PeerLinks,
        table: HostedPartitions,
        transactions: StateTopic[TransactionEngine],
        groups: StateTopic[GroupEngine],
    ) -> None:
        self._env = env
        self._node_id = node_id
        self._store = store
        self._links = links
        self._forgotten = ForgottenProducers(env)
        self._table = table
        self._transactions = transactions
        self.groups = groups

    def register(self, server: PeerServer) -> None:
        """Future other nodes on ``server``."""
        server.register(PeerApi.VERIFY_TRANSACTION, self._on_verify)
        server.register(PeerApi.WRITE_MARKERS, self._on_markers)
        server.register(PeerApi.SETTLE_OFFSETS, self._on_settle)
        server.register(PeerApi.STAGE_OFFSETS, self._on_stage)
        server.register(PeerApi.APPEND_STAGED, self._on_append)
        server.register(PeerApi.FIND_HANGING, self._on_find_hanging)

    # --- may this producer write? -----------------------------------------------------------------

    async def verify(
        self,
        key: TransactionKey,
        who: ProducerIdentity,
        member: PartitionName | GroupName,
        *,
        adds: bool,
        topic_id: UUID | None = None,
    ) -> wire.TransactionVerified:
        """Ask the coordinator for the transaction's serial. ``topic_id``: of the partition that is
        to be written to. Raises as :meth:`ProducerTransactions.verify`; NotCoordinator,
        CoordinatorLoadInProgress, CoordinatorNotAvailable, RequestTimedOut: ask again."""
        group = None
        topic, number = "", -1
        if isinstance(member, GroupName):
            group = member
        else:
            topic, number = member.topic, member.partition
        request = wire.VerifyTransaction(
            family=key.family.value,
            name=key.name,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            topic=topic,
            partition=number,
            group=group,
            adds=adds,
            topic_id=topic_id,
            metadata_offset=self._store.image.offset,
        )
        leader = self._coordinator()
        if leader == self._node_id:
            return await self._verify(request)
        frame = await self._ask_coordinator(leader, PeerApi.VERIFY_TRANSACTION, request)
        return wire.TransactionVerified.unpack(frame.body)

    def _coordinator(self) -> NodeId:
        try:
            leader: NodeId = self._store.image.partition(TRANSACTIONS_TOPIC, PARTITION).leader
        except UnknownTopicOrPartition as error:
            raise CoordinatorNotAvailable(f"{TRANSACTIONS_TOPIC} does not exist yet") from error
        if leader < 0:
            raise CoordinatorNotAvailable(f"{TRANSACTIONS_TOPIC} has no leader")
        return leader

    async def _ask_coordinator(self, node: NodeId, api: PeerApi, request: Message) -> Frame:
        led = _led_by(node, PartitionName(TRANSACTIONS_TOPIC, PARTITION))
        try:
            return await self._ask(node, api, request, timeout_s=_COMMIT_S, leads=led)
        except LeaderChangedAfterAppend as error:
            raise CoordinatorNotAvailable(str(error)) from error

    async def _verify(self, request: wire.VerifyTransaction) -> wire.TransactionVerified:
        key = TransactionKey(Family(request.family), request.name)
        who = ProducerIdentity(request.producer_id, request.producer_epoch)
        image = self._store.image
        member: PartitionName | GroupName
        if request.group is None:
            image.partition(request.topic, request.partition)
            member = PartitionName(request.topic, request.partition)
        else:
            member = request.group

        def command(engine: TransactionEngine) -> wire.TransactionVerified:
            if request.adds and isinstance(member, PartitionName):
                engine.producers.add_partitions(
                    key,
                    who,
                    [member],
                    max(image.offset, request.metadata_offset),
                    _written_to(request, image),
                )
            elif request.adds and isinstance(member, GroupName):
                engine.producers.add_group(key, who, member)
            serial = engine.producers.verify(key, who, member)
            return wire.TransactionVerified(serial, self._led_epoch())

        return await self._transactions.perform(PARTITION, EVERYTHING, command, commit_s=_COMMIT_S)

    async def _on_verify(self, session: Session, frame: Frame) -> tuple[Message, Payload]:
        return await self._verify(wire.VerifyTransaction.unpack(frame.body)), b""

    def _led_epoch(self) -> LeaderEpoch:
        replica = self._transactions.replica(PARTITION)
        assert replica is not None, "its machine leads"
        return LeaderEpoch(replica.led_epoch)

    # --- does anybody end this? -------------------------------------------------------------------

    async def find_hanging(self, asked: Sequence[OpenHere]) -> wire.HangingFound:
        """Ask the coordinator which of these transactions nobody will end. Raises as
        :meth:`verify`."""
        request = wire.FindHanging(tuple([_asked(each) for each in asked]))
        leader = self._coordinator()
        if leader == self._node_id:
            return await self._find_hanging(request)
        frame = await self._ask_coordinator(leader, PeerApi.FIND_HANGING, request)
        return wire.HangingFound.unpack(frame.body)

    async def _find_hanging(self, request: wire.FindHanging) -> wire.HangingFound:
        asked = [OpenHere(each.producer_id, _where(each)) for each in request.open]

        def command(engine: TransactionEngine) -> wire.HangingFound:
            return wire.HangingFound(tuple(engine.find_hanging(asked)), self._led_epoch())

        return await self._transactions.perform(PARTITION, EVERYTHING, command, commit_s=_COMMIT_S)

    async def _on_find_hanging(self, session: Session, frame: Frame) -> tuple[Message, Payload]:
        return await self._find_hanging(wire.FindHanging.unpack(frame.body)), b""

    # --- markers ----------------------------------------------------------------------------------

    async def write_markers(self, node: NodeId, order: wire.WriteMarkers) -> wire.MarkersWritten:
        """Have ``node`` end a transaction in partitions that it leads. Raises ConnectionLost,
        RequestTimedOut; LeaderChangedAfterAppend when another leads one of them before it
        answers."""
        if node == self._node_id:
            return await self._write_markers(order)
        frame = await self._ask(
            node,
            PeerApi.WRITE_MARKERS,
            order,
            timeout_s=order.timeout_ms / 1000,
            leads=_led_by(
                node, *(PartitionName(each.topic, each.partition) for each in order.partitions)
            ),
        )
        return wire.MarkersWritten.unpack(frame.body)

    async def _write_markers(self, order: wire.WriteMarkers) -> wire.MarkersWritten:
        answers = []
        for number, each in enumerate(order.partitions, 1):
            answers.append(self._begin_marker(order, each))
            if number % _MARKERS_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        self._env.host.buggify("transaction.marker-appended")
        errors, messages = [], []
        for answer in answers:
            try:
                if answer is not None:
                    await answer.wait()
            except PacelineError as error:
                errors.append(int(error.code))
                messages.append(str(error))
            else:
                errors.append(0)
                messages.append("")
        return wire.MarkersWritten(tuple(errors), tuple(messages))

    def _begin_marker(
        self, order: wire.WriteMarkers, where: wire.MarkedPartition
    ) -> Future[ProduceResult] | None:
        """None: there is nothing to end."""
        answer: Future[ProduceResult] = Future()
        found = self._table.get(where.topic, where.partition)
        try:
            if found is None:
                raise NotLeader(f"{where.topic}/{where.partition}: not hosted on this node")
            found.check_epoch(where.leader_epoch)
            if where.topic_id not in (None, found.topic_id) and not found.gate.has_open(
                found.log.producers, order.producer_id
            ):
                # The topic that it wrote to is gone. A marker here would make the producer known,
                # and its next batch, which goes on counting, be out of order.
                found.check_serving()
                found.gate.void(order.producer_id)
                return None
            found.end_transaction(
                MarkerOrder(
                    order.producer_id,
                    order.producer_epoch,
                    order.serial,
                    order.commits,
                    order.coordinator_epoch,
                ),
                timeout_s=order.timeout_ms / 1000,
                done=answer.deliver,
            )
        except PacelineError as error:
            answer.deliver(bare(error))
        return answer

    async def _on_markers(self, session: Session, frame: Frame) -> tuple[Message, Payload]:
        self._env.host.buggify("transaction.marker-received")
        return await self._write_markers(wire.WriteMarkers.unpack(frame.body)), b""

    # --- offsets ----------------------------------------------------------------------------------

    async def settle_offsets(self, order: wire.SettleOffsets) -> None:
        """Have the group's coordinator commit or drop the transaction's offsets. Raises any
        PacelineError; it may be repeated."""
        node = self._group_coordinator(GroupKey.named(order.group))
        if node == self._node_id:
            await self._settle(order)
        else:
            await self._ask_group(node, PeerApi.SETTLE_OFFSETS, order.group, order)

    async def stage_offsets(self, order: wire.StageOffsets) -> None:
        """Have the group's coordinator keep the transaction's offsets pending. Raises any
        PacelineError; it may be repeated. GroupNotFound, UnknownMember, IllegalGeneration,
        PartitionNotOwned: the member may not commit them; else as :meth:`pend`."""
        node = self._group_coordinator(GroupKey.named(order.group))
        if node == self._node_id:
            await self._stage(order)
        else:
            await self._ask_group(node, PeerApi.STAGE_OFFSETS, order.group, order)

    async def pend(
        self,
        key: TransactionKey,
        who: ProducerIdentity,
        group: GroupKey,
        commits: Sequence[Commit],
        *,
        adds: bool,
        check: Callable[[GroupEngine], None],
        client: str = UNKNOWN,
        commit_s: float = _COMMIT_S,
    ) -> None:
        """Keep ``commits`` pending in a group that this node coordinates. ``check`` is asked before
        and after the transaction's coordinator. Raises what it raises, and as :meth:`verify`;
        InvalidTransactionState when the transaction was ended meanwhile."""
        number = self._group_partition(group)

        def begin(engine: GroupEngine) -> Ticket:
            check(engine)
            return engine.transactional.ticket(group, who.producer_id)

        ticket = await self.groups.perform(number, group, begin, commit_s=commit_s)
        try:
            member = group.name
            verified = await self.verify(key, who, member, adds=adds)

            def stage(piece: list[Commit], engine: GroupEngine) -> None:
                check(engine)
                engine.transactional.stage(ticket, who.epoch, verified.serial, piece, client)

            for count, piece in enumerate(pieces(commits)):
                if count:
                    await trio.lowlevel.checkpoint()
                await self.groups.perform(number, group, partial(stage, piece), commit_s=commit_s)
        finally:
            ticket.is_valid = False

    def _group_partition(self, key: GroupKey) -> int:
        topic = self._store.image.find_topic(GROUPS_TOPIC)
        if topic is None:
            raise CoordinatorNotAvailable(f"{GROUPS_TOPIC} is not known here yet")
        return partition_of(key, len(topic.partitions))

    def _group_coordinator(self, key: GroupKey) -> NodeId:
        number = self._group_partition(key)
        leader: NodeId = self._store.image.partition(GROUPS_TOPIC, number).leader
        if leader < 0:
            raise CoordinatorNotAvailable(f"{GROUPS_TOPIC}/{number} has no leader")
        return leader

    async def _ask_group(
        self, node: NodeId, api: PeerApi, group: GroupName, order: Message
    ) -> None:
        number = self._group_partition(GroupKey.named(group))
        led = _led_by(node, PartitionName(GROUPS_TOPIC, number))
        await self._ask(node, api, order, timeout_s=_COMMIT_S, leads=led)

    async def _settle(self, order: wire.SettleOffsets) -> None:
        key = GroupKey.named(order.group)
        held = _commits(order.offsets)
        is_last = False
        while not is_last:
            is_last = await self.groups.perform(
                self._group_partition(key),
                key,
                lambda engine: engine.transactional.settle(
                    key, order.producer_id, order.serial, held, commits=order.commits
                ),
                commit_s=_COMMIT_S,
            )

    async def _on_settle(self, session: Session, frame: Frame) -> tuple[Message, Payload]:
        await self._settle(wire.SettleOffsets.unpack(frame.body))
        return wire.OffsetsSettled(), b""

    async def _stage(self, order: wire.StageOffsets) -> None:
        key = GroupKey.named(order.group)
        topic = self._store.image.find_topic(key.subject)
        count = 0 if topic is None else len(topic.partitions)
        member = CursusMember(key.group, key.subject, order.member, order.generation, count)
        partitions = [each.partition for each in order.offsets]
        await self.pend(
            TransactionKey(Family(order.family), order.name),
            ProducerIdentity(order.producer_id, order.producer_epoch),
            key,
            _commits(order.offsets),
            adds=True,
            check=lambda engine: engine.cursus.check_owner(member, partitions),
        )

    async def _on_stage(self, session: Session, frame: Frame) -> tuple[Message, Payload]:
        await self._stage(wire.StageOffsets.unpack(frame.body))
        return wire.OffsetsStaged(), b""

    # --- staged records ---------------------------------------------------------------------------

    async def append_staged(
        self, node: NodeId, order: wire.AppendStaged, batches: bytearray
    ) -> None:
        """Have ``node`` append a committed transaction's batches. Raises any PacelineError; it may
        be repeated, and DuplicateSequence says that it was stored long ago."""
        if node == self._node_id:
            await self._append_staged(order, batches)
        else:
            await self._ask(
                node,
                PeerApi.APPEND_STAGED,
                order,
                batches,
                timeout_s=order.timeout_ms / 1000,
                leads=_led_by(node, PartitionName(order.topic, order.partition)),
            )

    async def _append_staged(self, order: wire.AppendStaged, batches: bytearray) -> None:
        found = self._table.get(order.topic, order.partition)
        if found is None:
            raise NotLeader(f"{order.topic}/{order.partition}: not hosted on this node")
        found.check_epoch(order.leader_epoch)
        if order.topic_id not in (None, found.topic_id):
            raise NotLeader(f"{order.topic}/{order.partition}: another topic has the name now")
        headers = [header for _, header in iter_batches(batches)]
        producer_id, stored = headers[0].producer_id, 0
        if order.began_ms >= 0:
            stored = await self._forgotten.check(found, headers[0], order.began_ms)
        if stored:
            found.fence.stored(producer_id)
        # The coordinator itself asks: nobody else has to confirm the transaction.
        ticket = found.gate.ticket(producer_id, headers[0].producer_epoch, begins_at=stored)
        ticket.confirm(order.coordinator_epoch)
        answer: Future[ProduceResult] = Future()
        try:
            found.produce(
                batches,
                headers,
                acks=Acks.ALL,
                timeout_s=order.timeout_ms / 1000,
                done=answer.deliver,
                ticket=ticket,
                client=None,
            )
        finally:
            found.gate.drop(ticket)
        self._env.host.buggify("transaction.staged-received")
        await answer.wait()

    async def _on_append(self, session: Session, frame: Frame) -> tuple[Message, Payload]:
        await self._append_staged(wire.AppendStaged.unpack(frame.body), bytearray(frame.payload))
        return wire.StagedAppended(), b""

    # --- asking -----------------------------------------------------------------------------------

    async def _ask(
        self,
        node: NodeId,
        api: PeerApi,
        body: Message,
        payload: Payload = b"",
        *,
        timeout_s: float,
        leads: Callable[[Image], bool],
    ) -> Frame:
        """Ask ``node``, as long as ``leads`` holds: one that has lost its power or its network
        never answers, and whoever leads instead can be asked once that is known. Raises
        LeaderChangedAfterAppend then (it may have done what it was asked), and as
        :meth:`PeerLinks.call`."""
        with self._store.as_long_as(leads):
            return await self._links.call(
                node, api, body, payload, lane=Lane.TRANSACTIONS, timeout_s=timeout_s + _GRACE_S
            )
        raise LeaderChangedAfterAppend(f"node {node} leads no more, and has not answered")


def _led_by(node: NodeId, *partitions: PartitionName) -> Callable[[Image], bool]:
    """Whether an image has ``node`` as the leader of all ``partitions``."""

    def is_led(image: Image) -> bool:
        for each in partitions:
            topic = image.find_topic(each.topic)
            found = None if topic is None else topic.partitions.get(each.partition)
            if found is None or found.leader != node:
                return False
        return True

    return is_led


def topics_of(image: Image, names: Iterable[str]) -> list[KnownTopic]:
    """Which topics these names mean, but for those that are no more."""
    found = {name: image.find_topic(name) for name in names}
    return [KnownTopic(name, topic.topic_id) for name, topic in found.items() if topic is not None]


def _written_to(request: wire.VerifyTransaction, image: Image) -> list[KnownTopic]:
    """Which topic a partition's leader would write to; one that does not say is an older version,
    which goes by the name."""
    if request.topic_id is None:
        return topics_of(image, [request.topic])
    return [KnownTopic(request.topic, request.topic_id)]


def _commits(offsets: Iterable[wire.SettledOffset]) -> list[Commit]:
    return [
        Commit(
            each.topic, each.partition, each.offset, metadata=each.metadata, topic_id=each.topic_id
        )
        for each in offsets
    ]


def _asked(open_here: OpenHere) -> wire.OpenTransaction:
    producer_id, where = open_here
    if isinstance(where, GroupName):
        return wire.OpenTransaction(producer_id, "", -1, where)
    return wire.OpenTransaction(producer_id, where.topic, where.partition, None)


def _where(asked: wire.OpenTransaction) -> PartitionName | GroupName:
    if asked.group is None:
        return PartitionName(asked.topic, asked.partition)
    return asked.group
