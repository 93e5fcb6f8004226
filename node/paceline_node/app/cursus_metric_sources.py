"""What the page of Cursus's metrics shows beside the node's own (DESIGN 4.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from paceline_node.groups.engine import GroupEngine
from paceline_node.groups.keys import Family as GroupFamily
from paceline_node.observe.cursus_metric_names import cursus_families
from paceline_node.observe.metric_types import Family, LabelValues, gauge
from paceline_node.observe.metrics import Metrics
from paceline_node.services.broker_services import BrokerServices

Samples = list[tuple[LabelValues, float]]


def collect_for_cursus(
    metrics: Metrics, services: BrokerServices, streams: Callable[[], int]
) -> Iterator[Family]:
    """All of the node's metrics, and those under Cursus's names."""
    families = list(metrics.collect())
    yield from families
    yield from cursus_families(families)
    yield gauge("cursus_streams_active", "Streams being pushed.", (), [((), streams())])
    yield from _groups(services)


def _groups(services: BrokerServices) -> Iterator[Family]:
    """The groups that this node coordinates. How far one lags is told of partitions that have a
    replica here."""
    members: Samples = []
    generations: Samples = []
    offsets: Samples = []
    lags: Samples = []
    for engine in services.groups.leading():
        for name, topic, count, generation in _of_engine(engine):
            members.append(((name, topic), count))
            generations.append(((name, topic), generation))
        for name, topic, partition, offset in _offsets(engine):
            at = name, topic, str(partition)
            offsets.append((at, offset))
            replica = services.records.hosted(topic, partition)
            if replica is not None:
                lags.append((at, max(0, replica.high_watermark - offset)))
    group, place = ("group", "topic"), ("group", "topic", "partition")
    prefix = "cursus_consumer_group"
    yield gauge(f"{prefix}_members", "Members of a group.", group, members)
    yield gauge(f"{prefix}_generation", "Its generation.", group, generations)
    yield gauge(f"{prefix}_committed_offset", "Next offset it reads.", place, offsets)
    yield gauge(f"{prefix}_lag", "Records it has not read.", place, lags)


def _of_engine(engine: GroupEngine) -> Iterator[tuple[str, str, int, int]]:
    for key, group in engine.store.groups.items():
        if key.family is GroupFamily.CURSUS:
            yield key.group, key.subject, len(group.members), group.generation


def _offsets(engine: GroupEngine) -> Iterator[tuple[str, str, int, int]]:
    for key, known in engine.store.offsets.items():
        if key.family is GroupFamily.CURSUS:
            for (topic, partition), offset in known.items():
                yield key.group, topic, partition, offset.offset
