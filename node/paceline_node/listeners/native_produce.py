"""Native PRODUCE: batches of a frame's payload to the partitions this node leads.

No task and no await per request: every partition's append happens here and now, in order of
arrival, and the answer is sent by the callback of the last partition to be decided.
"""

from __future__ import annotations

from collections.abc import Callable

from paceline.errors import InvalidRequest, PacelineError, PolicyViolation
from paceline.types import NO_EPOCH, NO_NODE, LeaderEpoch, NodeId, is_internal_topic
from paceline.wire.batch import validate_client_batches
from paceline.wire.frame import Frame
from paceline.wire.native.data import (
    Produce,
    ProducedPartition,
    ProducePartition,
    ProduceReply,
)
from paceline_node.replication.partition import Partition, ProduceResult
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.records import RecordService

Answer = Callable[[ProduceReply], None]


class ProduceHandler:
    """Appends for native clients. ``max_timeout_ms`` caps what a client may ask to wait."""

    def __init__(self, records: RecordService, *, max_timeout_ms: int = 120_000) -> None:
        self._records = records
        self._max_timeout_ms = max_timeout_ms

    def handle(self, frame: Frame, principal: Principal, answer: Answer) -> None:
        """Append what ``frame`` carries; ``answer`` is called once, maybe before this returns.

        Raises RemoteProtocolError or InvalidRequest when the request as a whole is wrong; nothing
        was appended then.
        """
        request = Produce.unpack(frame.body)
        if request.transactional_id is not None:
            raise InvalidRequest("transactions are not served by this version")
        sizes = [part.records_bytes for part in request.partitions]
        if sum(sizes) != len(frame.payload) or min(sizes, default=0) < 0:
            raise InvalidRequest(
                f"payload of {len(frame.payload)} bytes, the partitions name {sizes}"
            )
        pending = _PendingReply(request, answer)
        timeout_s = max(0, min(request.timeout_ms, self._max_timeout_ms)) / 1000
        position = 0
        permitted = None
        for index, part in enumerate(request.partitions):
            data = frame.payload[position : position + part.records_bytes]
            position += part.records_bytes
            try:
                if part.topic != permitted:
                    self._records.permit(principal, Operation.PRODUCE, part.topic)
                    permitted = part.topic
                partition = self._leader_of(part)
                # Offsets and epochs are stamped in place, so the batch must be writable.
                batches = bytearray(data)
                headers = validate_client_batches(batches)
                partition.produce(
                    batches,
                    headers,
                    acks=request.acks,
                    timeout_s=timeout_s,
                    done=pending.slot(index),
                )
            except PacelineError as error:
                pending.refuse(
                    index, error, *self._records.leader_to_tell(error, part.topic, part.partition)
                )

    def _leader_of(self, part: ProducePartition) -> Partition:
        if is_internal_topic(part.topic):
            raise PolicyViolation(f"{part.topic}: internal topics take no records from clients")
        if part.records_bytes <= 0:
            raise InvalidRequest(f"{part.topic}/{part.partition}: no batch for it in the payload")
        return self._records.leader(
            part.topic, part.partition, current_leader_epoch=part.current_leader_epoch
        )


class _PendingReply:
    """Collects the results of one request's partitions and answers when the last one is in."""

    __slots__ = ("_answer", "_missing", "_request", "_results")

    def __init__(self, request: Produce, answer: Answer) -> None:
        self._request = request
        self._answer = answer
        self._missing = len(request.partitions)
        self._results: list[ProducedPartition | None] = [None] * self._missing
        if not self._missing:
            answer(ProduceReply(()))

    def slot(self, index: int) -> Callable[[ProduceResult | PacelineError], None]:
        def done(result: ProduceResult | PacelineError) -> None:
            if isinstance(result, PacelineError):
                self.refuse(index, result, NO_NODE, NO_EPOCH)
                return
            part = self._request.partitions[index]
            self._put(
                index,
                ProducedPartition(
                    part.topic,
                    part.partition,
                    0,
                    "",
                    result.base_offset,
                    result.last_offset,
                    LeaderEpoch(result.leader_epoch),
                    result.high_watermark,
                    result.log_start_offset,
                    result.duplicate,
                ),
            )

        return done

    def refuse(self, index: int, error: PacelineError, leader: int, leader_epoch: int) -> None:
        part = self._request.partitions[index]
        refused = ProducedPartition(
            part.topic,
            part.partition,
            int(error.code),
            str(error),
            -1,
            -1,
            LeaderEpoch(leader_epoch),
            -1,
            -1,
            leader=NodeId(leader),
        )
        self._put(index, refused)

    def _put(self, index: int, result: ProducedPartition) -> None:
        assert self._results[index] is None, "a partition answers once"
        self._results[index] = result
        self._missing -= 1
        if not self._missing:
            self._answer(ProduceReply(tuple(r for r in self._results if r is not None)))
