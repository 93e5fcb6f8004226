"""What /metrics shows of a node's state, asked for at each scrape.

Events are counted where they happen, on the instruments of the node's ``Metrics``; here stands
where the states come from. Changes of in-sync sets are seen in the metadata, like everybody sees
them, rather than in what this node asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from paceline.types import NodeId
from paceline_node.app.metadata import Metadata
from paceline_node.app.peering import Peering
from paceline_node.app.transactions import TransactionMachines
from paceline_node.controller.image import Image, changed_topics
from paceline_node.controller.metadata_records import PartitionRegistration
from paceline_node.env import Disk
from paceline_node.groups.engine import GroupEngine
from paceline_node.groups.keys import Family
from paceline_node.observe.metrics import Gauge, Metrics, PartitionSample, Sample, Total
from paceline_node.observe.watchdog import LoopWatchdog
from paceline_node.peers.link import LinkState
from paceline_node.replication.compaction_schedule import Compactions
from paceline_node.replication.manager import ReplicaManager
from paceline_node.replication.partition import Partition
from paceline_node.state_machines.topic import StateTopic
from paceline_node.transactions.engine import TransactionEngine


def meter_process(metrics: Metrics, disk: Disk, watchdog: LoopWatchdog) -> None:
    """The loop and the disk."""
    metrics.provide(Gauge.LOOP_LAG, watchdog.samples)
    if watchdog.slices is not None:
        metrics.provide(Gauge.LONGEST_SLICE, watchdog.slices.longest)
        metrics.provide(Total.LONG_SLICES, watchdog.slices.too_long)
    metrics.provide(Gauge.DISK_FREE, lambda: _one(disk.free_bytes()))


def meter_metadata(metrics: Metrics, metadata: Metadata) -> None:
    """The quorum and the controller on this node."""
    controller = metadata.controller
    metrics.provide(Gauge.CONTROLLER_IS_LEADER, lambda: _one(controller.active))
    metrics.provide(Gauge.CONTROLLER_TERM, lambda: _one(metadata.quorum.term))
    metrics.provide(Gauge.METADATA_OFFSET, lambda: _one(metadata.image_offset()))
    metrics.provide(
        Gauge.CHANNEL_DEPTH, lambda: _named({"controller_requests": controller.waiting_count})
    )

    def elections() -> Iterator[Sample]:
        for reason, count in controller.statistics.elections.items():
            yield (reason.value,), count

    def fencings() -> Iterator[Sample]:
        statistics = controller.statistics
        yield ("session",), statistics.fenced_by_session
        yield ("process-gone",), statistics.fenced_by_proof

    metrics.provide(Total.LEADER_ELECTIONS, elections)
    metrics.provide(Total.BROKERS_FENCED, fencings)


def meter_peers(metrics: Metrics, peering: Peering) -> None:
    """Links to other nodes, and sessions from them."""
    links, server = peering.links, peering.server

    def up() -> Iterator[Sample]:
        for link in links.states():
            yield (str(link.node), link.lane.value), link.state is LinkState.OPEN

    def queued() -> Iterator[Sample]:
        for link in links.states():
            yield (str(link.node), link.lane.value), link.queued_bytes

    def outboxes() -> Iterable[Sample]:
        waiting = sum(session.queued_bytes for session in server.sessions)
        return _named({"peer_outbox_bytes": waiting})

    metrics.provide(Gauge.PEER_LINK_UP, up)
    metrics.provide(Gauge.PEER_QUEUED, queued)
    metrics.provide(Gauge.CHANNEL_DEPTH, outboxes)
    metrics.provide(Gauge.CONNECTIONS_ACTIVE, lambda: [(("peer",), len(server.sessions))])


def meter_replicas(metrics: Metrics, replicas: ReplicaManager) -> None:
    """The partitions here, and who waits for them."""
    table, flusher = replicas.table, replicas.flusher

    def waiting() -> Iterable[Sample]:
        producers = sum(partition.waiting_count for partition in table.partitions)
        return _named({"flusher_logs": flusher.waiting_count, "waiting_produces": producers})

    def producers() -> Iterable[Sample]:
        led = (partition for partition in table.partitions if partition.is_leader)
        return _one(sum(partition.log.producers.producer_count for partition in led))

    shares = replicas.context.shares
    metrics.provide(Gauge.PRODUCERS, producers)
    metrics.provide(Total.PRODUCERS_EVICTED, lambda: _one(shares.evicted_count))
    metrics.provide(Total.PRODUCERS_REFUSED, lambda: _one(shares.refused_count))
    meter_compaction(metrics, replicas.compactions)
    metrics.provide_partitions(lambda: map(_sample_of, table.partitions))
    metrics.provide(Gauge.CHANNEL_DEPTH, waiting)


def meter_compaction(metrics: Metrics, compactions: Compactions) -> None:
    """What compaction did, and has to do."""
    done = compactions.statistics

    def moved() -> Iterable[Sample]:
        return _named(
            {"read": done.read_bytes, "written": done.written_bytes, "freed": done.freed_bytes}
        )

    metrics.provide(Gauge.DIRTIEST_LOG, lambda: _one(compactions.dirtiest()))
    metrics.provide(Total.COMPACTIONS, lambda: _one(done.rounds))
    metrics.provide(Total.COMPACTION_BYTES, moved)
    metrics.provide(Total.COMPACTED_RECORDS, lambda: _one(done.dropped_records))


def meter_groups(metrics: Metrics, machines: StateTopic[GroupEngine]) -> None:
    """The groups that this node coordinates."""

    def led() -> Iterator[GroupEngine]:
        return (engine for _, _, engine in machines.machines() if engine.leads)

    def groups() -> Iterable[Sample]:
        states = Counter(
            (key.family, engine.policies[key.family].state(key))
            for engine in led()
            for key in engine.store.groups
            if key.family in engine.policies
        )
        return [((family.value, state), count) for (family, state), count in states.items()]

    def members() -> Iterable[Sample]:
        counts = dict.fromkeys(Family, 0)
        for engine in led():
            for key, group in engine.store.groups.items():
                counts[key.family] += len(group.members)
        return [((family.value,), count) for family, count in counts.items()]

    def rebalances() -> Iterable[Sample]:
        counts = Counter[Family]()
        for _, _, engine in machines.machines():
            for family, policy in engine.policies.items():
                counts[family] += policy.rebalances
        return [((family.value,), count) for family, count in counts.items()]

    metrics.provide(Gauge.GROUPS, groups)
    metrics.provide(Gauge.GROUP_MEMBERS, members)
    metrics.provide(Total.GROUP_REBALANCES, rebalances)


def meter_transactions(metrics: Metrics, transactions: TransactionMachines) -> None:
    """The transactions that this node coordinates."""

    def led() -> Iterator[TransactionEngine]:
        return (engine for _, _, engine in transactions.machines.machines() if engine.leads)

    def states() -> Iterable[Sample]:
        return [
            ((family.value, state.name.lower()), count)
            for engine in led()
            for (family, state), count in engine.store.states.items()
            if count
        ]

    def ended() -> Iterable[Sample]:
        return [
            (("commit",), transactions.endings.committed),
            (("abort",), transactions.endings.aborted),
        ]

    metrics.provide(Gauge.TRANSACTIONS, states)
    metrics.provide(
        Gauge.TRANSACTION_AGE,
        lambda: _one(max((engine.oldest_open_s() for engine in led()), default=0.0)),
    )
    metrics.provide(Total.TRANSACTIONS_ENDED, ended)


def _sample_of(partition: Partition) -> PartitionSample:
    registration = partition.registration
    replicas = () if registration is None else registration.replicas
    # A follower that has not fetched from this leader yet is at an unknown place, not at 0.
    leader = partition.replica.leader
    followers = {} if leader is None else leader.followers
    end = partition.log_end_offset
    lags = tuple((node, end - known.fetch_offset) for node, known in sorted(followers.items()))
    return PartitionSample(
        topic=partition.topic,
        partition=partition.partition,
        log_start_offset=partition.log_start_offset,
        high_watermark=partition.high_watermark,
        log_end_offset=partition.log_end_offset,
        leader_epoch=partition.leader_epoch,
        leader=partition.leader,
        is_leader=partition.is_leader,
        in_sync_replicas=len(partition.isr),
        replicas=len(replicas),
        min_in_sync_replicas=partition.config.min_insync_replicas,
        log_bytes=partition.log.size_bytes,
        segments=len(partition.log.segments),
        replica_lag=lags,
    )


def watch_images(metrics: Metrics, node_id: NodeId) -> Callable[[Image, Image], None]:
    """A subscriber to the metadata: counts changes of in-sync sets that this node leads, and
    forgets deleted topics."""

    def on_image(old: Image, new: Image) -> None:
        for topic_id in changed_topics(old, new):
            before, after = old.topics.get(topic_id), new.topics.get(topic_id)
            if before is not None and after is not None:
                for change in isr_changes(node_id, before.partitions, after.partitions):
                    metrics.isr_changes.of(change).add()
            elif before is not None and new.find_topic(before.name) is None:
                metrics.forget_topic(before.name)

    return on_image


def isr_changes(
    leader: NodeId,
    before: Mapping[int, PartitionRegistration],
    after: Mapping[int, PartitionRegistration],
) -> Iterator[str]:
    """``shrink`` and ``expand`` for each partition of a topic that ``leader`` now leads."""
    # An image shares what did not change, and thousands of partitions may not have.
    for number in [each for each, now in after.items() if before.get(each) is not now]:
        was, now = before.get(number), after[number]
        if was is None or now.leader != leader:
            continue
        if set(was.isr) - set(now.isr):
            yield "shrink"
        if set(now.isr) - set(was.isr):
            yield "expand"


def _one(value: float) -> Iterable[Sample]:
    return [((), value)]


def _named(values: Mapping[str, float]) -> Iterable[Sample]:
    return [((name,), value) for name, value in values.items()]
