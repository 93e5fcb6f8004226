"""Kafka DELETE_RECORDS: the log start of partitions moves forward."""

from __future__ import annotations

import trio

from paceline.errors import PacelineError
from paceline.wire.kafka import records as wire
from paceline_node.listeners.kafka.call import Call
from paceline_node.listeners.kafka.errors import code_of
from paceline_node.services.records.trim import TrimService

_MAX_TIMEOUT_MS = 60_000


class KafkaDeleteRecords:
    """Deletes records at the leader that the client asks."""

    def __init__(self, trimming: TrimService) -> None:
        self._trimming = trimming

    async def delete_records(
        self, request: wire.DeleteRecordsRequest, call: Call
    ) -> wire.DeleteRecordsResponse:
        """Each partition has its own answer."""
        timeout_s = max(0, min(request.timeout_ms, _MAX_TIMEOUT_MS)) / 1000
        until = trio.current_time() + timeout_s
        return wire.DeleteRecordsResponse(
            topics=tuple(
                [
                    wire.DeleteRecordsResponseTopic(
                        name=topic.name,
                        partitions=tuple(
                            [
                                await self._delete(topic.name, asked, call, until)
                                async for asked in call.pace.each(topic.partitions)
                            ]
                        ),
                    )
                    async for topic in call.pace.each(request.topics)
                ]
            )
        )

    async def _delete(
        self, topic: str, asked: wire.DeleteRecordsRequestTopicPartition, call: Call, until: float
    ) -> wire.DeleteRecordsResponseTopicPartition:
        try:
            start = await self._trimming.trim(
                call.principal,
                topic,
                asked.partition_index,
                asked.offset,
                timeout_s=max(0.0, until - trio.current_time()),
            )
        except PacelineError as error:
            return wire.DeleteRecordsResponseTopicPartition(
                partition_index=asked.partition_index, low_watermark=-1, error_code=code_of(error)
            )
        return wire.DeleteRecordsResponseTopicPartition(
            partition_index=asked.partition_index, low_watermark=start, error_code=0
        )
