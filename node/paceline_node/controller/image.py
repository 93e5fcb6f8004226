"""The metadata image: the state that the metadata records describe (DESIGN 1.2, 1.6).

An :class:`Image` is immutable. :meth:`Image.apply` makes the next one and shares what did not
change, so an old and a new image can be compared by identity (:func:`changed_topics`). Applying a
record never fails and depends on nothing but the record, its offset and the image: every node that
applied the same prefix holds an equal image (I20).

What belongs here: state, lookups, snapshots. Decisions about the state lie in the other modules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from uuid import UUID

import msgpack

from paceline.errors import RemoteProtocolError, UnknownTopicOrPartition
from paceline.types import NO_EPOCH, BrokerEpoch, LeaderEpoch, NodeId, TopicId
from paceline.values import dataclass
from paceline.wire.message import Message, unpack_array
from paceline.wire.native.acls import Acl
from paceline_node.controller import durable_offsets, former_epochs
from paceline_node.controller.metadata_records import (
    FEATURE_LEVEL,
    AddAcl,
    BrokerChange,
    Config,
    DurableOffset,
    ExternalBroker,
    FeatureLevel,
    NoOp,
    PartitionRegistration,
    ProducerIds,
    Record,
    RegisterBroker,
    RemoveAcl,
    RemovePartition,
    RemoveTopic,
    RemoveUser,
    Topic,
    UnregisterBroker,
    User,
)
from paceline_node.controller.registered_broker import Broker as Broker
from paceline_node.controller.registered_broker import changed_broker as changed_broker

SNAPSHOT_VERSION = 1
METADATA_FEATURE = "metadata"
_SEGMENT = "segment"


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic and its partitions by number. ``configs`` always holds ``min.insync.replicas``.

    Numbers may have gaps where ``kind`` is ``segment``; ``retired`` are those that had a partition
    once. ``token`` is that of the wish which made the topic, None when it had none.
    ``former_epoch`` is the highest leader epoch of the topics that had its name before, -1 if none
    is known of: its partitions begin above it (DESIGN 9.6).
    """

    topic_id: TopicId
    name: str
    kind: str
    replication_factor: int
    configs: Mapping[str, str]
    partitions: Mapping[int, PartitionRegistration]
    retired: tuple[int, ...] = ()
    token: UUID | None = None
    former_epoch: LeaderEpoch = NO_EPOCH


@dataclass(frozen=True, slots=True)
class _TopicState(Message):
    topic: Topic
    partitions: tuple[PartitionRegistration, ...]
    retired: tuple[int, ...] = ()
    former_epoch: LeaderEpoch = NO_EPOCH


@dataclass(frozen=True, slots=True)
class _RetiredDirectory(Message):
    directory_id: UUID
    node_id: NodeId


@dataclass(frozen=True, slots=True)
class _Snapshot(Message):
    offset: int
    cluster_id: UUID
    features: tuple[FeatureLevel, ...]
    brokers: tuple[Broker, ...]
    retired: tuple[_RetiredDirectory, ...]
    externals: tuple[ExternalBroker, ...]
    configs: dict[str, str]
    next_producer_id: int
    topics: tuple[_TopicState, ...]
    former_epochs: dict[str, LeaderEpoch] = field(default_factory=dict)
    acls: tuple[Acl, ...] = ()
    users: tuple[User, ...] = ()
    durable: tuple[DurableOffset, ...] = ()


_SNAPSHOT_FIELDS = 10
"""Which every snapshot has. Later ones are left out while they are empty: so the snapshots of those
who do not use them are what they were."""


@dataclass(frozen=True, slots=True)
class Image:
    """Cluster state at a metadata offset (the index of the last entry applied).

    ``topic_ids`` maps names to ids. ``retired`` maps directory ids that may never register again
    to the node they belonged to. ``externals`` are V1's broker entries that no node owns.
    ``former_epochs`` holds the highest leader epoch of names whose topics were removed, the name
    that went first first (DESIGN 9.6). ``acls`` are the rules of who may do what (DESIGN 14),
    ``users`` those who may log in (DESIGN 15), by name. ``durable_offsets``: what the process of
    each broker said it holds of the metadata for good (DESIGN 2.8); not all have said so.
    """

    cluster_id: UUID
    offset: int = 0
    brokers: Mapping[NodeId, Broker] = field(default_factory=dict)
    topics: Mapping[TopicId, TopicImage] = field(default_factory=dict)
    topic_ids: Mapping[str, TopicId] = field(default_factory=dict)
    externals: Mapping[NodeId, ExternalBroker] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    retired: Mapping[UUID, NodeId] = field(default_factory=dict)
    next_producer_id: int = 0
    former_epochs: Mapping[str, LeaderEpoch] = field(default_factory=dict)
    acls: frozenset[Acl] = frozenset()
    users: Mapping[str, User] = field(default_factory=dict)
    durable_offsets: Mapping[NodeId, int] = field(default_factory=dict)

    @classmethod
    def bootstrap(cls, cluster_id: UUID, users: Sequence[User] = ()) -> Image:
        """The state every initial voter starts from, as if applied at offset 1 (RAFT 4.5)."""
        return cls(
            cluster_id,
            offset=1,
            features={METADATA_FEATURE: FEATURE_LEVEL},
            users={user.name: user for user in users},
        )

    @property
    def is_guarded(self) -> bool:
        """Whether what nothing allows is refused: once there is any rule, or any user. Before that
        everything is allowed (security/DESIGN 4.2)."""
        return bool(self.acls or self.users)

    # --- lookups ---------------------------------------------------------------------------

    def find_topic(self, name: str) -> TopicImage | None:
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def former_epoch(self, name: str) -> LeaderEpoch:
        """The highest leader epoch of the topics that had ``name``, which no topic has now; -1 when
        none is known of."""
        return self.former_epochs.get(name, NO_EPOCH)

    def topic(self, name: str) -> TopicImage:
        """The topic ``name``. Raises UnknownTopicOrPartition."""
        topic = self.find_topic(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"topic not found: {name}")
        return topic

    def partition(self, name: str, number: int) -> PartitionRegistration:
        """Partition ``number`` of topic ``name``. Raises UnknownTopicOrPartition."""
        partition = self.topic(name).partitions.get(number)
        if partition is None:
            raise UnknownTopicOrPartition(f"partition not found: topic={name} partition={number}")
        return partition

    def find_partition(self, topic_id: TopicId, number: int) -> PartitionRegistration | None:
        topic = self.topics.get(topic_id)
        return None if topic is None else topic.partitions.get(number)

    def partitions(self) -> Iterator[PartitionRegistration]:
        """All partitions, in the order of their topics' creation."""
        for topic in self.topics.values():
            yield from topic.partitions.values()

    def active_brokers(self) -> tuple[Broker, ...]:
        """Brokers that may be in ISRs, by node id."""
        return tuple(b for _, b in sorted(self.brokers.items()) if b.active)

    # --- the next image --------------------------------------------------------------------

    def apply(self, index: int, records: Sequence[Record]) -> Image:
        """The image after the entry at ``index``; ``records`` take effect together."""
        assert index > self.offset, f"metadata entry {index} applied at offset {self.offset}"
        editor = _Editor(self, index)
        for record in records:
            editor.apply(record)
        return editor.image()

    # --- snapshots -------------------------------------------------------------------------

    def to_snapshot(self) -> bytes:
        """The image as msgpack ``[version, state]``."""
        state = _Snapshot(
            offset=self.offset,
            cluster_id=self.cluster_id,
            features=tuple(FeatureLevel(name, level) for name, level in self.features.items()),
            brokers=tuple(self.brokers.values()),
            retired=tuple(_RetiredDirectory(d, node) for d, node in self.retired.items()),
            externals=tuple(self.externals.values()),
            configs=dict(self.configs),
            next_producer_id=self.next_producer_id,
            topics=tuple(_topic_state(topic) for topic in self.topics.values()),
            former_epochs=dict(self.former_epochs),
            acls=tuple(sorted(self.acls, key=Acl.pack)),
            users=tuple(self.users.values()),
            durable=tuple(
                DurableOffset(node, self.brokers[node].broker_epoch, offset)
                for node, offset in sorted(self.durable_offsets.items())
            ),
        )
        values = state.pack()
        while len(values) > _SNAPSHOT_FIELDS and not values[-1]:
            values.pop()
        packed: bytes = msgpack.packb((SNAPSHOT_VERSION, values))
        return packed

    @classmethod
    def from_snapshot(cls, data: bytes | memoryview) -> Image:
        """Inverse of :meth:`to_snapshot`. Raises RemoteProtocolError."""
        values = unpack_array(data)
        if len(values) != 2 or values[0] != SNAPSHOT_VERSION:
            raise RemoteProtocolError("metadata snapshot: expected [1, state]")
        state = _Snapshot.unpack(values[1])
        topics = {s.topic.topic_id: _topic_image(s) for s in state.topics}
        return cls(
            cluster_id=state.cluster_id,
            offset=state.offset,
            brokers={broker.node_id: broker for broker in state.brokers},
            topics=topics,
            topic_ids={topic.name: topic.topic_id for topic in topics.values()},
            externals={external.node_id: external for external in state.externals},
            configs=state.configs,
            features={feature.name: feature.level for feature in state.features},
            retired={entry.directory_id: entry.node_id for entry in state.retired},
            next_producer_id=state.next_producer_id,
            former_epochs=state.former_epochs,
            acls=frozenset(state.acls),
            users={user.name: user for user in state.users},
            durable_offsets={each.node_id: each.offset for each in state.durable},
        )


def _topic_state(topic: TopicImage) -> _TopicState:
    record = Topic(
        topic.topic_id,
        topic.name,
        topic.replication_factor,
        topic.kind,
        dict(topic.configs),
        topic.token,
    )
    partitions = tuple(topic.partitions.values())
    return _TopicState(record, partitions, topic.retired, topic.former_epoch)


def _topic_image(state: _TopicState) -> TopicImage:
    partitions = {partition.partition: partition for partition in state.partitions}
    return _with_topic_record(state.topic, partitions, state.retired, state.former_epoch)


def _with_topic_record(
    record: Topic,
    partitions: Mapping[int, PartitionRegistration],
    retired: tuple[int, ...],
    former_epoch: LeaderEpoch,
) -> TopicImage:
    return TopicImage(
        topic_id=record.topic_id,
        name=record.name,
        kind=record.kind,
        replication_factor=record.replication_factor,
        configs=record.configs,
        partitions=partitions,
        retired=retired,
        token=record.token,
        former_epoch=former_epoch,
    )


def changed_topics(old: Image, new: Image) -> Iterator[TopicId]:
    """Ids of topics created, changed in any way, or (last) removed between two images.

    Costs one identity comparison per topic: applying shares what it does not touch.
    """
    if old.topics is new.topics:
        return
    for topic_id, topic in new.topics.items():
        if old.topics.get(topic_id) is not topic:
            yield topic_id
    for topic_id in old.topics:
        if topic_id not in new.topics:
            yield topic_id


class _Editor:
    """Applies one entry's records; copies each mapping once, when first written."""

    def __init__(self, base: Image, index: int) -> None:
        self._base = base
        self._index = index
        self._brokers: dict[NodeId, Broker] | None = None
        self._topics: dict[TopicId, TopicImage] | None = None
        self._topic_ids: dict[str, TopicId] | None = None
        self._partitions: dict[TopicId, dict[int, PartitionRegistration]] = {}
        self._externals: dict[NodeId, ExternalBroker] | None = None
        self._configs: dict[str, str] | None = None
        self._features: dict[str, int] | None = None
        self._retired: dict[UUID, NodeId] | None = None
        self._next_producer_id = base.next_producer_id
        self._former_epochs = base.former_epochs
        self._acls: set[Acl] | None = None
        self._users = base.users
        self._durable_offsets = base.durable_offsets

    def image(self) -> Image:
        base = self._base
        for topic_id, partitions in self._partitions.items():
            topics = self._editable_topics()
            if topic_id in topics:
                topics[topic_id] = replace(topics[topic_id], partitions=partitions)
        return Image(
            cluster_id=base.cluster_id,
            offset=self._index,
            brokers=base.brokers if self._brokers is None else self._brokers,
            topics=base.topics if self._topics is None else self._topics,
            topic_ids=base.topic_ids if self._topic_ids is None else self._topic_ids,
            externals=base.externals if self._externals is None else self._externals,
            configs=base.configs if self._configs is None else self._configs,
            features=base.features if self._features is None else self._features,
            retired=base.retired if self._retired is None else self._retired,
            next_producer_id=self._next_producer_id,
            former_epochs=self._former_epochs,
            acls=base.acls if self._acls is None else frozenset(self._acls),
            users=self._users,
            durable_offsets=self._durable_offsets,
        )

    def apply(self, record: Record) -> None:
        match record:
            case PartitionRegistration():
                self._editable_partitions(record.topic_id)[record.partition] = record
            case BrokerChange():
                self._change_broker(record)
            case RegisterBroker() | UnregisterBroker():
                self._register_or_not(record)
            case Topic():
                self._put_topic(record)
            case RemoveTopic() | RemovePartition():
                self._remove(record)
            case Config():
                self._configure(record)
            case ProducerIds():
                self._next_producer_id = record.next_producer_id
            case ExternalBroker():
                self._editable_externals()[record.node_id] = record
            case FeatureLevel():
                features = self._base.features if self._features is None else self._features
                self._features = {**features, record.name: record.level}
            case AddAcl() | RemoveAcl() | User() | RemoveUser():
                self._change_access(record)
            case NoOp():
                brokers = self._base.brokers if self._brokers is None else self._brokers
                self._durable_offsets = durable_offsets.with_news(
                    self._durable_offsets, record.durable, brokers
                )
            case _:
                raise AssertionError(f"no rule to apply {type(record).__name__}")

    def _editable_brokers(self) -> dict[NodeId, Broker]:
        if self._brokers is None:
            self._brokers = dict(self._base.brokers)
        return self._brokers

    def _editable_topics(self) -> dict[TopicId, TopicImage]:
        if self._topics is None:
            self._topics = dict(self._base.topics)
        return self._topics

    def _editable_topic_ids(self) -> dict[str, TopicId]:
        if self._topic_ids is None:
            self._topic_ids = dict(self._base.topic_ids)
        return self._topic_ids

    def _editable_partitions(self, topic_id: TopicId) -> dict[int, PartitionRegistration]:
        partitions = self._partitions.get(topic_id)
        if partitions is None:
            partitions = dict(self._editable_topics()[topic_id].partitions)
            self._partitions[topic_id] = partitions
        return partitions

    def _editable_externals(self) -> dict[NodeId, ExternalBroker]:
        if self._externals is None:
            self._externals = dict(self._base.externals)
        return self._externals

    def _externals_now(self) -> Mapping[NodeId, ExternalBroker]:
        return self._base.externals if self._externals is None else self._externals

    def _retire(self, directory_id: UUID, node_id: NodeId) -> None:
        if self._retired is None:
            self._retired = dict(self._base.retired)
        self._retired[directory_id] = node_id

    def _register_or_not(self, record: RegisterBroker | UnregisterBroker) -> None:
        if isinstance(record, RegisterBroker):
            self._register(record)
        else:
            self._unregister(record)

    def _register(self, record: RegisterBroker) -> None:
        brokers = self._editable_brokers()
        known = brokers.get(record.node_id)
        if known is not None and known.directory_id != record.directory_id:
            self._retire(known.directory_id, known.node_id)
        self._editable_externals().pop(record.node_id, None)
        self._durable_offsets = durable_offsets.without(self._durable_offsets, record.node_id)
        brokers[record.node_id] = Broker(
            node_id=record.node_id,
            broker_epoch=BrokerEpoch(self._index),
            incarnation_id=record.incarnation_id,
            boot_seq=record.boot_seq,
            directory_id=record.directory_id,
            prev_epoch=record.prev_epoch,
            trusted=record.trusted,
            activated=False,
            fenced=True,
            in_controlled_shutdown=False,
            degraded=False,
            operator_fenced=known is not None and known.operator_fenced,
            endpoints=record.endpoints,
            rack=record.rack,
            most_partitions=record.most_partitions,
        )

    def _change_broker(self, record: BrokerChange) -> None:
        brokers = self._editable_brokers()
        broker = brokers.get(record.node_id)
        if broker is None or broker.broker_epoch != record.broker_epoch:
            return
        brokers[record.node_id] = changed_broker(broker, record)

    def _unregister(self, record: UnregisterBroker) -> None:
        broker = self._editable_brokers().pop(record.node_id, None)
        if broker is not None:
            self._durable_offsets = durable_offsets.without(self._durable_offsets, record.node_id)
            self._retire(broker.directory_id, broker.node_id)
        elif record.node_id in self._externals_now():
            del self._editable_externals()[record.node_id]

    def _put_topic(self, record: Topic) -> None:
        topics = self._editable_topics()
        known = topics.get(record.topic_id)
        if known is None:
            former = self._former_epochs.get(record.name, NO_EPOCH)
            topics[record.topic_id] = _with_topic_record(record, {}, (), former)
            if former != NO_EPOCH:
                self._former_epochs = former_epochs.without(self._former_epochs, record.name)
        else:
            topics[record.topic_id] = _with_topic_record(
                record, known.partitions, known.retired, known.former_epoch
            )
        self._editable_topic_ids()[record.name] = record.topic_id

    def _remove_topic(self, record: RemoveTopic) -> None:
        topic = self._editable_topics().pop(record.topic_id, None)
        partitions = self._partitions.pop(record.topic_id, None)
        if topic is not None:
            self._editable_topic_ids().pop(topic.name, None)
            reached = _highest_epoch(topic, topic.partitions if partitions is None else partitions)
            if reached != NO_EPOCH:
                self._former_epochs = former_epochs.remembered(
                    self._former_epochs, topic.name, reached
                )

    def _remove(self, record: RemoveTopic | RemovePartition) -> None:
        if isinstance(record, RemoveTopic):
            self._remove_topic(record)
            return
        topics = self._editable_topics()
        topic = topics.get(record.topic_id)
        if topic is not None:
            self._editable_partitions(record.topic_id).pop(record.partition, None)
            retired = tuple(sorted({*topic.retired, record.partition}))
            topics[record.topic_id] = replace(topic, retired=retired)

    def _change_acls(self, record: AddAcl | RemoveAcl) -> None:
        if self._acls is None:
            self._acls = set(self._base.acls)
        change = self._acls.add if isinstance(record, AddAcl) else self._acls.discard
        change(record.acl)

    def _change_access(self, record: AddAcl | RemoveAcl | User | RemoveUser) -> None:
        if isinstance(record, User | RemoveUser):
            self._users = _users_after(self._users, record)
        else:
            self._change_acls(record)

    def _configure(self, record: Config) -> None:
        if record.resource == "cluster":
            configs = self._base.configs if self._configs is None else self._configs
            self._configs = _with_config(configs, record)
            return
        topic_ids = self._base.topic_ids if self._topic_ids is None else self._topic_ids
        topic_id = topic_ids.get(record.name)
        if topic_id is None:
            return
        topics = self._editable_topics()
        topic = topics[topic_id]
        topics[topic_id] = replace(topic, configs=_with_config(topic.configs, record))


def _highest_epoch(
    topic: TopicImage, partitions: Mapping[int, PartitionRegistration]
) -> LeaderEpoch:
    """What is to be remembered of a topic that goes; -1: nothing. Segment topics come and go all
    the time, and nobody goes by their epochs."""
    if topic.kind == _SEGMENT and topic.former_epoch == NO_EPOCH:
        return NO_EPOCH
    return max((topic.former_epoch, *(each.leader_epoch for each in partitions.values())))


def _users_after(users: Mapping[str, User], record: User | RemoveUser) -> Mapping[str, User]:
    if isinstance(record, User):
        return {**users, record.name: record}
    return {name: user for name, user in users.items() if name != record.name}


def _with_config(configs: Mapping[str, str], record: Config) -> dict[str, str]:
    result = dict(configs)
    if record.value is None:
        result.pop(record.key, None)
    else:
        result[record.key] = record.value
    return result
