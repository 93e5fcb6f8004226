"""What the driver says of a batch when it is committed."""

from __future__ import annotations

import pytest

from paceline.spark.options import parse_sink
from paceline.spark.sink import TaskMessage, commit
from paceline.spark.sink_ids import WriteId

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
