"""What a task says of a batch that it cannot read."""

from __future__ import annotations

import pytest

from paceline.client.consumed import ConsumedBatch
from paceline.spark import reading
from paceline.spark.errors import PacelineCorruptBatch
from paceline.types import Compression, TopicPartition
from paceline.wire.batch import build_batch, read_header
from paceline.wire.records import Record


def test_a_batch_that_unpacks_to_more_than_readers_take_is_named() -> None:
    """Brokers refuse to store such a batch; one that was stored before they did may be there."""
    records = [Record(-1, 1, b"k", bytes(10_000)) for _ in range(3400)]
    data = memoryview(build_batch(records, compression=Compression.ZSTD))
    header = read_header(data)
    batch = ConsumedBatch(TopicPartition("t", 3), header, data, 0, header.next_offset)
    with pytest.raises(PacelineCorruptBatch, match=r"t/3: .* exceed.* limit of 33554432"):
        reading._records(batch)
