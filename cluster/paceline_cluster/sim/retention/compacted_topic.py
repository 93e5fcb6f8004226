"""A compacted topic: one writer sets keys to ever newer values and removes some. In the end each
key has the value that it was given last, on every replica."""

from __future__ import annotations

import random
from dataclasses import replace

import trio

from paceline.client.client import Client
from paceline.client.settings import ProducerSettings
from paceline.errors import PacelineError
from paceline.types import Acks
from paceline.wire.records import decode_records
from paceline_cluster.sim.cluster import SimCluster
from paceline_cluster.sim.committed import batches_of
from paceline_cluster.sim.history import is_open
from paceline_cluster.sim.oracle import Oracle
from paceline_cluster.sim.plan import Plan, TopicPlan
from paceline_cluster.sim.workload import AGAIN_S, while_connected
from paceline_node.replication.partition import Partition

TOPIC = "states"
CONFIGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "1500",
    "segment.bytes": "1024",
}
_KEYS = 6
_REMOVE = 0.15
_SETTINGS = ProducerSettings(acks=Acks.ALL, ack_timeout_s=1.0, delivery_timeout_s=6.0)


def topic_of(plan: Plan) -> TopicPlan:
    """The topic; its further settings are :data:`CONFIGS`."""
    return replace(plan.topics[0], name=TOPIC, partitions=1)


class CompactedTopicWriter:
    """The only writer; one write at a time."""

    def __init__(self, name: str, plan: Plan, rng: random.Random) -> None:
        self.name = name
        self.stopping = False
        self.ended = trio.Event()
        self._rng = rng
        self._pause_s = plan.pause_s
        self._numbers = 0
        self._last: dict[bytes, bytes | None] = {}
        """What was acknowledged last of each key."""
        self._open: dict[bytes, set[bytes | None]] = {}
        """What has no outcome: it may come at any time."""

    async def run(self, cluster: SimCluster, host: str) -> None:
        async def work(client: Client) -> None:
            async with client.producer(_SETTINGS) as producer:
                while not self.stopping:
                    key, value = self._next()
                    try:
                        await (await producer.submit(TOPIC, value, key=key, partition=0)).wait()
                    except PacelineError as error:
                        if is_open(error):
                            self._open.setdefault(key, set()).add(value)
                        await trio.sleep(AGAIN_S)
                    else:
                        self._last[key] = value
                    await trio.sleep(self._rng.uniform(0.0, self._pause_s))

        await while_connected(cluster, host, self._rng, work)
        self.ended.set()

    def _next(self) -> tuple[bytes, bytes | None]:
        self._numbers += 1
        key = b"k%d" % self._rng.randrange(_KEYS)
        if self._rng.random() < _REMOVE:
            return key, None
        return key, b"%s=%d" % (key, self._numbers) + bytes(self._rng.choice((0, 100)))

    def judge(self, oracle: Oracle) -> str | None:
        """What is wrong with the last values on any replica in sync."""
        newest = oracle.metadata.newest
        topic = None if newest is None else newest.find_topic(TOPIC)
        if topic is None:
            return f"there is no topic {TOPIC}"
        told: dict[bytes, bytes | None] | None = None
        for node, partition in oracle.in_sync((topic.topic_id, 0)):
            held = _last_values(partition)
            for key, last in self._last.items():
                value, unsure = held.get(key), self._open.get(key, ())
                if value != last and value not in unsure:
                    return f"n{node} {partition}: {key!r} is {value!r}, was set to {last!r}"
            alive = {key: value for key, value in held.items() if value is not None}
            if told is not None and told != alive:
                return f"n{node} {partition} holds {alive}, another one {told}"
            told = dict(alive)
        return None


def _last_values(partition: Partition) -> dict[bytes, bytes | None]:
    found: dict[bytes, bytes | None] = {}
    for header, data in batches_of(partition.log, 0, partition.high_watermark):
        if header.record_count and not header.is_control:
            for record in decode_records(data):
                found[record.key or b""] = record.value
    return found
