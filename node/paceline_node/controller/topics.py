"""Topics: create, delete, alter, grow (DESIGN 9)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from paceline.counted import counted
from paceline.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    LeaderNotAvailable,
    PolicyViolation,
    TopicAlreadyExists,
)
from paceline.types import (
    NO_NODE,
    TOPIC_NAMES,
    LeaderEpoch,
    NodeId,
    PartitionEpoch,
    TopicId,
    is_internal_topic,
    is_valid_topic_name,
)
from paceline.wire.native.admin import (
    AddPartitions,
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    Done,
    TopicCreated,
)
from paceline_node.controller import partition_budget, reassignment
from paceline_node.controller.context import MAX_STEP_RECORDS, Context, Draft, Outcome
from paceline_node.controller.image import TopicImage
from paceline_node.controller.metadata_records import (
    Config,
    PartitionRegistration,
    Record,
    RemoveTopic,
    Topic,
)
from paceline_node.controller.partition_change import Change
from paceline_node.controller.placement import Placer
from paceline_node.settings import topic_config
from paceline_node.settings.topic_config import MIN_INSYNC_REPLICAS, CleanupPolicy

KINDS = ("log", "segment", "event-sourcing")
MAX_REPLICATION_FACTOR = 32767


# --- create ------------------------------------------------------------------------------------


def create_topic(request: CreateTopic, context: Context) -> Outcome:
    """Create a topic with leaders at once.

    Raises InvalidTopic, InvalidRequest, TopicAlreadyExists, InvalidPartitions,
    InvalidReplicationFactor, InvalidConfig, LeaderNotAvailable (no active broker yet),
    PolicyViolation (a node would hold more partitions than it may).
    """
    _check_name(request)
    existing = context.image.find_topic(request.name)
    if existing is not None:
        return _already_there(request, existing)
    partitions = _partition_count(request, context)
    factor = _replication_factor(request, context)
    configs = initial_configs(request.configs, context, factor)
    _check_kind(request.kind, configs)
    draft = Draft(context.image)
    if not any(b.electable for b in context.image.brokers.values()):
        raise LeaderNotAvailable(f"topic {request.name}: no broker is active yet")
    topic_id = TopicId(context.new_id())
    draft.add(Topic(topic_id, request.name, factor, request.kind, configs, request.token))
    assignment = request.assignment or _place(context, partitions, factor)
    if not request.internal:
        partition_budget.check(f"topic {request.name}", context.image, assignment)
    former = context.image.former_epoch(request.name)
    _add_partitions(draft, topic_id, enumerate(assignment), factor, configs, former)
    count = len(assignment)
    return Outcome(
        tuple(draft.records),
        lambda at: TopicCreated(topic_id, count, factor, at.offset, at.term),
    )


def _check_name(request: CreateTopic) -> None:
    if not is_valid_topic_name(request.name):
        raise InvalidTopic(f"topic {request.name!r}: expected {TOPIC_NAMES}")
    if is_internal_topic(request.name) and not request.internal:
        raise InvalidTopic(f"topic {request.name}: names that begin with __ are the broker's own")
    if request.kind not in KINDS:
        raise InvalidRequest(f"topic kind {request.kind!r}: expected one of {', '.join(KINDS)}")


def _already_there(request: CreateTopic, topic: TopicImage) -> Outcome:
    same = (
        request.partitions in (-1, len(topic.partitions))
        and request.replication_factor in (-1, topic.replication_factor)
        and request.kind == topic.kind
    )
    repeated = request.token is not None and request.token == topic.token
    if not (repeated or request.auto_create or (request.if_not_exists and same)):
        raise TopicAlreadyExists(f"topic already exists: {topic.name}")
    return Outcome(
        (),
        lambda at: TopicCreated(
            topic.topic_id,
            len(topic.partitions),
            topic.replication_factor,
            at.offset,
            at.term,
            existed=not repeated,
        ),
    )


def _partition_count(request: CreateTopic, context: Context) -> int:
    count = request.partitions
    if request.assignment:
        if count not in (-1, len(request.assignment)):
            raise InvalidPartitions(
                f"topic {request.name}: {count} partitions, {len(request.assignment)} assigned"
            )
        count = len(request.assignment)
    elif count == -1:
        count = context.settings.topics.partitions
    limit = context.settings.max_partitions_per_request
    if not 1 <= count <= limit:
        raise InvalidPartitions(f"topic {request.name}: {count} partitions, expected 1 to {limit}")
    return count


def _replication_factor(request: CreateTopic, context: Context) -> int:
    """The topic's factor. On a lone node it may exceed the nodes; the rest are vacant slots
    (DESIGN 9.1). Registered but dead nodes count."""
    if request.assignment:
        return _assigned_factor(request, context)
    nodes = len(context.image.brokers)
    factor = request.replication_factor
    if factor == -1:
        factor = context.settings.topics.replication_factor
    if not 1 <= factor <= MAX_REPLICATION_FACTOR:
        raise InvalidReplicationFactor(f"topic {request.name}: replication factor {factor}")
    if factor > nodes > 1:
        if not request.auto_create:
            raise InvalidReplicationFactor(
                f"topic {request.name}: replication factor {factor}, but "
                f"{counted(nodes, 'node')} registered"
            )
        factor = nodes
    return factor


def _assigned_factor(request: CreateTopic, context: Context) -> int:
    factor = len(request.assignment[0])
    if request.replication_factor not in (-1, factor):
        raise InvalidReplicationFactor(
            f"topic {request.name}: replication factor {request.replication_factor}, "
            f"{factor} replicas assigned"
        )
    for number, replicas in enumerate(request.assignment):
        check_assignment(f"{request.name}/{number}", replicas, context)
        if len(replicas) != factor:
            raise InvalidReplicationFactor(
                f"{request.name}/{number}: {len(replicas)} replicas, partition 0 has {factor}"
            )
        if not any(context.image.brokers[node].electable for node in replicas):
            raise LeaderNotAvailable(f"{request.name}/{number}: no assigned broker is active")
    return factor


def check_assignment(place: str, replicas: tuple[NodeId, ...], context: Context) -> None:
    """Raise InvalidReplicationFactor unless ``replicas`` are distinct registered nodes."""
    unknown = [node for node in replicas if node not in context.image.brokers]
    if unknown or not replicas or len(set(replicas)) != len(replicas):
        raise InvalidReplicationFactor(
            f"{place}: replicas {list(replicas)}, expected distinct registered nodes of "
            f"{sorted(context.image.brokers)}"
        )


def initial_configs(asked: Mapping[str, str], context: Context, factor: int) -> dict[str, str]:
    """What was asked for, and min.insync.replicas in any case: it decides what acks=all means,
    so it must not follow later changes of a node's defaults. Raises InvalidConfig."""
    configs = dict(asked)
    configs.setdefault(MIN_INSYNC_REPLICAS, str(min(context.settings.topics.min_isr, factor)))
    topic_config.validate(configs, replication_factor=factor)
    return configs


def _check_kind(kind: str, configs: Mapping[str, str]) -> None:
    policy = configs.get("cleanup.policy", CleanupPolicy.DELETE.value)
    if kind == "segment" and policy != CleanupPolicy.DELETE.value:
        raise InvalidConfig(f"cleanup.policy={policy}: segments are runs of bytes without keys")


def place_partitions(
    draft: Draft,
    context: Context,
    topic: TopicImage,
    numbers: Sequence[int],
    token: UUID | None = None,
) -> None:
    """Add partitions with these numbers to a topic, replicas chosen by rack and load. ``token``
    tells later who wished for them."""
    factor = topic.replication_factor
    placed = _place(context, len(numbers), factor)
    partition_budget.check(f"topic {topic.name}", context.image, placed)
    assignment = zip(numbers, placed, strict=True)
    _add_partitions(
        draft, topic.topic_id, assignment, factor, topic.configs, topic.former_epoch, token
    )


def _place(context: Context, partitions: int, factor: int) -> tuple[tuple[NodeId, ...], ...]:
    placer = Placer(context.image.brokers.values(), context.image.partitions())
    return tuple(placer.place(factor) for _ in range(partitions))


def _add_partitions(
    draft: Draft,
    topic_id: TopicId,
    assignment: Iterable[tuple[int, tuple[NodeId, ...]]],
    slots: int,
    configs: Mapping[str, str],
    former_epoch: LeaderEpoch,
    token: UUID | None = None,
) -> None:
    """New, empty partitions: every active replica is in sync, the first electable one leads. Leader
    epochs begin above ``former_epoch`` (DESIGN 9.6)."""
    configured = topic_config.min_insync_replicas(configs)
    for number, replicas in assignment:
        isr = tuple(node for node in replicas if draft.active(node))
        leader = next((node for node in isr if draft.electable(node)), NO_NODE)
        draft.put(
            PartitionRegistration(
                topic_id=topic_id,
                partition=number,
                replicas=replicas,
                isr=isr,
                elr=(),
                lkelr=(),
                leader=leader,
                leader_epoch=LeaderEpoch(former_epoch + 1),
                partition_epoch=PartitionEpoch(0),
                min_isr=reassignment.effective_min_isr(configured, replicas),
                slots=slots,
                token=token,
            )
        )


# --- delete, grow, alter -----------------------------------------------------------------------


def _client_topic(name: str, context: Context) -> TopicImage:
    topic = context.image.topic(name)
    if is_internal_topic(name):
        raise PolicyViolation(f"topic {name} is the broker's own")
    return topic


def delete_topic(request: DeleteTopic, context: Context) -> Outcome:
    """Remove a topic with its records. Raises UnknownTopicOrPartition, PolicyViolation (of kind
    ``segment``, too: a stream may be made of it, which nodes look up, services/DESIGN 7.6)."""
    topic = _client_topic(request.name, context)
    if topic.kind == "segment":
        raise PolicyViolation(
            f"topic {topic.name}: its segments are deleted one by one, by a node that knows it; "
            "ask again"
        )
    return _done((RemoveTopic(topic.topic_id),))


def add_partitions(request: AddPartitions, context: Context) -> Outcome:
    """Grow a topic; the number it already has is success, so that a retry is.

    Raises UnknownTopicOrPartition, PolicyViolation, InvalidPartitions, LeaderNotAvailable.
    """
    topic = _client_topic(request.name, context)
    if topic.kind == "segment":
        raise PolicyViolation(f"topic {topic.name}: segments are created one by one")
    have = len(topic.partitions)
    limit = context.settings.max_partitions_per_request
    if not have <= request.total <= have + limit:
        raise InvalidPartitions(
            f"topic {topic.name} has {counted(have, 'partition')}; {request.total} asked for, "
            f"expected {have} to {have + limit}"
        )
    if not any(b.electable for b in context.image.brokers.values()):
        raise LeaderNotAvailable(f"topic {topic.name}: no broker is active yet")
    draft = Draft(context.image)
    place_partitions(draft, context, topic, range(have, request.total))
    return _done(tuple(draft.records))


def alter_topic(request: AlterTopic, context: Context) -> Outcome:
    """Set and remove configuration values, all or nothing. A change of min.insync.replicas goes
    into the partitions in the same entry, where their ISRs are judged by it, and into those beyond
    the first MAX_STEP_RECORDS in the next ones (DESIGN 1.3, 1.6).

    Raises UnknownTopicOrPartition, PolicyViolation, InvalidConfig.
    """
    topic = _client_topic(request.name, context)
    configs = dict(topic.configs)
    for key, value in sorted(request.configs.items()):
        if key not in topic_config.KEYS:
            raise InvalidConfig(topic_config.unknown(key))
        if value is None:
            configs.pop(key, None)
        else:
            configs[key] = value
    factor = _factor(topic)
    configs.setdefault(MIN_INSYNC_REPLICAS, str(min(context.settings.topics.min_isr, factor)))
    topic_config.validate(configs, replication_factor=factor)
    _check_kind(topic.kind, configs)
    draft = Draft(context.image, MAX_STEP_RECORDS)
    for key in sorted({*configs, *topic.configs}):
        if configs.get(key) != topic.configs.get(key):
            draft.add(Config("topic", topic.name, key, configs.get(key)))
    apply_min_isr(draft, topic, topic_config.min_insync_replicas(configs))
    return replace(_done(tuple(draft.records)), unfinished=draft.unfinished)


def _factor(topic: TopicImage) -> int:
    """How many replicas each of a topic's partitions has, at least, or would have on enough nodes:
    moves may have given all of them more than the topic was made with."""
    slots = [partition.slots for partition in topic.partitions.values()]
    return max(topic.replication_factor, min(slots, default=0))


def apply_min_isr(draft: Draft, topic: TopicImage, configured: int) -> None:
    """Bring a topic's partitions to a configured min.insync.replicas."""
    for partition in topic.partitions.values():
        origin = reassignment.origin_of(partition)
        min_isr = reassignment.effective_min_isr(configured, origin)
        if min_isr != partition.min_isr:
            if not draft.has_room():
                return
            draft.change(partition, Change(min_isr=min_isr))


def _done(records: tuple[Record, ...]) -> Outcome:
    return Outcome(records, lambda at: Done(at.offset, at.term))
