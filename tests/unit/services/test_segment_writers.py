"""Who writes: the set-up that arrived last, however late the others are carried out."""

from __future__ import annotations

from uuid import UUID

from paceline.types import TopicId
from paceline_node.services.segments.segment_writers import SegmentWriters, Turn

WRITER = ((TopicId(UUID(int=7)), 0), bytes(16))


class Connection:
    """One that counts how often it is fenced."""

    def __init__(self, writers: SegmentWriters) -> None:
        self._writers = writers
        self.fenced = 0

    def fence(self) -> None:
        self.fenced += 1

    def claim(self, turn: Turn) -> None:
        self._writers.claim(WRITER, turn, self.fence)

    def release(self) -> None:
        self._writers.release(WRITER, self.fence)


def test_the_later_fences_the_earlier() -> None:
    writers = SegmentWriters()
    one, two = Connection(writers), Connection(writers)
    one.claim(writers.arrived())
    two.claim(writers.arrived())
    assert (one.fenced, two.fenced) == (1, 0)


def test_the_earlier_is_fenced_when_it_comes_late() -> None:
    writers = SegmentWriters()
    one, two, three = (Connection(writers) for _ in range(3))
    earlier, later = writers.arrived(), writers.arrived()
    two.claim(later)
    one.claim(earlier)
    assert (one.fenced, two.fenced) == (1, 0)
    three.claim(writers.arrived())
    assert (one.fenced, two.fenced, three.fenced) == (1, 1, 0)


def test_the_same_connection_may_come_last_again() -> None:
    writers = SegmentWriters()
    one, two = Connection(writers), Connection(writers)
    for connection in (one, two, one):
        connection.claim(writers.arrived())
    assert (one.fenced, two.fenced) == (1, 1)


def test_one_that_has_gone_holds_nobody_up() -> None:
    writers = SegmentWriters()
    one, two = Connection(writers), Connection(writers)
    earlier, later = writers.arrived(), writers.arrived()
    two.claim(later)
    two.release()
    one.claim(earlier)
    two.release()
    assert (one.fenced, two.fenced, len(writers)) == (0, 0, 1)
