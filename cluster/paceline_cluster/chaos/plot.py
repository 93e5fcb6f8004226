"""Throughput over time with the faults below it, as inline SVG. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from paceline_cluster.chaos.timeline import FaultTimes, Timeline

WIDTH = 1000
_LEFT, _TOP, _PLOT, _LANE = 56, 12, 220, 16
_LINES = (("acknowledged", "#2f7ed8"), ("read", "#1d9a6c"), ("unknown", "#c0392b"))
_COLOURS = {
    "kill": "#b3261e",
    "wipe": "#7a0c0c",
    "terminate": "#d98200",
    "restart": "#d98200",
    "suspend": "#8e44ad",
}
_OTHER = "#4b6b88"


def plot(timeline: Timeline) -> str:
    """Records a second, acknowledged and read, and one bar a fault."""
    lanes = _lanes(timeline.faults)
    height = _TOP + _PLOT + 34 + _LANE * max(1, len(lanes)) + 10
    end = max(timeline.end, timeline.bucket_s)
    series = {name: getattr(timeline, name) for name, _ in _LINES}
    peak = max((max(values, default=0) for values in series.values()), default=0)
    top = _round_up(max(1, peak) / timeline.bucket_s)
    parts = [
        (
            f"<svg viewBox='0 0 {WIDTH} {height}' role=img "
            "aria-label='records a second and faults over time' font-size='11' fill='currentColor'>"
        ),
        *_axes(end, top),
        *(_bar(fault, end, _TOP, _PLOT, 0.12) for fault in timeline.faults),
        *(
            _line(series[name], timeline.bucket_s, end, top, colour)
            for name, colour in _LINES
            if any(series[name])
        ),
        *_legend(series),
    ]
    for number, lane in enumerate(lanes):
        y = _TOP + _PLOT + 34 + number * _LANE
        parts += [_bar(fault, end, y, _LANE - 3, 0.9) for fault in lane]
    return "".join(parts) + "</svg>"


def _x(t: float, end: float) -> float:
    return _LEFT + (WIDTH - _LEFT - 10) * t / end


def _axes(end: float, top: float) -> list[str]:
    parts = []
    for step in range(5):
        y = _TOP + _PLOT * (1 - step / 4)
        parts.append(
            f"<line x1='{_LEFT}' x2='{WIDTH - 10}' y1='{y:.1f}' y2='{y:.1f}' stroke='currentColor' "
            f"stroke-opacity='.15'/><text x='{_LEFT - 6}' y='{y + 4:.1f}' text-anchor='end'>"
            f"{top * step / 4:,.0f}</text>"
        )
    for step in range(11):
        t = end * step / 10
        parts.append(
            f"<text x='{_x(t, end):.1f}' y='{_TOP + _PLOT + 16}' text-anchor='middle'>{t:.0f}"
            f"{' s' if step == 10 else ''}</text>"
        )
    return parts


def _line(values: Sequence[int], bucket_s: float, end: float, top: float, colour: str) -> str:
    points = " ".join(
        f"{_x((place + 0.5) * bucket_s, end):.1f},{_TOP + _PLOT * (1 - value / bucket_s / top):.1f}"
        for place, value in enumerate(values)
    )
    return f"<polyline points='{points}' fill='none' stroke='{colour}' stroke-width='1.5'/>"


def _legend(series: dict[str, Sequence[int]]) -> list[str]:
    shown = [(name, colour) for name, colour in _LINES if any(series[name])]
    return [
        f"<text x='{_LEFT + 10 + 150 * place}' y='{_TOP + 10}' fill='{colour}'>{name} records/s"
        "</text>"
        for place, (name, colour) in enumerate(shown)
    ]


def _bar(fault: FaultTimes, end: float, y: float, height: float, opacity: float) -> str:
    left, right = _x(fault.event.t, end), _x(fault.end, end)
    colour = _COLOURS.get(fault.event.kind, _OTHER)
    nodes = ", ".join(map(str, fault.event.nodes))
    title = f"{fault.event.kind} of {fault.event.target} (node {nodes}) {fault.event.t:.2f} s"
    return (
        f"<rect x='{left:.1f}' y='{y:.1f}' width='{max(2.0, right - left):.1f}' "
        f"height='{height:.1f}' fill='{colour}' fill-opacity='{opacity}'>"
        f"<title>{escape(title)}</title></rect>"
    )


def _lanes(faults: Sequence[FaultTimes]) -> list[list[FaultTimes]]:
    """Faults in rows, none of which overlaps another of its row."""
    lanes: list[list[FaultTimes]] = []
    for fault in faults:
        for lane in lanes:
            if lane[-1].end <= fault.event.t:
                lane.append(fault)
                break
        else:
            lanes.append([fault])
    return lanes


def _round_up(value: float) -> float:
    """The next of 1, 2, 5, 10, 20 ... times four steps."""
    step = 1.0
    while True:
        for factor in (1, 2, 5):
            if value <= 4 * step * factor:
                return 4 * step * factor
        step *= 10
