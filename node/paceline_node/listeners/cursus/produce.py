"""Cursus batches and PUBLISH: accepted by every node, carried out by the partition's leader."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.errors import NotEnoughReplicas, NotLeader, Outcome, PacelineError
from paceline.types import Acks, NodeId, is_internal_topic, is_valid_topic_name
from paceline.values import dataclass
from paceline.wire.cursus.batch import CursusBatch, CursusRecord, Dialect, encode_batch
from paceline.wire.cursus.errors import CursusError, class_of, malformed_batch, quoted
from paceline.wire.cursus.partitioner import partition_for
from paceline.wire.cursus.replies import Ack, ack_json
from paceline.wire.cursus.requests import Publish
from paceline.wire.cursus_record_mapping import columns_of
from paceline.wire.peer.api import PeerApi
from paceline.wire.peer.cursus import CursusFrame
from paceline_node.env import Env
from paceline_node.listeners.cursus.errors import as_cursus
from paceline_node.listeners.cursus.partition_turns import PartitionTurns
from paceline_node.listeners.cursus.session import CursusCall, Reply, text
from paceline_node.listeners.cursus.topic_lookup import TopicLookup
from paceline_node.sequence_numbers import Number, NumberRuns, Rule, SequencedRecords, producer_key
from paceline_node.services.leader_routing import LeaderRouting
from paceline_node.services.partitions.sequenced_appends import Appended, RecordsWish
from paceline_node.services.partitions.writable_topic import WritableTopic
from paceline_node.services.records.produce import ProduceService
from paceline_node.services.topics.cluster_view import TopicView
from paceline_node.settings.cursus import CursusSettings
from paceline_node.settings.topic_config import PARTITIONER, PRODUCER_NUMBERING

BATCH = "BATCH"
"""What a batch is called where commands are called by their word."""
_INLINE_RECORDS = 1000
"""More than these are made into columns, and into a frame for another node, in a thread."""
_MAX_RUNS = 1000
"""Batches of the log that the numbered records of one batch may be: each costs far more than a
record. Clients number a batch's records one after the other, in one run."""
_ANSWER_S = 0.1
"""Left of a call's time when an append is given up, so that its answer can still go out."""
_IN_ACKS = frozenset({"fencing", "availability"})
"""Classes of refusals that batches are told in their acknowledgement; others are text."""


@dataclass(frozen=True, slots=True)
class ProduceLimits:
    """How long a leader is waited for, and an acknowledgement."""

    leader_wait_s: float = CursusSettings().leader_wait_ms / 1000
    ack_timeout_s: float = CursusSettings().ack_timeout_ms / 1000


class CursusProduce:
    """Appends for Cursus clients."""

    def __init__(
        self,
        env: Env,
        produce: ProduceService,
        places: TopicLookup,
        routing: LeaderRouting,
        limits: ProduceLimits,
    ) -> None:
        self._env = env
        self._service = produce
        self._places = places
        self._routing = routing
        self._limits = limits
        self._turns = PartitionTurns()

    async def publish(self, request: Publish, call: CursusCall) -> Reply:
        """PUBLISH is a batch of one record. Its acks=0 is answered OK."""
        record = CursusRecord(
            sequence=request.sequence,
            producer_id=request.producer_id.encode(),
            key=request.key.encode(),
            epoch=request.epoch,
            payload=request.message.encode(),
        )
        partition = -1 if request.partition is None else request.partition
        batch = CursusBatch(
            Dialect.REAL, request.topic, partition, request.acks, request.idempotent, [record]
        )
        reply = await self.batch(batch, call)
        if request.acks is Acks.NONE and reply[0].startswith(b'{"status":"OK"'):
            return text("OK")
        return reply

    async def batch(self, batch: CursusBatch, call: CursusCall) -> Reply:
        """Append a batch; its acknowledgement. Raises CursusError for what is refused in text."""
        producer = _producer_text(batch.records)
        try:
            return await self._produce(batch, producer, call)
        except PacelineError as error:
            if call.forwarded and _may_look_elsewhere(error):
                raise
            told = self._refused(as_cursus(error, call.word, batch.topic), batch, producer)
            if told is None:
                raise as_cursus(error, call.word, batch.topic) from None
            return told

    def _refused(self, refusal: CursusError, batch: CursusBatch, producer: str) -> Reply | None:
        """The acknowledgement that says so; None where it is told in text."""
        if class_of(refusal.word) not in _IN_ACKS:
            return None
        last = batch.records[-1]
        ack = Ack(
            status="ERROR",
            last_offset=0,
            producer_epoch=last.epoch,
            producer_id=producer,
            sequence_start=batch.records[0].sequence,
            sequence_end=last.sequence,
            leader=self._places.leader(batch.topic, batch.partition),
            error=str(refusal),
        )
        return text(ack_json(ack))

    async def _produce(self, batch: CursusBatch, producer: str, call: CursusCall) -> Reply:
        name = batch.topic
        if not is_valid_topic_name(name) or is_internal_topic(name):
            raise CursusError("invalid_topic_name", f"topic={quoted(name)}")
        opened = self._service.open(call.principal, name)
        if batch.partition == -1:
            topic = await self._places.topic(name)
            batch = batch._replace(partition=self.choose(topic, batch.records[0].key))
        topic = await self._places.with_partition(name, batch.partition)
        now = self._env.now()

        async def here() -> Reply:
            return await self._append(opened, topic, batch, producer, call)

        async def there(leader: NodeId) -> Reply:
            # What was compressed or chosen here is sent on as it is to be.
            if len(batch.records) <= _INLINE_RECORDS:
                body = encode_batch(batch)
            else:
                body = await self._env.host.run_blocking(lambda: encode_batch(batch))
            return await self._forward(leader, body, call)

        return await self._routing.on_leader(
            name,
            batch.partition,
            here=here,
            there=None if call.forwarded else there,
            until=min(now + self._limits.leader_wait_s, call.deadline),
            again=(NotLeader,),
        )

    async def _forward(self, leader: NodeId, body: bytes, call: CursusCall) -> Reply:
        budget_s = call.deadline - self._env.now() - _ANSWER_S
        ask = CursusFrame(int(budget_s * 1000), call.session.classed, call.session.account)
        frame = await self._routing.ask(leader, PeerApi.CURSUS_FRAME, ask, body, budget_s=budget_s)
        return (bytes(frame.payload),)

    async def _append(
        self,
        opened: WritableTopic,
        topic: TopicView,
        batch: CursusBatch,
        producer: str,
        call: CursusCall,
    ) -> Reply:
        rule = _rule(topic, batch)
        left_s = call.deadline - self._env.now() - _ANSWER_S
        wait_s = max(0.0, min(self._limits.ack_timeout_s, left_s))
        wish = RecordsWish(batch.acks, wait_s, rule, call.session.account)
        if len(batch.records) <= _INLINE_RECORDS:
            records = _columns(batch.records, rule)
        else:
            records = await self._env.host.run_blocking(lambda: _columns(batch.records, rule))
        try:
            appended = await opened.append(batch.partition, records, wish)
        except NotEnoughReplicas:
            isr, needed = opened.in_sync(batch.partition)
            raise CursusError("not_enough_replicas", f"isr={isr} min={needed}") from None
        return text(self._ack(batch, producer, appended, call))

    def _ack(self, batch: CursusBatch, producer: str, appended: Appended, call: CursusCall) -> str:
        first, last = batch.records[0], batch.records[appended.stored - 1]
        error = "" if appended.error is None else str(as_cursus(appended.error, call.word))
        return ack_json(
            Ack(
                status="PARTIAL" if error else "OK",
                last_offset=0 if batch.acks is Acks.NONE else appended.last_offset,
                producer_epoch=batch.records[-1].epoch,
                producer_id=producer,
                sequence_start=first.sequence,
                sequence_end=last.sequence,
                leader=self._places.leader(batch.topic, batch.partition),
                error=error,
            )
        )

    def choose(self, topic: TopicView, key: bytes) -> int:
        """The broker's choice of a partition (wire/cursus/DESIGN 5)."""
        count = len(topic.partitions)
        if key and topic.configs.get(PARTITIONER, "hash_key") == "hash_key":
            return partition_for(key, count)
        return self._turns.next(topic.topic_id, count)


def _rule(topic: TopicView, batch: CursusBatch) -> Rule | None:
    if topic.configs.get(PRODUCER_NUMBERING) == Rule.STRICT.value:
        return Rule.STRICT
    return Rule.WINDOW if batch.idempotent else None


def _columns(records: Sequence[CursusRecord], rule: Rule | None) -> SequencedRecords:
    numbers: Sequence[Number | None] = [None] * len(records)
    if rule is not None:
        numbers = _numbers(records)
    columns = columns_of(records)
    return SequencedRecords(numbers, columns.values, columns.keys, columns.headers)


def _numbers(records: Sequence[CursusRecord]) -> NumberRuns:
    """Who numbers what; records without a producer or a number are nobody's. Raises CursusError
    for what would be too many batches of the log."""
    known: dict[bytes, tuple[bytes, str]] = {}
    runs = NumberRuns()
    for record in records:
        producer, sequence = record.producer_id, record.sequence
        if not producer or not sequence:
            runs.add_nobody()
            continue
        who = known.get(producer)
        if who is None:
            who = known[producer] = (producer_key(producer), producer.decode("utf-8", "replace"))
        runs.add(*who, record.epoch, sequence)
        if runs.run_count > _MAX_RUNS:
            raise malformed_batch(
                f"more than {_MAX_RUNS} changes of producer, epoch or consecutive sequence"
            )
    return runs


def _producer_text(records: Sequence[CursusRecord]) -> str:
    """The producer that the acknowledgement names. Raises CursusError for a batch that names none
    because it is empty, and for one whose name is no text."""
    if not records:
        raise CursusError("empty_batch", "command=BATCH")
    try:
        return records[-1].producer_id.decode()
    except UnicodeDecodeError:
        raise malformed_batch("the producer id is not UTF-8") from None


def _may_look_elsewhere(error: PacelineError) -> bool:
    """Whether a node that forwarded a request may send it to another one."""
    return isinstance(error, NotLeader) and error.outcome is Outcome.DEFINITE
