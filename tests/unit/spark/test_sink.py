"""What the driver says of a batch when it is committed; what a task does before its first row."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pyarrow as pa
import pytest

from paceline.spark import exactly_once
from paceline.spark.options import parse_sink
from paceline.spark.sink import TaskMessage, commit, write_task
from paceline.spark.sink_ids import TaskId, WriteId

OPTIONS = {"paceline.bootstrap.servers": "127.0.0.1:1", "topic": "t"}


def test_rows_that_a_named_write_left_out_are_told(caplog: pytest.LogCaptureFixture) -> None:
    options = parse_sink({**OPTIONS, "txnAppId": "daily", "txnVersion": "3"})
    write = WriteId("daily/t", "", "run", 3)
    commit(options, [TaskMessage(write, skipped=4), TaskMessage(write), TaskMessage(write, "", 5)])
    (record,) = caplog.records
    assert "9 rows were not written to t: txnAppId daily has committed" in record.getMessage()


def test_a_repeated_batch_of_a_stream_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    write = WriteId("query", "query", "run", 3)
    commit(parse_sink(OPTIONS), [TaskMessage(write, skipped=4)])
    assert not caplog.records


def test_a_task_keeps_the_batch_open_while_it_waits_for_its_first_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The transactions of tasks that were done timed out, each time the batch was repeated."""
    touched = threading.Event()
    seen: list[tuple[str, str, int]] = []

    class Client:
        def __enter__(self) -> SimpleNamespace:
            return SimpleNamespace(sinks=SimpleNamespace(touch=self.touch))

        def __exit__(self, *_: object) -> None: ...

        def touch(self, sink: str, *, run: str, batch: int) -> int:
            seen.append((sink, run, batch))
            touched.set()
            return 1

    def slow() -> Iterator[pa.RecordBatch]:
        assert touched.wait(60)
        yield from ()

    monkeypatch.setattr(exactly_once, "connect", lambda *_: Client())
    options = parse_sink({**OPTIONS, "transactionTimeoutMs": "1000"})
    write_task(options, TaskId(WriteId("s", "q", "run", 3), 0, 0), slow())
    assert ("s", "run", 3) in seen
