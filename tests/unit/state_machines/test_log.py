"""What a machine folds was checked; what does not hold is looked at by whoever repairs."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from paceline.errors import CorruptMessage
from paceline.wire.batch import build_batch
from paceline.wire.records import Record
from paceline_node.state_machines.topic import PartitionLog
from paceline_node.storage.memory_disk import MemoryDisk
from paceline_node.storage.reading import LocalSlice

GOOD = (10, 11, 12)


def partition_of(data: bytes) -> Any:
    file = MemoryDisk().create("log")
    file.append([data])
    partition = mock.Mock()
    partition.log.is_damaged = False
    partition.log.locate.return_value = LocalSlice(file, 0, len(data), GOOD[0], GOOD[-1] + 1)
    return partition


def stored(*bases: int) -> bytearray:
    return bytearray(
        b"".join(build_batch([Record(key=b"k", value=b"v")], base_offset=base) for base in bases)
    )


def test_what_holds_is_given() -> None:
    data = stored(*GOOD)
    assert PartitionLog(partition_of(data), lambda: True).read(10, 1000, 13) == data


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("part", ["value", "base offset"])
def test_damage_is_reported_once_and_never_folded(part: str, is_known: bool) -> None:
    """A coordinator went on from a batch's own word, or waited for a scrub, a week perhaps."""
    data = stored(*GOOD)
    if part == "value":
        data[-2] ^= 1
    else:
        data = stored(10, 75, 12)
    partition = partition_of(data)
    partition.log.is_damaged = is_known
    with pytest.raises(CorruptMessage):
        PartitionLog(partition, lambda: True).read(10, 1000, 13)
    assert partition.suspect.mock_calls == ([] if is_known else [mock.call(10)])
