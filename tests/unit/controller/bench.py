"""A controller without quorum or clock: requests go to the pure handlers, records to the image."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from paceline.types import BrokerEpoch, LeaderEpoch, NodeId, PartitionEpoch, TopicId
from paceline.wire.message import Message
from paceline.wire.native.admin import CreateTopic
from paceline.wire.peer.control import (
    Address,
    AlterPartitionRequest,
    AlterPartitionResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    IsrMember,
    PartitionProposal,
    PartitionRef,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)
from paceline_node.controller import elections, internal_topics, request_handlers
from paceline_node.controller.context import (
    Context,
    ControllerSettings,
    Draft,
    Outcome,
    Position,
)
from paceline_node.controller.image import Image
from paceline_node.controller.liveness import Sessions
from paceline_node.controller.metadata_records import (
    FEATURE_LEVEL,
    PartitionRegistration,
    Record,
    decode_record,
    encode_record,
)

CLUSTER = UUID(int=1)
TERM = 7


def uuid_of(*numbers: int) -> UUID:
    return UUID(int=sum(number << (32 * place) for place, number in enumerate(numbers, 1)))


@dataclass
class Disk:
    """What a node's data directory remembers between starts."""

    directory_id: UUID
    boot_seq: int = 0
    epoch: int = -1


@dataclass
class Bench:
    """Holds the image and the sessions; ``ask`` applies what a request decides."""

    settings: ControllerSettings = field(default_factory=ControllerSettings)
    now: float = 100.0
    wall_ms: int = 1_700_000_000_000
    expected_brokers: int = 1

    def __post_init__(self) -> None:
        self.image = Image.bootstrap(CLUSTER)
        self.sessions = Sessions(self.settings.session_timeout_s)
        self.disks: dict[int, Disk] = {}
        self.entries: list[tuple[Record, ...]] = []
        self._ids = 1000

    def new_id(self) -> UUID:
        self._ids += 1
        return UUID(int=self._ids)

    def context(self) -> Context:
        return Context(
            image=self.image,
            now=self.now,
            wall_ms=self.wall_ms,
            settings=self.settings,
            sessions=self.sessions,
            new_id=self.new_id,
            expected_brokers=self.expected_brokers,
        )

    def ask(self, request: Message, sender: NodeId | None = None) -> Message:
        outcome = request_handlers.handle(sender, request, self.context())
        self.commit(outcome.records)
        return outcome.reply(Position(self.image.offset, TERM))

    def commit(self, records: tuple[Record, ...]) -> None:
        """Apply an entry as it comes back from the log."""
        if records:
            decoded = tuple(decode_record(encode_record(record)) for record in records)
            assert decoded == records
            self.entries.append(decoded)
            self.image = self.image.apply(self.image.offset + 1, decoded)

    def draft(self) -> Draft:
        return Draft(self.image)

    def upkeep(self) -> Outcome | None:
        """One step of the internal topics' upkeep."""
        outcome = internal_topics.upkeep(self.context())
        if outcome is not None:
            self.commit(outcome.records)
        return outcome

    # --- brokers ---------------------------------------------------------------------------

    def registration(
        self,
        node: int,
        *,
        trusted: bool = True,
        rack: str = "",
        damaged: tuple[PartitionRef, ...] = (),
    ) -> RegisterBrokerRequest:
        """The request of a new process on the node's disk."""
        disk = self.disks.setdefault(node, Disk(uuid_of(node, 1)))
        disk.boot_seq += 1
        return RegisterBrokerRequest(
            cluster_id=CLUSTER,
            node_id=NodeId(node),
            directory_id=disk.directory_id,
            incarnation_id=self.new_id(),
            boot_seq=disk.boot_seq,
            prev_epoch=BrokerEpoch(disk.epoch),
            trusted=trusted,
            damaged=damaged,
            endpoints=(Address("v1", f"host-{node}", 9092 + node),),
            feature_min=FEATURE_LEVEL,
            feature_max=FEATURE_LEVEL,
            rack=rack,
        )

    def register(self, node: int, *, trusted: bool = True, rack: str = "") -> int:
        """Start a process on the node's disk and let it write down its epoch."""
        reply = self.ask(self.registration(node, trusted=trusted, rack=rack))
        assert isinstance(reply, RegisterBrokerResponse)
        self.disks[node].epoch = reply.broker_epoch
        return reply.broker_epoch

    def wipe(self, node: int) -> None:
        """Give the node a new, empty disk."""
        old = self.disks[node].directory_id
        self.disks[node] = Disk(UUID(int=old.int + 1))

    def heartbeat(
        self,
        node: int,
        *,
        want_fence: bool = False,
        want_shutdown: bool = False,
        offline: bool = False,
        degraded: bool = False,
        image_offset: int | None = None,
        durable_offset: int = -1,
    ) -> HeartbeatResponse:
        # A process heartbeats only once it has written down its epoch.
        epoch = self.image.brokers[NodeId(node)].broker_epoch
        self.disks[node].epoch = epoch
        request = HeartbeatRequest(
            NodeId(node),
            epoch,
            self.image.offset if image_offset is None else image_offset,
            want_fence=want_fence,
            want_shutdown=want_shutdown,
            offline=offline,
            degraded=degraded,
            durable_offset=durable_offset,
        )
        reply = self.ask(request, NodeId(node))
        assert isinstance(reply, HeartbeatResponse)
        return reply

    def start(self, *nodes: int) -> None:
        """Register and unfence ``nodes``."""
        for node in nodes:
            self.register(node)
            self.heartbeat(node)

    def fence(self, node: int) -> None:
        """The node's session ends."""
        draft = self.draft()
        elections.fence(draft, NodeId(node))
        self.sessions.end(NodeId(node))
        self.commit(tuple(draft.records))

    # --- topics ----------------------------------------------------------------------------

    def create(
        self, name: str = "orders", partitions: int = 1, factor: int = 3, **more: object
    ) -> TopicId:
        request = CreateTopic(name, partitions, factor, **more)  # type: ignore[arg-type]
        self.ask(request)
        return self.image.topic(name).topic_id

    def partition(self, number: int = 0, name: str = "orders") -> PartitionRegistration:
        return self.image.partition(name, number)

    def propose(
        self, isr: tuple[int, ...], number: int = 0, name: str = "orders", **stale: int
    ) -> int:
        """The leader proposes an ISR; the error code. ``stale`` overrides epochs."""
        partition = self.partition(number, name)
        request = self.proposal(partition, isr, **stale)
        reply = self.ask(request)
        assert isinstance(reply, AlterPartitionResponse)
        return reply.results[0].error

    def proposal(
        self,
        partition: PartitionRegistration,
        isr: tuple[int, ...],
        *,
        sender: int | None = None,
        broker_epoch: int | None = None,
        leader_epoch: int | None = None,
        partition_epoch: int | None = None,
        member_epoch: int | None = None,
    ) -> AlterPartitionRequest:
        node = NodeId(partition.leader if sender is None else sender)
        members = []
        for member in isr:
            epoch = -1
            if member not in partition.isr:
                broker = self.image.brokers.get(NodeId(member))
                epoch = 0 if broker is None else broker.broker_epoch
                epoch = epoch if member_epoch is None else member_epoch
            members.append(IsrMember(NodeId(member), BrokerEpoch(epoch)))
        known = self.image.brokers.get(node)
        epoch = 0 if known is None else known.broker_epoch
        return AlterPartitionRequest(
            node,
            BrokerEpoch(epoch if broker_epoch is None else broker_epoch),
            (
                PartitionProposal(
                    partition.topic_id,
                    partition.partition,
                    LeaderEpoch(partition.leader_epoch if leader_epoch is None else leader_epoch),
                    PartitionEpoch(
                        partition.partition_epoch if partition_epoch is None else partition_epoch
                    ),
                    tuple(members),
                ),
            ),
        )
