"""Native PRODUCE: batches of a frame's payload to the partitions this node leads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from paceline.errors import InvalidRequest, MessageTooLarge
from paceline.types import LeaderEpoch
from paceline.wire.batch import checked_batches
from paceline.wire.batch_header import LENGTH_OVERHEAD, BatchHeader, read_header
from paceline.wire.frame import Frame
from paceline.wire.message import Packed
from paceline.wire.native.data import (
    Produce,
    ProducedPartition,
    ProducePartition,
    pack_produced,
)
from paceline_node.security.principals import Principal
from paceline_node.services.partitions.partition_access import Refused
from paceline_node.services.records.produce import (
    Outcome,
    Part,
    ProduceService,
    Wish,
    Within,
)
from paceline_node.sliced_work import Work, at_once
from paceline_node.transaction_names import Family, TransactionKey

_FAMILIES = {family.value: family for family in (Family.KAFKA, Family.SINK)}
"""Whose transactions native clients write in."""
MAX_PART_BYTES = 8 * 1024 * 1024
"""Of several batches for one partition in one request, which are written at once."""

Answer = Callable[[Packed, int], None]
"""Takes the packed ProduceReply and the first partition's error that is one, 0 when all went well.
"""


class ProduceHandler:
    """Appends for native clients. ``max_timeout_ms`` caps what a client may ask to wait."""

    def __init__(self, produce: ProduceService, *, max_timeout_ms: int = 120_000) -> None:
        self._produce = produce
        self._max_timeout_ms = max_timeout_ms

    def handle(self, frame: Frame, principal: Principal, answer: Answer, account: str = "") -> None:
        """Append what ``frame`` carries; ``answer`` is called once, maybe before this returns.
        New producers are counted for ``account``.

        Offsets are stamped into the frame's own memory. Raises RemoteProtocolError,
        InvalidRequest or AuthorizationFailed when the request as a whole is refused; nothing was
        appended then.
        """
        at_once(self.handling(frame, principal, answer, account))

    def handling(
        self, frame: Frame, principal: Principal, answer: Answer, account: str = ""
    ) -> Work[None]:
        """As :meth:`handle`, a stretch at a time."""
        request = Produce.unpack(frame.body)
        named = request.partitions
        wish = Wish(
            principal,
            request.acks,
            max(0, min(request.timeout_ms, self._max_timeout_ms)) / 1000,
            _headers,
            _transaction_of(request),
            account,
        )
        parts = _parts(named, frame.payload)
        return self._produce.appending(wish, parts, partial(_answer, named, answer))


def _parts(named: Sequence[ProducePartition], payload: memoryview) -> list[Part]:
    """Each partition's batches. Raises InvalidRequest for a payload of another size than said."""
    sizes = [each.records_bytes for each in named]
    if sum(sizes) != len(payload) or min(sizes, default=0) < 0:
        raise InvalidRequest(f"payload of {len(payload)} bytes, the partitions name {sizes}")
    if payload.readonly:  # of a WebSocket message
        payload = memoryview(bytearray(payload))
    parts, position = [], 0
    for each in named:
        batches = payload[position : position + each.records_bytes]
        position += each.records_bytes
        parts.append(Part(each.topic, each.partition, batches, each.current_leader_epoch))
    return parts


def _headers(batches: memoryview, allowed: int) -> Iterable[BatchHeader]:
    """Any number of batches."""
    if not batches:
        raise InvalidRequest("no batch for a partition in the payload")
    if len(batches) > MAX_PART_BYTES and not _is_one_batch(batches):
        raise MessageTooLarge(
            f"several batches of {len(batches)} bytes for a partition in one request, limit "
            f"{MAX_PART_BYTES}: send them in several"
        )
    return checked_batches(batches, allowed_attributes=allowed)


def _is_one_batch(batches: memoryview) -> bool:
    return read_header(batches).batch_length + LENGTH_OVERHEAD == len(batches)


def _transaction_of(request: Produce) -> Within | None:
    if request.transactional_id is None:
        return None
    family = _FAMILIES.get(request.transaction_family)
    if family is None:
        raise InvalidRequest(f"transactions of family {request.transaction_family!r}")
    return Within(TransactionKey(family, request.transactional_id), adds=True)


def _answer(named: Sequence[ProducePartition], answer: Answer, outcomes: list[Outcome]) -> None:
    results = []
    first_error = 0
    for part, outcome in zip(named, outcomes, strict=True):
        if isinstance(outcome, Refused):
            first_error = first_error or outcome.error.code
            results.append(_refused(part, outcome))
        else:
            results.append(pack_produced(part, *outcome))
    answer(Packed([results]), first_error)


def _refused(part: ProducePartition, outcome: Refused) -> list[Any]:
    error = outcome.error
    refused = ProducedPartition(
        topic=part.topic,
        partition=part.partition,
        error=int(error.code),
        message=str(error),
        base_offset=-1,
        last_offset=-1,
        leader_epoch=LeaderEpoch(outcome.leader_epoch),
        high_watermark=-1,
        log_start_offset=-1,
        leader=outcome.leader,
    )
    return refused.pack()
