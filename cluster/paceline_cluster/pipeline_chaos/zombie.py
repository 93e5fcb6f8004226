"""A task attempt that does not know that it was given up: writes once the batch is committed.

What it was told goes to the run's folder: the errors that refused it, or that nothing did. All but
its being too late is as it should be, so that only a rule about that can refuse it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from paceline.client import blocking
from paceline.client.sequenced import SequencedBatch
from paceline.errors import (
    AlreadyCommitted,
    InvalidProducerEpoch,
    InvalidTransactionState,
    PacelineError,
    ProducerFenced,
    SinkFenced,
)
from paceline.types import TopicPartition
from paceline.wire.batch import TRANSACTIONAL, build_batch
from paceline.wire.native.transactions import SINK
from paceline.wire.records import Record
from paceline_cluster.pipeline_chaos import points

VALUE = b"written by a zombie"
TOO_LATE_TO_WRITE = (InvalidProducerEpoch, InvalidTransactionState, ProducerFenced)
TOO_LATE_TO_BEGIN = (AlreadyCommitted, SinkFenced)


def main(text: str) -> None:
    told: dict[str, Any] = json.loads(text)
    deadline = time.monotonic() + points.PATIENCE_S
    while not (points.folder() / points.COMMITTED).exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    with blocking.connect(told["bootstrap"]) as client:
        wrote = _answer(lambda: _write(client, told), *TOO_LATE_TO_WRITE)
        began = _answer(lambda: _begin(client, told["write"]), *TOO_LATE_TO_BEGIN)
    points.tell(points.ANSWER, f"write: {wrote}; begin: {began}")


def _answer(attempt: Callable[[], object], *refusals: type[PacelineError]) -> str:
    try:
        attempt()
    except refusals as error:
        return f"{type(error).__name__}: {error}"
    except PacelineError as error:
        return f"{points.NOT_REFUSED}, but {type(error).__name__}: {error}"
    return points.NOT_REFUSED


def _write(client: blocking.Client, told: dict[str, Any]) -> None:
    """Into the transaction that the attempt left open."""
    batch = build_batch(
        [Record(-1, 0, None, VALUE)],
        # The transaction's name ends in its producer id.
        producer_id=int(told["transaction"].rsplit("/", 1)[1]),
        producer_epoch=0,
        base_sequence=told["written"],
        flags=TRANSACTIONAL,
    )
    writer = client.sequenced_writer(transactional_id=told["transaction"], transaction_family=SINK)
    writer.write([SequencedBatch(TopicPartition(told["topic"], told["partition"]), batch)])


def _begin(client: blocking.Client, write: dict[str, Any]) -> None:
    """As one more attempt at the batch."""
    client.sinks.begin(
        write["sink"],
        query=write["query"],
        run=write["run"],
        batch=write["batch"],
        partition=0,
        attempt=9,
        timeout_s=60,
    )


if __name__ == "__main__":
    main(sys.argv[1])
