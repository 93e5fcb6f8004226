"""Partitions as operators see them: what is registered, and what the replica here knows."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.errors import ErrorCode, NotLeader, PacelineError, UnknownTopicOrPartition
from paceline.types import NO_EPOCH, NO_NODE
from paceline.wire.native import data
from paceline.wire.native.status_details import RoleOverride
from paceline.wire.peer.names import PartitionName
from paceline_node.controller.image import TopicImage
from paceline_node.controller.metadata_records import PartitionRegistration
from paceline_node.loop_turns import Turns
from paceline_node.replication.partition import Partition
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.partitions.partition_access import PartitionAccess
from paceline_node.services.topics.topic_service import TopicService
from paceline_node.sliced_work import Work


class DescriptionService:
    """Describes topics by their partitions."""

    def __init__(self, topics: TopicService, records: PartitionAccess, turns: Turns) -> None:
        self._topics = topics
        self._records = records
        self._turns = turns

    async def describe(
        self, principal: Principal, request: data.DescribeTopic
    ) -> data.TopicDescription:
        """The topic, and the partitions asked for, or all: each as its leader here knows it, or as
        any replica here does where the client wants that. Raises AuthorizationFailed,
        UnknownTopicOrPartition."""
        topic = self._topics.look_up(principal, Operation.DESCRIBE, request.topic)
        if topic is None:
            raise UnknownTopicOrPartition(f"topic {request.topic!r} does not exist")
        numbers = request.partitions or tuple(sorted(topic.partitions))
        described = await self._turns.run(self._describing(topic, numbers, request.own_replica))
        configs = self._topics.configs(principal, topic)
        return data.TopicDescription(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=tuple(described),
            kind=topic.kind,
            configs=None if configs is None else dict(configs),
            settings=() if configs is None or not request.settings else self.settings(topic),
        )

    def settings(self, topic: TopicImage) -> tuple[data.EffectiveSetting, ...]:
        """What holds for a topic at this node."""
        return tuple(
            data.EffectiveSetting(key.name, value, source)
            for key, value, source in self._topics.settings(topic)
        )

    def here(self, names: Sequence[PartitionName]) -> Work[list[data.PartitionDescription]]:
        """Each as its leader here knows it, with an error where this node does not lead. Nobody is
        asked whether that may be told."""
        described = []
        for each in names:
            yield 6
            topic = self._topics.find(each.topic)
            described.append(
                undescribed(
                    each.partition, None, UnknownTopicOrPartition(f"{each.topic} is not known")
                )
                if topic is None
                else self._partition(topic, each.partition, own_replica=False)
            )
        return described

    def _describing(
        self, topic: TopicImage, numbers: Sequence[int], own_replica: bool
    ) -> Work[list[data.PartitionDescription]]:
        described = []
        for number in numbers:
            yield 2
            described.append(self._partition(topic, number, own_replica))
        return described

    def _partition(
        self, topic: TopicImage, number: int, own_replica: bool
    ) -> data.PartitionDescription:
        registration = topic.partitions.get(number)
        local = self._records.hosted(topic.name, number)
        if registration is None:
            return undescribed(number, None, UnknownTopicOrPartition(f"{topic.name}/{number}"))
        if local is None or not (local.is_leader or own_replica):
            refusal = NotLeader(f"{topic.name}/{number}: node {registration.leader} leads")
            return undescribed(number, registration, refusal)
        return _description(number, registration, local)


def undescribed(
    number: int, known: PartitionRegistration | None, error: PacelineError
) -> data.PartitionDescription:
    """What was decided of a partition that nobody tells more of, and why."""
    return data.PartitionDescription(
        partition=number,
        error=error.code,
        message=str(error),
        leader=NO_NODE if known is None else known.leader,
        leader_epoch=NO_EPOCH if known is None else known.leader_epoch,
        partition_epoch=-1 if known is None else known.partition_epoch,
        replicas=() if known is None else known.replicas,
        isr=() if known is None else known.isr,
        log_start_offset=-1,
        high_watermark=-1,
        last_stable_offset=-1,
        log_end_offset=-1,
        size_bytes=-1,
        segment_count=-1,
        progress=(),
        override=None if known is None else _override(known),
    )


def _description(
    number: int, registration: PartitionRegistration, local: Partition
) -> data.PartitionDescription:
    return data.PartitionDescription(
        partition=number,
        error=ErrorCode.NONE,
        message="",
        leader=local.leader,
        leader_epoch=local.leader_epoch,
        partition_epoch=registration.partition_epoch,
        replicas=registration.replicas,
        isr=local.isr,
        log_start_offset=local.log_start_offset,
        high_watermark=local.high_watermark,
        last_stable_offset=local.last_stable_offset,
        log_end_offset=local.log_end_offset,
        size_bytes=local.log.size_bytes,
        segment_count=len(local.log.segments),
        progress=tuple(
            data.ReplicaProgress(node, node in local.isr, local.fetched(node), local.acked(node))
            for node in registration.replicas
        ),
        override=_override(registration),
    )


def _override(registration: PartitionRegistration) -> RoleOverride | None:
    if not (registration.pinned or registration.marks):
        return None
    return RoleOverride(registration.pinned, registration.marks)
