from __future__ import annotations

from paceline_cluster.chaos.plot import plot
from paceline_cluster.chaos.timeline import timeline
from paceline_cluster.checker import events
from paceline_cluster.checker.events import Event

AT, OTHER = "orders/0", "orders/1"


def _history(gaps: tuple[tuple[float, float], ...], *, moved_at: float) -> list[Event]:
    """Acknowledgements every 50 ms in two partitions; the first pauses during ``gaps``."""
    told: list[Event] = [
        events.Begin(0.0, 1, {}),
        events.Stream(0.0, 0, "w", "a", AT, "all", True, True),
        events.Stream(0.0, 1, "w", "b", OTHER, "all", True, True),
    ]
    for step in range(200):
        t = step * 0.05
        if not any(begin < t < end for begin, end in gaps):
            told.append(events.Ok(t, 0, step, 2, step, 5 if t < moved_at else 6))
        told.append(events.Ok(t, 1, step, 1, step, 3))
    return told


def _with(told: list[Event], *more: Event) -> list[Event]:
    return sorted([*told, *more], key=lambda event: event.t)


def test_a_fault_is_felt_as_long_as_a_partition_stands_still() -> None:
    told = _with(
        _history(((2.0, 3.5),), moved_at=3.5),
        events.Fault(2.1, 0, "kill", "leader of orders/0", (1,), (AT,)),
        events.Healed(2.6, 0),
        events.Fault(7.0, 1, "clock", "any", (2,)),
        events.Healed(8.0, 1),
    )
    seen = timeline(told)
    kill, clock = seen.faults
    assert (round(kill.stall_s, 2), kill.stalled) == (1.4, AT)
    assert kill.takeover_s is not None
    assert round(kill.takeover_s, 2) == 1.4
    assert (clock.stall_s, clock.takeover_s) == (0.0, None)
    assert [(stall.at, stall.begin) for stall in seen.stalls] == [(AT, 2.0)]
    assert sum(seen.acknowledged) == sum(
        event.count for event in told if isinstance(event, events.Ok)
    )


def test_a_stall_after_a_fault_is_its_own_unless_another_came_between() -> None:
    stall = _history(((3.0, 4.0),), moved_at=99)
    first = [events.Fault(2.0, 0, "isolate", "any", (1,)), events.Healed(2.5, 0)]
    [alone] = timeline(_with(stall, *first)).faults
    assert round(alone.stall_s, 2) == 1.0
    second = [events.Fault(2.8, 1, "isolate", "any", (2,)), events.Healed(3.5, 1)]
    before, after = timeline(_with(stall, *first, *second)).faults
    assert before.stall_s == 0.0
    assert round(after.stall_s, 2) == 1.0


def test_the_plot_shows_lines_and_faults() -> None:
    told = _with(
        _history((), moved_at=99),
        events.Fault(1.0, 0, "kill", "<b>", (0, 2)),
        events.Fault(1.5, 1, "isolate", "any", (1,)),
        events.Healed(2.0, 0),
        events.Healed(3.0, 1),
    )
    drawn = plot(timeline(told))
    assert drawn.startswith("<svg")
    assert drawn.endswith("</svg>")
    assert drawn.count("<polyline") == 1
    assert drawn.count("<rect") == 4, "each fault in the plot and in its lane"
    assert "kill of &lt;b&gt; (node 0, 2) 1.00 s" in drawn


def test_an_empty_history_can_be_drawn() -> None:
    assert "<svg" in plot(timeline([events.Begin(0.0, 1, {})]))
