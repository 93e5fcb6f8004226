"""Appending records whose producers number them (DESIGN 5).

For protocols that send single records instead of v2 batches. What a log already holds is left out,
record by record; the rest is appended in batches. A request that is larger than a part is appended
part by part, and the loop has its turn between them: what was stored before a part failed is said,
not hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paceline.errors import PacelineError
from paceline.types import Acks
from paceline.values import dataclass
from paceline.wire.batch import BatchHeader
from paceline_node.bare_errors import bare
from paceline_node.env import Env
from paceline_node.loop_turns import Turns
from paceline_node.replication.partition import Partition, ProduceResult
from paceline_node.sequence_numbers import Number, Rule, SequencedRecords
from paceline_node.services.future import Future
from paceline_node.services.partitions.batch_sizes import check_sizes
from paceline_node.sliced_work import at_once
from paceline_node.storage.sequenced_batches import BuiltBatch, build_batches
from paceline_node.storage.sequenced_records import select_new, selecting

_PART_BYTES = 1024 * 1024
_PART_BATCHES = 250
_THREAD_RECORDS = 2000
"""More records than this are encoded in a thread."""


@dataclass(frozen=True, slots=True)
class Appended:
    """What became of a request.

    ``last_offset`` is that of its last record that is stored (the log's last offset when all were
    there before), ``high_watermark`` the partition's when that was told. ``stored`` counts the
    leading records of the request that are; with an ``error`` the others are not, or their fate is
    unknown as the error says.
    """

    last_offset: int
    high_watermark: int
    stored: int
    error: PacelineError | None = None


@dataclass(frozen=True, slots=True)
class RecordsWish:
    """How a request wants its records appended. ``rule`` None stores every record, whatever its
    number; its records must carry none then. New producers are counted for ``client``.
    ``simulated``: see :meth:`Partition.produce`."""

    acks: Acks
    timeout_s: float
    rule: Rule | None = None
    client: str = ""
    simulated: bool = False


class SequencedAppender:
    """Appends to partitions that this node leads."""

    def __init__(self, env: Env, turns: Turns) -> None:
        self._env = env
        self._turns = turns

    async def append(
        self, partition: Partition, records: SequencedRecords, wish: RecordsWish
    ) -> Appended:
        """Append what is new of ``records``, at least one, and wait as ``wish`` says.

        Raises with nothing appended: StaleProducerEpoch, SequenceGap, Throttled, MessageTooLarge,
        and what :meth:`Partition.produce` raises. Once something is stored, errors are in the
        result. Cancelled, it leaves what it has appended.
        """
        built = await self._build(records, partition.config.max_message_bytes)
        check_sizes(partition, (each.header for each in built))
        if wish.rule is not None:
            # All of it, before anything is written; again with each part, as others may write too.
            await self._judge(records.numbers, partition, wish.rule)
        answers: list[Future[ProduceResult]] = []
        stops: list[int] = []
        failure: PacelineError | None = None
        for part in _parts(built):
            if answers:
                await self._turns.next()
            try:
                answer = self._append_part(partition, records, part, wish)
            except PacelineError as error:
                if not answers:
                    raise
                failure = bare(error)
                break
            answers.append(answer)
            stops.append(part[-1].stop)
        last_offset, high_watermark, stored = -1, -1, 0
        for answer, stop in zip(answers, stops, strict=True):
            try:
                result = await answer.wait()
            except PacelineError as error:
                if not stored:
                    raise
                return Appended(last_offset, high_watermark, stored, bare(error))
            last_offset, high_watermark, stored = result.last_offset, result.high_watermark, stop
        return Appended(last_offset, high_watermark, stored, failure)

    async def _judge(
        self, numbers: Sequence[Number | None], partition: Partition, rule: Rule
    ) -> None:
        work = selecting(numbers, partition.log.producers.sequenced, rule)
        if len(numbers) <= _THREAD_RECORDS:
            at_once(work)
        else:
            await self._turns.run(work)

    async def _build(self, records: SequencedRecords, batch_bytes: int) -> list[BuiltBatch]:
        stamp_ms = self._env.stamp_ms()

        def build() -> list[BuiltBatch]:
            return list(build_batches(records, timestamp_ms=stamp_ms, batch_bytes=batch_bytes))

        if len(records.values) <= _THREAD_RECORDS:
            return build()
        return await self._env.host.run_blocking(build)

    def _append_part(
        self,
        partition: Partition,
        records: SequencedRecords,
        part: list[BuiltBatch],
        wish: RecordsWish,
    ) -> Future[ProduceResult]:
        """Judge and append; synchronous, so that nobody writes in between."""
        answer: Future[ProduceResult] = Future()
        start, stop = part[0].start, part[-1].stop
        if wish.rule is not None:
            numbers = records.numbers[start:stop]
            new = select_new(numbers, partition.log.producers.sequenced, wish.rule)
            if not new:
                part = []
            elif len(new) < stop - start:
                chosen = records.chosen([start + at for at in new])
                stamp_ms = part[0].header.base_timestamp
                most = partition.config.max_message_bytes
                part = list(build_batches(chosen, timestamp_ms=stamp_ms, batch_bytes=most))
        headers: list[BatchHeader] = [each.header for each in part]
        data = part[0].data if len(part) == 1 else bytearray().join(each.data for each in part)
        partition.produce(
            data,
            headers,
            acks=wish.acks,
            timeout_s=wish.timeout_s,
            done=answer.deliver,
            simulated=wish.simulated,
            already=partition.log_end_offset - 1,
            client=wish.client,
        )
        return answer


def _parts(built: list[BuiltBatch]) -> Iterator[list[BuiltBatch]]:
    """Batches in groups that are appended at once, without a turn for others."""
    part: list[BuiltBatch] = []
    size = 0
    for batch in built:
        is_full = len(part) >= _PART_BATCHES or size + len(batch.data) > _PART_BYTES
        if part and is_full:
            yield part
            part, size = [], 0
        part.append(batch)
        size += len(batch.data)
    if part:
        yield part
