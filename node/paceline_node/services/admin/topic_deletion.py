"""Deleting topics, whatever they hold: a stream goes with its topic (DESIGN 7.6)."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from paceline.errors import PacelineError, UnknownTopicOrPartition
from paceline.wire.native.admin import DeleteTopic, Done
from paceline.wire.peer.control import DeleteSegmentRequest
from paceline_node.bare_errors import bare
from paceline_node.env import Env
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.segments.pravega_streams import StreamService
from paceline_node.services.segments.segment_service import KIND
from paceline_node.services.topics.topic_service import ADMIN_TIMEOUT_S, TopicService

_AT_A_TIME = 16
"""Segments, each of which is an entry of the metadata."""


class TopicDeletion:
    """What every listener deletes topics by."""

    def __init__(self, env: Env, topics: TopicService, streams: StreamService) -> None:
        self._env = env
        self._topics = topics
        self._streams = streams

    async def delete(
        self, principal: Principal, name: str, *, timeout_s: float = ADMIN_TIMEOUT_S
    ) -> Done:
        """Remove a topic with all that is in it; returns once this node knows. May be asked again
        after any error. Raises AuthorizationFailed, UnknownTopicOrPartition, PolicyViolation, and
        what the controller's absence raises; of segments, also what the register of streams
        raises."""
        deadline = self._env.now() + timeout_s
        topic = self._topics.look_up(principal, Operation.DELETE, name)
        if topic is None or topic.kind != KIND:
            wish = DeleteTopic(name)
            return await self._topics.administer(principal, wish, Done, timeout_s=timeout_s)
        # Those that are there before the stream is gone: a new one of its name has others.
        numbers = sorted(topic.partitions)
        await self._streams.forget(name)
        await self._delete_segments(principal, name, numbers, deadline)
        return Done(self._topics.image.offset)

    async def _delete_segments(
        self, principal: Principal, name: str, numbers: Sequence[int], deadline: float
    ) -> None:
        errors: list[PacelineError] = []

        async def delete(some: Sequence[int]) -> None:
            for number in some:
                left_s = max(0.0, deadline - self._env.now())
                wish = DeleteSegmentRequest(name, number)
                try:
                    await self._topics.administer(principal, wish, Done, timeout_s=left_s)
                except UnknownTopicOrPartition:
                    continue  # somebody else was faster
                except PacelineError as error:
                    errors.append(bare(error))
                    return

        async with trio.open_nursery() as nursery:
            for first in range(min(_AT_A_TIME, len(numbers))):
                nursery.start_soon(delete, numbers[first::_AT_A_TIME])
        if errors:
            raise errors.pop(0)
