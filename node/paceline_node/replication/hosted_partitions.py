"""All partitions this node hosts, kept in step with the metadata image (DESIGN 3.1).

On every image the table compares, for the topics that changed, what the image says with what is
hosted: partitions get their registration there and then, synchronously; logs that must be made or
given up are queued for one worker task. Until the image holds this process's own registration the
gate stays shut and nothing happens at all (I21).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import field, replace

import structlog
import trio

from paceline.types import BrokerEpoch, TopicId
from paceline.values import dataclass
from paceline.wire.peer.control import PartitionRef
from paceline_node.controller.image import Image, TopicImage, changed_topics
from paceline_node.controller.metadata_records import PartitionRegistration
from paceline_node.controller.metadata_store import MetadataStore
from paceline_node.env import is_full
from paceline_node.loop_turns import AT_A_TIME, pause_after
from paceline_node.replication.configured_logs import log_settings
from paceline_node.replication.disk_health import Health
from paceline_node.replication.log_directory import LogDirectory, OpenedLogs
from paceline_node.replication.partition import (
    Partition,
    PartitionContext,
    PartitionKey,
)
from paceline_node.replication.registration_gate import RegistrationGate
from paceline_node.replication.replica import Transition
from paceline_node.settings import tree
from paceline_node.settings.flush_mode import FlushMode, weakest
from paceline_node.settings.topic_config import TopicConfig
from paceline_node.storage.flusher import Flusher
from paceline_node.storage.log import Log
from paceline_node.storage.log_settings import LogSettings
from paceline_node.storage.partition_file import PartitionIdentity

_PARALLEL_CREATES = 8
_FEW = AT_A_TIME
"""Partitions of a topic that are configured at once."""
_ROOM_RETRY_S = 1.0
_NEW_LOGS = "new logs"


@dataclass(frozen=True, slots=True)
class HostingSettings:
    """``topic_defaults``: this node's values for topic configuration keys a topic does not set.
    ``simulated_slots``: whether a lone node lets clients simulate vacant slots (DESIGN 8)."""

    topic_defaults: Mapping[str, str] = field(default_factory=dict)
    index_interval_bytes: int = tree.LogSettings().index_interval_bytes
    simulated_slots: bool = True


@dataclass(slots=True)
class _Work:
    """What the worker has to do: logs to make, logs to give up (True: the topic was deleted),
    partitions to give up (with their topics, True), and whether there are some without their
    topics' newest configurations. Much of it could be done at once, but of thousands in turns."""

    create: dict[PartitionKey, None] = field(default_factory=dict)
    retire: list[tuple[Log, bool]] = field(default_factory=list)
    give_up: list[tuple[Partition, bool]] = field(default_factory=list)
    floor: FlushMode | None = None
    configure: bool = False

    def __bool__(self) -> bool:
        return bool(self.create or self.retire or self.give_up or self.floor or self.configure)


class HostedPartitions:
    """Finds partitions by name and by id. Owns their logs.

    ``role_changed``, ``registered`` (another registration, in the same role maybe) and ``released``
    tell those who fetch and repair. ``lower_floor`` records
    durably that records are acknowledged in a weaker flush mode from now on, before that mode takes
    effect (storage/DESIGN 2.2).
    """

    def __init__(
        self,
        context: PartitionContext[Partition],
        store: MetadataStore,
        directory: LogDirectory,
        flusher: Flusher,
        health: Health,
        settings: HostingSettings,
        *,
        role_changed: Callable[[Partition], None],
        registered: Callable[[Partition], None],
        released: Callable[[PartitionKey], None],
        lower_floor: Callable[[FlushMode], Awaitable[None]],
    ) -> None:
        self._context = context
        self._store = store
        self._directory = directory
        self._flusher = flusher
        self._health = health
        self._settings = settings
        self._role_changed = role_changed
        self._registered = registered
        self._released = released
        self._lower_floor = lower_floor
        self._gate = RegistrationGate()
        self._floor = FlushMode.GROUP
        self._partitions: dict[PartitionKey, Partition] = {}
        self._by_name: dict[tuple[str, int], Partition] = {}
        self._in_order: tuple[Partition, ...] | None = None
        self._config_read: tuple[Mapping[str, str], TopicConfig] | None = None
        self._high_watermarks: Mapping[PartitionKey, int] = {}
        self._unclaimed: dict[PartitionKey, Log] = {}
        self.lost_ends: Mapping[PartitionKey, int] = {}
        """How far logs that this process did not find, or found too short, are known to have
        reached."""
        self._image: Image | None = None
        self._work = _Work()
        self._no_room: dict[PartitionKey, None] = {}
        self._worker = trio.lowlevel.ParkingLot()
        self._log = structlog.get_logger(component="partitions", node=context.node_id)

    # --- looking up ------------------------------------------------------------------------------

    def get(self, topic: str, partition: int) -> Partition | None:
        """The hosted partition of that name; None when it is not (yet) hosted here."""
        return self._by_name.get((topic, partition))

    def find(self, key: PartitionKey) -> Partition | None:
        """The hosted partition of that topic id and number."""
        return self._partitions.get(key)

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """All hosted partitions, by topic name and number."""
        if self._in_order is None:
            self._in_order = tuple(partition for _, partition in sorted(self._by_name.items()))
        return self._in_order

    def assigned(self, image: Image) -> list[PartitionKey]:
        """All partitions of which ``image`` gives this node a replica."""
        return [
            (topic_id, number)
            for topic_id, topic in image.topics.items()
            for number, registration in topic.partitions.items()
            if self._context.node_id in registration.replicas
        ]

    def is_elsewhere(self, key: PartitionKey) -> bool:
        """Whether metadata says that what this node once kept of a partition is of no use any
        more: it is assigned to others, or was made anew here and is complete. Before that it may
        be all that is left."""
        hosted = self._partitions.get(key)
        if hosted is not None:
            return self._context.node_id in hosted.isr
        topic = None if self._image is None else self._image.topics.get(key[0])
        registration = None if topic is None else topic.partitions.get(key[1])
        return registration is not None and self._context.node_id not in registration.replicas

    def __len__(self) -> int:
        return len(self._partitions)

    # --- starting --------------------------------------------------------------------------------

    async def open_logs(
        self, *, clean: bool, disk_failed: bool, same_boot: bool, acked_unsynced: bool
    ) -> OpenedLogs:
        """Open and recover all logs, before this process registers. Raises OSError."""
        opened = await self._directory.open_all(
            clean=clean,
            disk_failed=disk_failed,
            same_boot=same_boot,
            acked_unsynced=acked_unsynced,
            settings=LogSettings(index_interval_bytes=self._settings.index_interval_bytes),
        )
        self._unclaimed = dict(opened.logs)
        self._high_watermarks = opened.high_watermarks
        self.lost_ends = opened.lost_ends
        return opened

    def weakest_flush_mode(self) -> FlushMode:
        """The weakest flush mode of any topic in the image that this node hosts: the floor to
        write down at registration (storage/DESIGN 2.3)."""
        image = self._store.image
        modes = [
            TopicConfig.of(topic.configs, self._settings.topic_defaults).flush_mode
            for topic in image.topics.values()
            if any(self._context.node_id in p.replicas for p in topic.partitions.values())
        ]
        return weakest(FlushMode.GROUP, *modes)

    def registered(self, broker_epoch: BrokerEpoch, floor: FlushMode) -> None:
        """This process was accepted; ``floor`` was written to the incarnation file. Roles are
        taken once the image reaches ``broker_epoch``."""
        self._floor = floor
        self._gate.registered(broker_epoch)
        self._on_image(self._store.image, self._store.image)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow the image; runs until cancelled. Raises OSError when the disk fails."""
        unsubscribe = self._store.subscribe(self._on_image)
        try:
            self._on_image(self._store.image, self._store.image)
            task_status.started()
            while True:
                if not self._work:
                    await self._worker.park()
                work, self._work = self._work, _Work()
                await self._do(work)
                await self._await_room()
        finally:
            unsubscribe()

    async def close(self) -> None:
        """Tell everyone who waits, flush and close all logs, write the last checkpoints. Raises
        OSError: then the stop was not clean."""
        watermarks = {p.log: p.high_watermark for p in self._partitions.values()}
        for partition in list(self._partitions.values()):
            self._release(partition)
        for log in watermarks:
            self._flusher.request(log)
        logs = (*watermarks, *self._unclaimed.values())
        try:
            await self._directory.write_checkpoints(watermarks)
            for log in logs:
                await log.close()
            await self._directory.close()
        finally:
            for log in logs:
                log.abandon()
            self._directory.marks.close()

    # --- the image -------------------------------------------------------------------------------

    def _on_image(self, old: Image, new: Image) -> None:
        if not self._gate.admits(new.offset):
            return
        before = self._image
        self._image = new
        if before is None:
            topics: Iterable[TopicId] = (*new.topics, *self._unclaimed_topics(new))
        else:
            topics = changed_topics(before, new)
        for topic_id in topics:
            self._reconcile(topic_id, before, new)
        if before is None or before.brokers is not new.brokers:
            self._apply_brokers(new)

    def _unclaimed_topics(self, image: Image) -> list[TopicId]:
        found = dict.fromkeys(key[0] for key in self._unclaimed)
        return [topic_id for topic_id in found if topic_id not in image.topics]

    def _apply_brokers(self, image: Image) -> None:
        """Who is alive decides who may join an ISR; how many there are, whether slots may be
        simulated."""
        lone = len(image.brokers) == 1 and self._settings.simulated_slots
        ended = self._context.simulate and not lone
        self._context.simulate = lone
        for partition in self._partitions.values():
            registration = partition.registration
            if registration is not None:
                partition.replica.apply(registration, image.brokers, self._context.env.now())
            if ended:
                partition.simulation.clear()

    def _reconcile(self, topic_id: TopicId, before: Image | None, image: Image) -> None:
        topic = image.topics.get(topic_id)
        if topic is None:
            # Only a topic that was there and is gone was deleted; one never heard of stays.
            self._drop_topic(topic_id, deleted=before is not None)
            return
        known = None if before is None else before.topics.get(topic_id)
        config = self._config(topic)
        for registration in _changed(known, topic):
            self._settle((topic_id, registration.partition), topic, config, registration, image)
        if known is not None and known.configs != topic.configs and len(topic.partitions) > _FEW:
            self._work.configure = True
            self._worker.unpark()
        if known is None or known.retired is not topic.retired:
            for number in topic.retired:
                self._drop_retired((topic_id, number))

    def _settle(
        self,
        key: PartitionKey,
        topic: TopicImage,
        config: TopicConfig,
        registration: PartitionRegistration,
        image: Image,
    ) -> None:
        """Bring one partition to what the image says of it."""
        partition = self._partitions.get(key)
        if partition is not None:
            self._update(partition, registration, config, image)
        elif self._context.node_id not in registration.replicas:
            self._work.create.pop(key, None)
            self._drop_unclaimed(key)
        elif key in self._unclaimed and len(self._unclaimed) <= _FEW:
            self._host(topic, self._unclaimed.pop(key), config, registration, image)
        else:
            self._work.create[key] = None
            self._worker.unpark()

    def _drop_retired(self, key: PartitionKey) -> None:
        """A segment was deleted while its topic goes on."""
        self._work.create.pop(key, None)
        partition = self._partitions.get(key)
        if partition is not None:
            self._remove(partition, deleted=True)
        log = self._unclaimed.pop(key, None)
        if log is not None:
            self._work.retire.append((log, True))
            self._worker.unpark()

    def _update(
        self,
        partition: Partition,
        registration: PartitionRegistration,
        config: TopicConfig,
        image: Image,
    ) -> None:
        if self._context.node_id not in registration.replicas:
            self._remove(partition, deleted=False)
            return
        if config != partition.config:
            self._configure(partition, config)
        self._apply(partition, registration, image)

    def _apply(
        self, partition: Partition, registration: PartitionRegistration, image: Image
    ) -> None:
        before = partition.registration
        change = partition.apply(registration, image.brokers)
        if change not in (Transition.NOTHING, Transition.ADOPTED):
            self._role_changed(partition)
        if before is not registration:
            self._registered(partition)
        if change in (Transition.NOTHING, Transition.ADOPTED):
            return
        self._log.info(
            "role changed",
            partition=str(partition),
            role=partition.role.value,
            leader=partition.leader,
            leader_epoch=partition.leader_epoch,
            isr=list(partition.isr),
            log_end_offset=partition.log_end_offset,
            high_watermark=partition.high_watermark,
        )

    # --- hosting ---------------------------------------------------------------------------------

    def _host(
        self,
        topic: TopicImage,
        log: Log,
        config: TopicConfig,
        registration: PartitionRegistration,
        image: Image,
    ) -> Partition:
        key = (topic.topic_id, registration.partition)
        log.settings = self._log_settings(config)
        # What was lost the controller has heard of, at the registration.
        log.mark.lower(log.marked)
        partition = Partition(
            self._context,
            topic.name,
            log,
            self._admitted(config),
            high_watermark=self._high_watermarks.get(key, 0),
        )
        self._partitions[key] = partition
        self._by_name[topic.name, registration.partition] = partition
        self._in_order = None
        self._flusher.register(log, lambda _: partition.on_durable())
        self._apply(partition, registration, image)
        return partition

    def _config(self, topic: TopicImage) -> TopicConfig:
        """A topic's configuration; that of one topic after the other is read once."""
        read = self._config_read
        if read is None or read[0] is not topic.configs:
            config = TopicConfig.of(topic.configs, self._settings.topic_defaults)
            read = self._config_read = (topic.configs, config)
        return read[1]

    def _log_settings(self, config: TopicConfig) -> LogSettings:
        return log_settings(config, index_interval_bytes=self._settings.index_interval_bytes)

    def _configure(self, partition: Partition, config: TopicConfig) -> None:
        partition.log.settings = self._log_settings(config)
        partition.configure(self._admitted(config))

    def _admitted(self, config: TopicConfig) -> TopicConfig:
        """``config``, with mode ``group`` until the floor for a weaker mode is on disk."""
        mode = config.flush_mode
        if mode.weakness <= self._floor.weakness:
            return config
        wanted = self._work.floor
        if wanted is None or mode.weakness > wanted.weakness:
            self._work.floor = mode
            self._worker.unpark()
        return replace(config, flush_mode=FlushMode.GROUP)

    def _remove(self, partition: Partition, *, deleted: bool) -> None:
        self._release(partition)
        self._work.retire.append((partition.log, deleted))
        self._worker.unpark()
        self._log.info("partition given up", partition=str(partition), deleted=deleted)

    def _release(self, partition: Partition) -> None:
        self._released(partition.key)
        self._flusher.unregister(partition.log)
        del self._partitions[partition.key]
        if self._by_name.get((partition.topic, partition.partition)) is partition:
            del self._by_name[partition.topic, partition.partition]
        self._in_order = None
        partition.close()

    def _drop_topic(self, topic_id: TopicId, *, deleted: bool) -> None:
        for key in [key for key in self._work.create if key[0] == topic_id]:
            del self._work.create[key]
        hosted = [p for p in self._partitions.values() if p.topic_id == topic_id]
        if len(hosted) > _FEW:
            self._work.give_up.extend((partition, deleted) for partition in hosted)
            self._worker.unpark()
        else:
            for partition in hosted:
                self._remove(partition, deleted=deleted)
        if deleted:
            for key in [key for key in self._unclaimed if key[0] == topic_id]:
                self._work.retire.append((self._unclaimed.pop(key), True))
                self._worker.unpark()

    def _drop_unclaimed(self, key: PartitionKey) -> None:
        log = self._unclaimed.pop(key, None)
        if log is not None:
            self._work.retire.append((log, False))
            self._worker.unpark()

    # --- the worker ------------------------------------------------------------------------------

    async def _do(self, work: _Work) -> None:
        if work.floor is not None:
            await self._lower_floor(work.floor)
            self._floor = weakest(self._floor, work.floor)
        if work.floor is not None or work.configure:
            await self._reconfigure()
        for seen, (partition, deleted) in enumerate(work.give_up, 1):
            await pause_after(seen)
            if self._partitions.get(partition.key) is partition:
                self._remove(partition, deleted=deleted)
        for delete in (True, False):
            logs = [log for log, deleted in work.retire if deleted is delete]
            if logs:
                await self._directory.retire(logs, delete=delete)
        # Each group shares one writing of the list of logs, which grows with their number.
        slots = trio.CapacityLimiter(max(_PARALLEL_CREATES, len(work.create) // 64))
        async with trio.open_nursery() as nursery:
            for key in work.create:
                nursery.start_soon(self._create, key, slots)

    async def _await_room(self) -> None:
        """Queue again, after a pause, the logs that found no room; a deletion ends the pause."""
        self._health.lacks_room(_NEW_LOGS, bool(self._no_room))
        if self._no_room:
            with trio.move_on_after(_ROOM_RETRY_S):
                if not self._work:
                    await self._worker.park()
            self._work.create.update(self._no_room)
            self._no_room.clear()

    async def _reconfigure(self) -> None:
        """Bring every partition to its topic's configuration, whatever that is by then."""
        for seen, partition in enumerate(tuple(self._partitions.values()), 1):
            await pause_after(seen)
            image = self._image
            topic = None if image is None else image.topics.get(partition.topic_id)
            if topic is None or partition.key not in self._partitions:
                continue  # given up meanwhile
            config = self._config(topic)
            if config != partition.config:
                self._configure(partition, config)

    async def _create(self, key: PartitionKey, slots: trio.CapacityLimiter) -> None:
        async with slots:
            assigned = self._assigned(key)
            if assigned is None:
                return
            topic, _ = assigned
            log = self._unclaimed.pop(key, None) or await self._new_log(key, topic)
            if log is None:
                return
        # The image may have moved on meanwhile.
        assigned = self._assigned(key)
        if assigned is None:
            assert self._image is not None
            found = self._image.topics.get(key[0])
            deleted = found is None or key[1] in found.retired
            self._work.retire.append((log, deleted))
            return
        topic, registration = assigned
        assert self._image is not None
        config = self._config(topic)
        self._host(topic, log, config, registration, self._image)

    async def _new_log(self, key: PartitionKey, topic: TopicImage) -> Log | None:
        identity = PartitionIdentity(key[0], topic.name, key[1])
        try:
            return await self._directory.create(identity, self._log_settings(self._config(topic)))
        except OSError as error:
            if not is_full(error):
                raise
            self._log.warning("no room for a new log", partition=str(identity))
            self._no_room[key] = None
            return None

    def _assigned(self, key: PartitionKey) -> tuple[TopicImage, PartitionRegistration] | None:
        """The topic and registration of a partition that is this node's and not hosted yet."""
        image = self._image
        topic = None if image is None else image.topics.get(key[0])
        registration = None if topic is None else topic.partitions.get(key[1])
        if topic is None or registration is None or key in self._partitions:
            return None
        if self._context.node_id not in registration.replicas:
            return None
        return topic, registration


def _changed(known: TopicImage | None, topic: TopicImage) -> Iterable[PartitionRegistration]:
    """The registrations that a new image of a topic brings: an image shares what did not change.
    A configuration concerns all of them, which is left for later where they are many."""
    if known is None or (known.configs != topic.configs and len(topic.partitions) <= _FEW):
        return topic.partitions.values()
    before = known.partitions
    if before is topic.partitions:
        return ()
    return [each for number, each in topic.partitions.items() if before.get(number) is not each]


def refs(keys: Iterable[PartitionKey]) -> tuple[PartitionRef, ...]:
    """Partitions as registration and damage reports name them."""
    return tuple(PartitionRef(topic_id, number) for topic_id, number in keys)
