"""Reading topics as the coordinator of a group says (DESIGN 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import trio

from paceline.client.coordinator import Coordinator
from paceline.client.driven_link import dialled
from paceline.client.driven_membership import DIAL_S, Driven, DrivenSettings
from paceline.client.endpoint import Endpoint
from paceline.client.fetcher import OutOfRange
from paceline.client.group_settings import RebalanceListener
from paceline.client.metadata import Metadata
from paceline.client.pool import ConnectionPool
from paceline.client.progress import Offsets
from paceline.client.retry import Backoff
from paceline.client.settings import ClientSettings, ConsumerSettings
from paceline.client.shared_consumer import SharedConsumer
from paceline.client.single_error_nursery import open_scope
from paceline.client.transport import Dial
from paceline.errors import (
    ConnectionLost,
    ErrorCode,
    IllegalGeneration,
    PacelineError,
    error_for,
)
from paceline.types import Isolation, TopicPartition
from paceline.wire.kafka.apis import RequestHeader
from paceline.wire.kafka.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitRequestTopicPartition,
    OffsetCommitResponse,
)

FAMILY = "coordinator"
_OFFSET_COMMIT = 8
_COMMIT_S = 10.0


class CoordinatedConsumer(SharedConsumer):
    """Made by :meth:`Client.coordinated_consumer`; one task at a time may read from it.

    As a :class:`Consumer` whose partitions its coordinator starts and stops, at committed offsets.
    Delivery is at least once: what a ping is answered, and so what is committed by itself, is what
    was handed out before the record in hand.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        client: ClientSettings,
        pool: ConnectionPool,
        metadata: Metadata,
        backoff: Backoff,
        dial: Dial,
        bootstrap: Callable[[], Sequence[Endpoint]],
        *,
        group: str,
        topics: Sequence[str],
        driven: DrivenSettings,
        consumer_id: str,
        listener: RebalanceListener,
        isolation: Isolation,
        out_of_range: OutOfRange,
    ) -> None:
        super().__init__(
            settings,
            pool,
            metadata,
            backoff,
            Coordinator(pool, metadata, backoff, group, family=FAMILY),
            isolation=isolation,
            out_of_range=out_of_range,
            timeout_s=_COMMIT_S,
            operation_s=client.operation_timeout_s,
            max_poll_interval_s=driven.max_poll_interval_s,
        )
        self._dial = dial
        self._listener = listener
        self._client_id = client.client_id
        self._commits_itself = driven.auto_commit
        self._driven = Driven(
            driven,
            dial,
            backoff,
            self,
            bootstrap,
            group=group,
            topics=topics,
            consumer_id=consumer_id,
            client_id=client.client_id,
            from_smallest=out_of_range is OutOfRange.EARLIEST,
        )
        self._is_versioned = driven.version > 0

    @property
    def consumer_id(self) -> str:
        """Its id in the group."""
        return self._driven.consumer_id

    @property
    def generation(self) -> int:
        """The generation of its last Start; -1 before the first one and in version 0."""
        return self._driven.generation

    # --- committing -------------------------------------------------------------------------------

    async def _commit(self, offsets: Offsets, moves: int | None = None) -> list[TopicPartition]:
        if not offsets:
            return []
        if moves is not None and self.moves != moves:
            raise IllegalGeneration(f"group {self.group}: given up before it was committed")
        where = self._driven.where
        if where is None:
            raise ConnectionLost(f"group {self.group}: no coordinator", was_sent=False)
        version = 1 if self._is_versioned else 0
        by_topic: dict[str, list[OffsetCommitRequestTopicPartition]] = {}
        for at, offset in offsets.items():
            part = OffsetCommitRequestTopicPartition(
                partition_index=at.partition, committed_offset=offset
            )
            by_topic.setdefault(at.topic, []).append(part)
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id=self.generation if version else -1,
            member_id=self.consumer_id if version else "",
            topics=tuple(
                OffsetCommitRequestTopic(name=topic, partitions=tuple(parts))
                for topic, parts in by_topic.items()
            ),
        )
        header = RequestHeader(_OFFSET_COMMIT, version, 1, self._client_id)
        with trio.move_on_after(_COMMIT_S):
            async with dialled(self._dial, where, timeout_s=DIAL_S) as link:
                response = await link.ask_kafka(header, request)
                assert isinstance(response, OffsetCommitResponse)
                return self._committed_by(response, offsets)
        raise ConnectionLost(f"group {self.group}: {where} did not answer a commit")

    def _committed_by(
        self, response: OffsetCommitResponse, offsets: Offsets
    ) -> list[TopicPartition]:
        unknown = []
        refusal: PacelineError | None = None
        for topic in response.topics:
            for part in topic.partitions:
                at = TopicPartition(topic.name, part.partition_index)
                if part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    unknown.append(at)
                elif part.error_code:
                    refusal = refusal or error_for(part.error_code, f"committing {at}")
                else:
                    self._kept(at, offsets[at])
        if refusal is not None:
            raise refusal
        return unknown

    # --- what the coordinator says (driven.Owner) -------------------------------------------------

    def done(self) -> Mapping[TopicPartition, int]:
        return self._progress.done()

    async def take(self, starts: Mapping[TopicPartition, int]) -> None:
        """Begin to read; where the coordinator did not know, as soon as the leader says."""
        if self.assignment:  # started again without a stop, as one that came back is
            self._end()
        self._begin_at({at: offset for at, offset in starts.items() if offset >= 0})
        self._begin_by_leaders([at for at, offset in starts.items() if offset < 0])
        await self._listener.assigned(sorted(starts))
        self._resume()

    async def hand_back(self, at_most_s: float) -> None:
        self._moving = True
        await self._await_hand_back(at_most_s)

    async def give_up(self, *, lost: bool) -> Mapping[TopicPartition, int]:
        self._moving = True
        partitions = self.assignment
        if lost and partitions:
            await self._listener.lost(partitions)
        elif partitions:
            await self._listener.revoked(partitions)
        done = self._progress.done()
        if self._commits_itself and not lost:
            self._claims.keep(done)  # by the answer to the Stop
        self._end()
        return done

    # --- tasks ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Be a consumer and read ahead until cancelled."""
        async with open_scope() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._fetcher.run)
            await self._driven.run()

    async def finish(self) -> None:
        """The program leaves without an error: commit what it is done with, if commits are not its
        own business. What cannot be committed will be read again."""
        if self.may_be_through():
            self._progress.finish()
        else:
            self._progress.drop()
        if not self._commits_itself or self._moving:
            return
        try:
            await self.commit()
        except PacelineError:
            return

    def close(self) -> None:
        """Hand out nothing any more."""
        self._moving = True
        self._end()
