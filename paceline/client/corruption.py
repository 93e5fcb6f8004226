"""Telling a leader that what it sent does not hold (DESIGN 2.1).

A leader sends batches without looking at them; the reader's check is the first one. It reports each
bad range once, waits for the leader's own look, and then asks for the batch again: from the same
leader if that found nothing wrong (the way was at fault), else from the one that takes over.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from paceline.client.connection import Answer
from paceline.client.metadata import Metadata
from paceline.client.pool import ConnectionPool, Lane
from paceline.errors import PacelineError, RemoteProtocolError
from paceline.types import TopicPartition
from paceline.wire.native.api import NativeApi
from paceline.wire.native.data import CorruptExamined, ReportCorrupt

_PAUSE_S = 0.2


class Judgement(enum.Enum):
    """What a leader says of its copy."""

    HOLDS = "holds"
    DAMAGED = "damaged"
    NONE = "none"
    """It has not looked, and another report may have it look."""


Judged = Callable[[Judgement], None]
"""Told once what the leader found."""


class CorruptionReports:
    """Posts reports, at most five a second."""

    def __init__(self, pool: ConnectionPool, metadata: Metadata) -> None:
        self._pool = pool
        self._metadata = metadata
        self._next_at = 0.0

    def post(self, at: TopicPartition, offset: int, now: float, judged: Judged) -> bool:
        """Report the batch at ``offset``; False when that is not possible now, and ``judged`` is
        not called then."""
        leader = self._metadata.view.leader(at)
        if leader is None or now < self._next_at:
            return False

        def answered(answer: Answer) -> None:
            judgement = _judgement(answer)
            if judgement is Judgement.DAMAGED:
                self._metadata.view.doubt(at, leader.epoch)
            judged(judgement)

        report = ReportCorrupt(at.topic, at.partition, offset, leader.epoch)
        try:
            connection = self._pool.ready(leader.node, Lane.FETCH)
            if connection is None or not connection.has_room:
                return False
            connection.post(NativeApi.REPORT_CORRUPT, report.pack(), answered, wait_s=0.0)
        except PacelineError:
            return False
        self._next_at = now + _PAUSE_S
        return True


def _judgement(answer: Answer) -> Judgement:
    if isinstance(answer, PacelineError):
        return Judgement.NONE if answer.retriable else Judgement.HOLDS
    try:
        is_damaged = CorruptExamined.unpack(answer.body).damaged
    except RemoteProtocolError:
        is_damaged = False
    return Judgement.DAMAGED if is_damaged else Judgement.HOLDS
