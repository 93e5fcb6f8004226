"""What one segment connection does costs the node no look at all the others."""

from __future__ import annotations

from paceline_node.listeners.segment.limits import NodeBudget


class Connection:
    def __init__(self) -> None:
        self.looks = 0

    def look_again(self) -> None:
        self.looks += 1


def test_idle_connections_are_never_looked_at() -> None:
    """4,000 of them made every append three times slower."""
    budget = NodeBudget(100)
    idle = [Connection() for _ in range(4000)]
    busy = Connection()
    for each in (*idle, busy):
        budget.join(each)
    for _ in range(1000):
        budget.changed(busy, 60)
        assert not budget.must_wait(busy)
        budget.changed(busy, -60)
    assert budget.inflight_bytes == 0
    assert {each.looks for each in idle} == {0}
    assert busy.looks == 1000


def test_the_one_with_the_most_waits_until_there_is_room() -> None:
    budget = NodeBudget(100)
    large, small = Connection(), Connection()
    budget.join(large)
    budget.join(small)
    budget.changed(large, 80)
    budget.changed(small, 30)
    assert budget.must_wait(large)
    assert not budget.must_wait(small)
    budget.changed(small, -30)
    assert large.looks == 1
    assert not budget.must_wait(large)


def test_what_leaves_is_not_counted_whatever_comes_of_it_later() -> None:
    budget = NodeBudget(100)
    gone, waiting = Connection(), Connection()
    budget.join(gone)
    budget.join(waiting)
    budget.changed(gone, 90)
    budget.changed(waiting, 90)
    assert budget.must_wait(waiting)
    budget.leave(gone)
    assert waiting.looks == 1
    budget.changed(gone, -90)
    assert budget.inflight_bytes == 90
    assert not budget.must_wait(waiting)
