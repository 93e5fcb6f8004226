"""The broker's own topics: made at bootstrap, grown as nodes join (DESIGN 9.4).

:func:`upkeep` is called by the active controller whenever brokers changed and once in a while; it
answers with the next step, or None when there is nothing to do. Growing is a reassignment: new
replicas are added, catch up, and only when all of a topic's partitions have them is the topic's
min.insync.replicas raised.
"""

from __future__ import annotations

from paceline.errors import InvalidTopic
from paceline.wire.native.admin import CreateTopic, Done
from paceline.wire.peer.control import CreateInternalTopicRequest
from paceline_node.controller import reassignment, topics
from paceline_node.controller.context import Context, Draft, Outcome, Position
from paceline_node.controller.image import TopicImage
from paceline_node.controller.metadata_records import Topic
from paceline_node.controller.placement import Placer
from paceline_node.settings.topic_config import (
    MIN_INSYNC_REPLICAS,
    CleanupPolicy,
    min_insync_replicas,
)

_SEGMENT_BYTES = 16 * 1024 * 1024
"""Only closed segments are compacted, and a coordinator reads all of its log once."""


def upkeep(context: Context) -> Outcome | None:
    """The next thing to do for the internal topics, as one entry."""
    settings = context.settings
    always = [name for name, _ in settings.internal_topics]
    for name, partitions in (*settings.internal_topics, *settings.topics_on_demand):
        topic = context.image.find_topic(name)
        if topic is None:
            if name in always and _may_create(context):
                return _create(name, partitions, context)
            continue
        step = _grow(topic, context) or _settle(topic, context)
        if step is not None:
            return step
    return None


def create_on_demand(request: CreateInternalTopicRequest, context: Context) -> Outcome:
    """Make a topic that somebody needs now. Raises InvalidTopic for one that is none of these,
    LeaderNotAvailable."""
    partitions = dict(context.settings.topics_on_demand).get(request.name)
    if partitions is None:
        raise InvalidTopic(f"topic {request.name}: not one that is made on demand")
    if context.image.find_topic(request.name) is not None:
        return Outcome((), _done)
    return Outcome(_create(request.name, partitions, context).records, _done)


def _done(at: Position) -> Done:
    return Done(at.offset, at.term)


def _may_create(context: Context) -> bool:
    """Wait a moment for the nodes the cluster was formed with, to place replicas right at once."""
    ready = sum(b.electable for b in context.image.brokers.values())
    wanted = min(context.expected_brokers, context.settings.internal_replication_factor)
    graced = context.now >= context.active_since + context.settings.bootstrap_grace_s
    return ready >= wanted or (ready > 0 and graced)


def _create(name: str, partitions: int, context: Context) -> Outcome:
    ready = sum(b.electable for b in context.image.brokers.values())
    factor = min(context.settings.internal_replication_factor, ready)
    configs = {
        MIN_INSYNC_REPLICAS: str(_min_isr(factor, context)),
        "retention.ms": "-1",
        "cleanup.policy": CleanupPolicy.COMPACT.value,
        "segment.bytes": str(_SEGMENT_BYTES),
    }
    request = CreateTopic(
        name,
        partitions=partitions,
        replication_factor=factor,
        configs=configs,
        internal=True,
    )
    return topics.create_topic(request, context)


def _min_isr(factor: int, context: Context) -> int:
    return min(context.settings.internal_min_isr, factor)


def _grow(topic: TopicImage, context: Context) -> Outcome | None:
    """Add replicas on nodes that joined, to every partition that lacks some."""
    wanted = min(context.settings.internal_replication_factor, len(context.image.brokers))
    ready = [b for b in context.image.brokers.values() if b.electable]
    placer = Placer(ready, context.image.partitions())
    draft = Draft(context.image)
    configured = min_insync_replicas(topic.configs)
    for partition in topic.partitions.values():
        if partition.removing or len(partition.replicas) >= wanted:
            continue
        target = placer.grow(partition.replicas, wanted)
        if target != partition.replicas:
            reassignment.start(draft, partition, target, configured)
    return _outcome(draft)


def _settle(topic: TopicImage, context: Context) -> Outcome | None:
    """Raise the topic's counts to what all of its partitions have by now."""
    factor = min(len(reassignment.origin_of(p)) for p in topic.partitions.values())
    factor = min(factor, context.settings.internal_replication_factor)
    if factor <= topic.replication_factor:
        return None
    min_isr = _min_isr(factor, context)
    draft = Draft(context.image)
    configs = {**topic.configs, MIN_INSYNC_REPLICAS: str(min_isr)}
    draft.add(Topic(topic.topic_id, topic.name, factor, topic.kind, configs, topic.token))
    topics.apply_min_isr(draft, topic, min_isr)
    return _outcome(draft)


def _outcome(draft: Draft) -> Outcome | None:
    if not draft.records:
        return None
    return Outcome(tuple(draft.records), _done)
