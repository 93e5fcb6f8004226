"""Segments of the segment protocol: partitions made and removed one by one (DESIGN 9.5).

A topic of kind ``segment`` has a set of partitions, not a count. A removed number is not given out
again while its topic lives: replicas that were away at the removal still hold a log under it, which
must never pass for the new one's. With its last segment the topic goes, and all is free again.
"""

from __future__ import annotations

from paceline.errors import (
    InvalidPartitions,
    InvalidTopic,
    LeaderNotAvailable,
    PolicyViolation,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from paceline.types import TOPIC_NAMES, TopicId, is_valid_topic_name
from paceline.wire.native.admin import Done
from paceline.wire.peer.control import CreateSegmentRequest, DeleteSegmentRequest
from paceline_node.controller import topics
from paceline_node.controller.context import Context, Draft, Outcome
from paceline_node.controller.image import TopicImage
from paceline_node.controller.metadata_records import Record, RemovePartition, RemoveTopic, Topic
from paceline_node.settings.topic_config import SEGMENT_NAME

SEGMENT = "segment"


def create_segment(request: CreateSegmentRequest, context: Context) -> Outcome:
    """Add one partition, and its topic when it is the first. One that a wish with the same token
    made before is answered as if it were made now.

    Raises TopicAlreadyExists, InvalidTopic (the topic is of another kind, or no topic can have
    that name), InvalidPartitions (the number was used before), LeaderNotAvailable.
    """
    if not any(b.electable for b in context.image.brokers.values()):
        raise LeaderNotAvailable(f"topic {request.topic}: no broker is active yet")
    draft = Draft(context.image)
    topic = context.image.find_topic(request.topic)
    if topic is None:
        topic = _new_topic(request, context)
        draft.add(
            Topic(
                topic.topic_id, topic.name, topic.replication_factor, SEGMENT, dict(topic.configs)
            )
        )
    made = topic.partitions.get(request.partition)
    if made is not None and request.token is not None and made.token == request.token:
        return _done(())
    _check(topic, request.partition)
    topics.place_partitions(draft, context, topic, [request.partition], request.token)
    return _done(tuple(draft.records))


def _new_topic(request: CreateSegmentRequest, context: Context) -> TopicImage:
    if not is_valid_topic_name(request.topic):
        raise InvalidTopic(f"topic {request.topic!r}: expected {TOPIC_NAMES}")
    factor = context.settings.topics.replication_factor
    if factor > len(context.image.brokers) > 1:
        factor = len(context.image.brokers)
    configs = topics.initial_configs({SEGMENT_NAME: request.name}, context, factor)
    topic_id = TopicId(context.new_id())
    former = context.image.former_epoch(request.topic)
    return TopicImage(topic_id, request.topic, SEGMENT, factor, configs, {}, former_epoch=former)


def _check(topic: TopicImage, number: int) -> None:
    if topic.kind != SEGMENT:
        raise InvalidTopic(f"topic {topic.name} is of kind {topic.kind}, not {SEGMENT}")
    if number in topic.partitions:
        raise TopicAlreadyExists(f"{topic.name}/{number} exists already")
    if number in topic.retired:
        raise InvalidPartitions(
            f"{topic.name}/{number} was deleted; numbers are not used again while the stream has "
            "other segments: choose another number"
        )


def delete_segment(request: DeleteSegmentRequest, context: Context) -> Outcome:
    """Remove one partition with its bytes, and its topic when it was the last.

    Raises UnknownTopicOrPartition, PolicyViolation.
    """
    topic = context.image.topic(request.topic)
    if topic.kind != SEGMENT:
        raise PolicyViolation(f"topic {topic.name} is of kind {topic.kind}, not {SEGMENT}")
    if request.partition not in topic.partitions:
        raise UnknownTopicOrPartition(f"{topic.name}/{request.partition} does not exist")
    if len(topic.partitions) == 1:
        return _done((RemoveTopic(topic.topic_id),))
    return _done((RemovePartition(topic.topic_id, request.partition),))


def _done(records: tuple[Record, ...]) -> Outcome:
    return Outcome(records, lambda at: Done(at.offset, at.term))
