"""V1 PRODUCE and CONSUME, as the node that leads the partition carries them out."""

from __future__ import annotations

from paceline.errors import (
    CorruptMessage,
    NotEnoughReplicas,
    NotLeader,
    PacelineError,
    RequestTimedOut,
)
from paceline.types import Acks, Isolation
from paceline.values import dataclass
from paceline.wire.v1.errors import V1Code, V1Error, bad_request
from paceline.wire.v1.partitioner import partition_for
from paceline.wire.v1.replies import MessageList, consume_payload, produce_payload
from paceline.wire.v1.requests import Consume, Produce
from paceline_node.env import Env
from paceline_node.listeners.v1.errors import (
    NO_CONTROLLER,
    acks_timeout,
    no_leader_here,
    outcome_unknown,
    unreachable,
)
from paceline_node.listeners.v1.routing import Call, Router
from paceline_node.services.partitions.readable_topic import ReadableReplica
from paceline_node.services.partitions.sequenced_appends import RecordsWish
from paceline_node.services.partitions.writable_topic import WritableTopic
from paceline_node.services.records.fetch import FetchService
from paceline_node.services.records.produce import ProduceService
from paceline_node.services.topics.cluster_view import TopicView
from paceline_node.services.topics.topic_service import TopicService
from paceline_node.settings.tree import V1Settings

_V1 = V1Settings()


@dataclass(frozen=True, slots=True)
class RecordLimits:
    """Waits in seconds, sizes in bytes."""

    ack_timeout_s: float = _V1.ack_timeout_ms / 1000
    leader_wait_s: float = _V1.leader_wait_ms / 1000
    commit_wait_s: float = _V1.consume_commit_wait_ms / 1000
    consume_max_bytes: int = _V1.consume_max_bytes
    forward_produce: bool = _V1.forward_produce


class V1Records:
    """Produces and consumes for V1 connections."""

    def __init__(
        self,
        env: Env,
        produce: ProduceService,
        fetch: FetchService,
        topics: TopicService,
        router: Router,
        limits: RecordLimits,
    ) -> None:
        self._env = env
        self._produce = produce
        self._fetch = fetch
        self._topics = topics
        self._router = router
        self._limits = limits

    async def ensure(self, name: str, call: Call) -> TopicView:
        """The topic, created when it is unknown (DESIGN 4.4)."""
        left_s = max(0.0, call.deadline - self._env.now())
        wait_s = min(left_s, self._limits.leader_wait_s)
        return await self._topics.ensure(call.principal, name, timeout_s=wait_s)

    # --- PRODUCE ----------------------------------------------------------------------------------

    async def produce(self, request: Produce, call: Call) -> bytes:
        """Append one record; the payload of the OK line. Raises V1Error (DESIGN 4.3)."""
        opened = self._produce.open(call.principal, request.topic)
        is_new = self._topics.find(request.topic) is None
        topic = await self._ensure_for_produce(request.topic, call)
        partition = partition_for(request.key, len(topic.partitions))
        if not (call.forwarded or self._may_take(request.topic, partition)):
            raise no_leader_here()
        wait_s = self._limits.leader_wait_s
        if request.acks is Acks.ALL and not is_new:
            # A topic just made has its leader in a moment, however short the ack timeout is.
            wait_s = self._limits.ack_timeout_s
        until = self._env.now() + wait_s

        async def append_here() -> bytes:
            return await self._append(opened, request, partition, call)

        try:
            return await self._router.on_leader(
                call, request.topic, partition, append_here, until=until
            )
        except RequestTimedOut:
            raise (acks_timeout() if request.acks is Acks.ALL else outcome_unknown()) from None
        except (NotLeader, NotEnoughReplicas):
            if call.forwarded:
                raise
            # Nothing was appended; yet acks=all owes its caller the answer of the original
            # (DESIGN 4.3).
            raise (acks_timeout() if request.acks is Acks.ALL else no_leader_here()) from None

    def _may_take(self, topic: str, partition: int) -> bool:
        """Whether this node takes a client's PRODUCE for a partition, to carry it out or to send
        it on (DESIGN 4.2)."""
        if self._router.is_marked_follower(topic, partition):
            return False
        return self._limits.forward_produce or self._router.leads(topic, partition)

    async def _ensure_for_produce(self, name: str, call: Call) -> TopicView:
        try:
            return await self.ensure(name, call)
        except PacelineError as error:
            # SDKs change their endpoint on NOT_LEADER, which is what helps here (DESIGN 4.2).
            if error.retriable:
                raise no_leader_here() from error
            raise

    async def _append(
        self, opened: WritableTopic, request: Produce, partition: int, call: Call
    ) -> bytes:
        wish = RecordsWish(
            # The original answers acks=0 like acks=1 (DESIGN 4.3), and its reply carries the high
            # watermark that follows the append.
            Acks.ALL if request.acks is Acks.ALL else Acks.LEADER,
            min(self._limits.ack_timeout_s, max(0.0, call.deadline - self._env.now())),
            simulated=True,
        )
        result = await opened.append_one(partition, request.key, request.value, wish)
        return produce_payload(
            partition=partition, offset=result.last_offset, hw=result.high_watermark - 1
        )

    # --- CONSUME ----------------------------------------------------------------------------------

    async def consume(self, request: Consume, call: Call) -> bytes:
        """Committed records from an offset; served by the leader, else by a replica here."""
        opened = self._fetch.open(call.principal, request.topic)
        if request.offset < 0:
            raise bad_request("invalid offset")
        topic = await self.ensure_for_reading(request.topic, call)
        if request.partition not in topic.partitions:
            raise bad_request("invalid partition")

        async def read_here() -> bytes:
            return await self._consume(opened.leader(request.partition), request)

        # A replica here can answer at once without the leader; a topic just made has neither yet.
        has_replica = opened.hosted(request.partition) is not None
        until = self._env.now() + (0.0 if has_replica else self._limits.leader_wait_s)
        try:
            return await self._router.on_leader(
                call,
                request.topic,
                request.partition,
                read_here,
                until=until,
                # Time must be left for a replica here when the leader's node hangs.
                patience_s=self._limits.leader_wait_s + self._limits.commit_wait_s,
            )
        except (NotLeader, RequestTimedOut):
            if call.forwarded:
                raise
            replica = opened.hosted(request.partition)
            if replica is None:
                raise unreachable(request.topic, request.partition) from None
            return await self._consume(replica, request)

    async def ensure_for_reading(self, name: str, call: Call) -> TopicView:
        """As :meth:`ensure` for what writes nothing: without an answer it is UNAVAILABLE."""
        try:
            return await self.ensure(name, call)
        except RequestTimedOut as error:
            raise V1Error(V1Code.UNAVAILABLE, NO_CONTROLLER) from error

    async def _consume(self, replica: ReadableReplica, request: Consume) -> bytes:
        if replica.readable_end(Isolation.READ_COMMITTED) <= request.offset < replica.log_end:
            # A record appended with acks=1 becomes readable a round trip later; a client that
            # produced it reads its own write (DESIGN 4.4).
            wait_s = self._limits.commit_wait_s
            await replica.wait_readable(request.offset, Isolation.READ_COMMITTED, wait_s)
        messages = MessageList(
            encoding=request.encoding,
            with_keys=request.with_keys,
            max_records=request.max_records,
            max_bytes=self._limits.consume_max_bytes,
        )
        end = await self.collect(replica, request.offset, messages)
        payload = consume_payload(messages, hw=end - 1)
        replica.fetched(len(messages), len(payload))
        return payload

    async def collect(self, replica: ReadableReplica, offset: int, messages: MessageList) -> int:
        """Fill ``messages`` from ``offset``; return the high watermark they were read under.

        Committed data only, from the log start if ``offset`` is below it (DESIGN 4.4). Scans over
        hidden records until a visible one or the end (services/DESIGN 4.1).
        """
        position = max(offset, replica.start)
        if position >= replica.readable_end(Isolation.READ_COMMITTED):
            return replica.high_watermark
        scan = replica.scan(position, max_bytes=self._limits.consume_max_bytes, from_follower=True)
        try:
            while (records := await scan.next_batch()) is not None:
                for record in records:
                    if not messages.add(record.offset, record.key, record.value):
                        return scan.high_watermark
        except CorruptMessage as error:
            raise V1Error(V1Code.INTERNAL, str(error)) from error
        return scan.high_watermark
