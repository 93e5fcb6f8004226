"""Kafka requests that move partitions to other replicas, and say which are being moved.

Any node takes them: it asks the active controller (DESIGN 6.4).
"""

from __future__ import annotations

from itertools import groupby

import trio

from paceline.errors import InvalidReplicationFactor, PacelineError
from paceline.types import NodeId
from paceline.wire.kafka import reassignments as wire
from paceline.wire.native import admin
from paceline_node.listeners.kafka.call import Call
from paceline_node.listeners.kafka.errors import code_of, message_of
from paceline_node.services.topics.reassignments import under_way
from paceline_node.services.topics.topic_service import ADMIN_TIMEOUT_S, TopicService

_MAX_TIMEOUT_S = 60.0


class KafkaReassignments:
    """Moves partitions, and gives moves up."""

    def __init__(self, topics: TopicService) -> None:
        self._topics = topics

    async def alter(
        self, request: wire.AlterPartitionReassignmentsRequest, call: Call
    ) -> wire.AlterPartitionReassignmentsResponse:
        """Each partition has its own answer, once its move has begun or was given up."""
        asked_s = max(0.0, min(request.timeout_ms / 1000, _MAX_TIMEOUT_S))
        until = trio.current_time() + (asked_s or ADMIN_TIMEOUT_S)
        may_change = request.allow_replication_factor_change
        try:
            self._topics.check(call.principal, admin.ReassignPartition("", 0))
        except PacelineError as error:
            return wire.AlterPartitionReassignmentsResponse(
                allow_replication_factor_change=may_change,
                error_code=code_of(error),
                error_message=message_of(error),
            )
        responses = [
            wire.AlterPartitionReassignmentsResponseTopic(
                name=topic.name,
                partitions=tuple(
                    [
                        await self._alter(topic.name, asked, call, until, may_change=may_change)
                        async for asked in call.pace.each(topic.partitions)
                    ]
                ),
            )
            async for topic in call.pace.each(request.topics)
        ]
        return wire.AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=may_change, error_code=0, responses=tuple(responses)
        )

    async def _alter(
        self,
        topic: str,
        asked: wire.AlterPartitionReassignmentsRequestTopicPartition,
        call: Call,
        until: float,
        *,
        may_change: bool,
    ) -> wire.AlterPartitionReassignmentsResponseTopicPartition:
        code, message = 0, None
        try:
            wish = self._wish(topic, asked, may_change=may_change)
            left_s = max(0.0, until - trio.current_time())
            await self._topics.administer(call.principal, wish, admin.Done, timeout_s=left_s)
        except PacelineError as error:
            code, message = code_of(error), message_of(error)
        return wire.AlterPartitionReassignmentsResponseTopicPartition(
            partition_index=asked.partition_index,
            error_code=code,
            error_message=message,
        )

    def _wish(
        self,
        topic: str,
        asked: wire.AlterPartitionReassignmentsRequestTopicPartition,
        *,
        may_change: bool,
    ) -> admin.ReassignPartition:
        number = asked.partition_index
        if asked.replicas is None:
            return admin.ReassignPartition(topic, number)
        if not asked.replicas:  # towards the controller this would give up the move
            raise InvalidReplicationFactor(f"{topic}/{number}: no replicas are named")
        if not may_change:
            found = self._topics.partition(topic, number)
            before = len(found.replicas) - len(found.adding)
            if len(asked.replicas) != before:
                raise InvalidReplicationFactor(
                    f"{topic}/{number} has {before} replicas, {len(asked.replicas)} are named"
                )
        return admin.ReassignPartition(topic, number, tuple(map(NodeId, asked.replicas)))

    async def list(
        self, request: wire.ListPartitionReassignmentsRequest, call: Call
    ) -> wire.ListPartitionReassignmentsResponse:
        """All moves under way, or those of the partitions named."""
        try:
            image = self._topics.overview(call.principal)
        except PacelineError as error:
            return wire.ListPartitionReassignmentsResponse(
                error_code=code_of(error), error_message=message_of(error)
            )
        if request.topics is None:
            wanted = None
            topics = list(image.topics.values())
        else:
            wanted = {
                (topic.name, number)
                async for topic in call.pace.each(request.topics)
                async for number in call.pace.each(topic.partition_indexes)
            }
            named = {name for name, _ in wanted}
            topics = [topic for name in named if (topic := image.find_topic(name)) is not None]
        moves = [
            move
            for move in await call.pace.run(under_way(topics))
            if wanted is None or (move.topic, move.partition) in wanted
        ]
        return wire.ListPartitionReassignmentsResponse(
            error_code=0,
            topics=tuple(
                wire.ListPartitionReassignmentsResponseTopic(
                    name=name, partitions=tuple(_told(move) for move in of_topic)
                )
                for name, of_topic in groupby(moves, key=lambda move: move.topic)
            ),
        )


def _told(move: admin.Reassignment) -> wire.ListPartitionReassignmentsResponseTopicPartition:
    return wire.ListPartitionReassignmentsResponseTopicPartition(
        partition_index=move.partition,
        replicas=tuple(move.replicas),
        adding_replicas=tuple(move.adding),
        removing_replicas=tuple(move.removing),
    )
