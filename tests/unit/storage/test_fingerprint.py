"""What a log's newest file is known by, as it grows and is cut."""

from __future__ import annotations

from paceline.wire.batch import read_header
from paceline.wire.batch_header import CONTROL, BatchHeader
from paceline_node.storage.fingerprint import LEAST, MOST, UNKNOWN, Fingerprint, NewestFile
from paceline_node.storage.offset_assignment import Placed
from tests.unit.storage.world import batch


def header(value: int, *, is_marker: bool = False) -> BatchHeader:
    found = read_header(batch(value=b"%d" % value))
    return found._replace(attributes=CONTROL) if is_marker else found


def append(newest: NewestFile, offset: int, *headers: BatchHeader) -> int:
    newest.appended([Placed(0, each, at) for at, each in enumerate(headers, offset)])
    return offset + len(headers)


def markers(count: int) -> list[BatchHeader]:
    return [header(number, is_marker=True) for number in range(count)]


def test_it_reaches_back_to_a_batch_that_is_no_marker() -> None:
    newest = NewestFile()
    newest.begun(0)
    end = append(newest, 0, header(1), header(2), *markers(10))
    assert newest.told(end).reach == 11
    end = append(newest, end, header(3))
    assert newest.told(end).reach == LEAST


def test_more_markers_than_that_tell_nothing() -> None:
    newest = NewestFile()
    newest.begun(0)
    end = append(newest, 0, header(1), *markers(2 * MOST))
    assert newest.told(end).reach == MOST


def test_an_earlier_batch_shows() -> None:
    told = []
    for value in (1, 2):
        newest = NewestFile()
        newest.begun(0)
        end = append(newest, 0, header(9), header(value), *markers(6))
        told.append(newest.told(end))
    assert told[0].trail != told[1].trail
    assert told[0]._replace(trail=0) == told[1]._replace(trail=0)


def test_what_is_cut_is_forgotten() -> None:
    newest = NewestFile()
    newest.begun(5)
    end = append(newest, 5, header(1), header(2))
    before = newest.told(end)
    append(newest, end, header(3))
    newest.cut(end)
    assert newest.told(end) == before
    newest.cut(5)
    assert newest.told(5) == Fingerprint(first=header(1).crc)
    newest.begun(-1)  # another file is the newest, and nothing was read of it
    assert newest.told(5) == UNKNOWN
    assert newest.told(append(newest, 5, header(2))).first == 0
