"""``option("view", "batches" | "offsets")``: every replica of the topics, node by node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from paceline.client import blocking
from paceline.errors import PacelineError
from paceline.spark import views
from paceline.spark.cluster import Cluster, connect
from paceline.spark.errors import OptionError
from paceline.spark.options import SourceOptions, View
from paceline.spark.plain import told_plainly
from paceline.spark.views import OK, ReplicaRange, Row
from paceline.types import NodeId, TopicPartition
from paceline.wire.native.data import PartitionDescription

if TYPE_CHECKING:
    import pyarrow as pa

UNREACHABLE = "unreachable"


class ReplicaPartition(InputPartition):
    """One node's copy of one partition; of the view ``offsets`` the row itself."""

    def __init__(self, wanted: ReplicaRange | Row) -> None:
        super().__init__(wanted)


class ViewReader(DataSourceReader):
    """Asks the nodes themselves, leaders and followers alike.

    ``batches`` reads each in-sync replica from the highest log start to the lowest high watermark
    among them, both as told when the query is planned: what lies between must be on all.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    @told_plainly()
    def partitions(self) -> list[ReplicaPartition]:
        cluster = Cluster(self._options)
        try:
            rows = cluster.retrying(lambda: offset_rows(cluster, self._options))
        finally:
            cluster.close()
        if self._options.view is View.OFFSETS:
            return [ReplicaPartition(row) for row in rows]
        return [ReplicaPartition(each) for each in common_ranges(rows)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        schema = views.OFFSETS if self._options.view is View.OFFSETS else views.BATCHES
        if partition.value is None:  # an empty plan makes Spark run one task with nothing to do
            yield from views.to_arrow(iter(()), schema)
        elif isinstance(partition.value, ReplicaRange):
            with connect(self._options.link, "audit") as client:
                rows = views.read_replica(
                    client,
                    partition.value,
                    fetch_bytes=self._options.partition_fetch_bytes,
                    deep=self._options.deep,
                )
                yield from views.to_arrow(rows, schema)
        else:
            yield from views.to_arrow(iter([partition.value]), schema)


def offset_rows(cluster: Cluster, options: SourceOptions) -> list[Row]:
    """Every replica's offsets as its own node tells them; a silent node's say so."""
    topics = cluster.topics()
    cluster.require(topics)
    wanted = set(cluster.partitions(topics))
    rows = []
    for name, info in sorted(topics.items()):
        leaders = {each.partition: each.leader for each in info.partitions}
        isr = {each.partition: each.isr for each in info.partitions}
        hosts: dict[NodeId, list[int]] = {}
        for each in info.partitions:
            if TopicPartition(name, each.partition) in wanted:
                for node in _chosen(options.replicas, each.replicas, each.leader):
                    hosts.setdefault(node, []).append(each.partition)
        for node, numbers in sorted(hosts.items()):
            told = _ask(cluster.client, node, name)
            for number in numbers:
                place = {"topic": name, "partition": number, "replica": int(node)}
                state = {"isLeader": leaders[number] == node, "inSync": node in isr[number]}
                rows.append({**place, **state, **_offsets(told, number)})
    return rows


def _chosen(replicas: str, assigned: tuple[NodeId, ...], leader: NodeId) -> list[NodeId]:
    if replicas == "all":
        return list(assigned)
    if replicas == "leader":
        return [leader] if leader in assigned else []
    numbers = replicas.split(",")
    if not all(number.strip().isdecimal() for number in numbers):
        raise OptionError(f"paceline: replicas={replicas!r}: expected all, leader, or 0,1,2")
    return [node for node in assigned if int(node) in map(int, numbers)]


def _ask(
    client: blocking.Client, node: NodeId, topic: str
) -> dict[int, PartitionDescription] | PacelineError:
    try:
        told = client.admin.describe_replicas(node, topic)
    except PacelineError as error:
        return error
    return {each.partition: each for each in told.partitions}


def _offsets(told: dict[int, PartitionDescription] | PacelineError, number: int) -> Row:
    if isinstance(told, PacelineError):
        return {"status": f"{UNREACHABLE}: {told}"}
    each = told.get(number)
    if each is None or each.error:
        return {"status": f"error: {each.message if each else 'not hosted'}"}
    return {
        "logStart": each.log_start_offset,
        "highWatermark": each.high_watermark,
        "lastStable": each.last_stable_offset,
        "logEnd": each.log_end_offset,
        "leaderEpoch": each.leader_epoch,
        "sizeBytes": each.size_bytes,
        "status": OK,
    }


def common_ranges(rows: list[Row]) -> list[ReplicaRange]:
    """What all in-sync replicas that answer must hold alike, for each of them."""
    groups: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        if row["status"] == OK and row["inSync"]:
            groups.setdefault((row["topic"], row["partition"]), []).append(row)
    found = []
    for (topic, partition), members in sorted(groups.items()):
        start = max(row["logStart"] for row in members)
        end = min(row["highWatermark"] for row in members)
        found += [
            ReplicaRange(topic, partition, row["replica"], start, end)
            for row in members
            if start < end
        ]
    return found
