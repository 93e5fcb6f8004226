"""How busy a cluster is, from two looks at what it has counted: rates, times of writes, lags.

Pure. Nodes count since their processes began, so a node that was started between the looks has no
rates yet. What a partition is written is told by its high watermark, which is the same whichever
node leads it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from paceline.documents.survey import Survey
from paceline.types import NodeId, TopicPartition, is_internal_topic
from paceline.values import dataclass
from paceline.wire.native.groups import GroupListing
from paceline.wire.native.load import NodeLoad

_MS = 1000
_COUNTED = {
    "written_records": "appended_records",
    "written_bytes": "appended_bytes",
    "read_records": "fetched_records",
    "read_bytes": "fetched_bytes",
    "requests": "requests",
}
"""What is shown a second, and what it is the change of."""


class GroupLook(NamedTuple):
    """A group with what it has committed; None: its coordinator did not say."""

    listing: GroupListing
    committed: Mapping[TopicPartition, int] | None


@dataclass(frozen=True, slots=True)
class Look:
    """What was counted at ``at_s``. ``loads``: by node, or why it did not say. ``ends``: high
    watermarks of the partitions whose leaders answered; ``leaders`` of all."""

    at_s: float
    seen: Survey
    loads: Mapping[NodeId, NodeLoad | str]
    leaders: Mapping[TopicPartition, NodeId]
    ends: Mapping[TopicPartition, int]
    groups: Sequence[GroupLook]
    groups_left_out: int = 0


class Spread(NamedTuple):
    """How many took up to each bound and no bound before it; the last is of those above all."""

    bounds_us: Sequence[int]
    counts: Sequence[int]

    def quantile_ms(self, part: float) -> float | None:
        """The time that ``part`` of them took at most, as precise as the bounds; None of none."""
        total, seen, low = sum(self.counts), 0, 0
        if not total:
            return None
        for high, count in zip([*self.bounds_us, self.bounds_us[-1]], self.counts, strict=True):
            if count and seen + count >= part * total:
                return round((low + (high - low) * (part * total - seen) / count) / _MS, 3)
            seen += count
            low = high
        return None


def activity(before: Look, now: Look, rows: int) -> dict[str, Any]:
    """What happened in between; of topics, partitions and groups the first ``rows``, the busiest
    and those furthest behind first."""
    between = {node: _between(before.loads.get(node), load) for node, load in now.loads.items()}
    written = _written(before, now)
    topics: defaultdict[str, float] = defaultdict(float)
    for at, rate in written.items():
        topics[at.topic] += rate
    known = [each for each in between.values() if each is not None]
    return {
        "seconds": round(now.at_s - before.at_s, 3),
        "healthy": now.seen.is_healthy(),
        "reasons": now.seen.reasons(),
        "controller": now.seen.controller,
        **_rates(known),
        **_times(known),
        "nodes": [_node(now, node, between[node]) for node in sorted(between)],
        "topics": [
            {
                "name": name,
                "partitions": sum(at.topic == name for at in now.leaders),
                "written_records": round(topics[name], 1),
            }
            for name in sorted(topics, key=lambda each: (-topics[each], *_users_first(each)))[:rows]
        ],
        "partitions": [
            {
                "topic": at.topic,
                "partition": at.partition,
                "leader": now.leaders[at],
                "high_watermark": now.ends[at],
                "written_records": round(written[at], 1),
            }
            for at in sorted(
                written, key=lambda each: (-written[each], *_users_first(each.topic), each)
            )[:rows]
        ],
        "groups": _groups(before, now)[:rows],
        "groups_left_out": now.groups_left_out,
    }


class _Between(NamedTuple):
    """Of one node: how much it has counted a second, and how long what it did took."""

    rates: Mapping[str, float]
    writes: Spread
    syncs: Spread


def _between(before: NodeLoad | str | None, now: NodeLoad | str) -> _Between | None:
    """None where there are no two looks at one process; its own clock says how far they are
    apart."""
    if not isinstance(before, NodeLoad) or not isinstance(now, NodeLoad):
        return None
    seconds = (now.uptime_ms - before.uptime_ms) / _MS
    counted = {
        shown: getattr(now, name) - getattr(before, name) for shown, name in _COUNTED.items()
    }
    if seconds <= 0 or min(counted.values()) < 0 or before.bounds_us != now.bounds_us:
        return None
    return _Between(
        {shown: round(count / seconds, 1) for shown, count in counted.items()},
        Spread(now.bounds_us, _less(now.writes, before.writes)),
        Spread(now.bounds_us, _less(now.syncs, before.syncs)),
    )


def _less(counts: Sequence[int], others: Sequence[int]) -> list[int]:
    return [each - other for each, other in zip(counts, others, strict=True)]


def _rates(known: Sequence[_Between]) -> dict[str, float | None]:
    """Of all nodes together."""
    return {
        name: round(sum(each.rates[name] for each in known), 1) if known else None
        for name in _COUNTED
    }


def _times(known: Sequence[_Between]) -> dict[str, float | None]:
    writes = _together([each.writes for each in known])
    syncs = _together([each.syncs for each in known])
    return {
        f"{name}_p{percent}_ms": spread.quantile_ms(percent / 100)
        for name, spread in (("write", writes), ("sync", syncs))
        for percent in (50, 99)
    }


def _together(spreads: Sequence[Spread]) -> Spread:
    """Nodes of one version have the same bounds; others are left out."""
    if not spreads:
        return Spread((), ())
    bounds = spreads[0].bounds_us
    alike = [each.counts for each in spreads if each.bounds_us == bounds]
    return Spread(bounds, [sum(counts) for counts in zip(*alike, strict=True)])


def _node(now: Look, node: NodeId, between: _Between | None) -> dict[str, Any]:
    load = now.loads[node]
    told = load if isinstance(load, NodeLoad) else None
    view = next((each for each in now.seen.nodes if each.id == node), None)
    status = None if view is None else view.status
    return {
        "node": node,
        "state": now.seen.states().get(node, "unknown"),
        "leads": None if status is None else status.leading_count,
        **_rates([] if between is None else [between]),
        **_times([] if between is None else [between]),
        "connections": None if told is None else told.connections,
        "client_memory_bytes": None if told is None else told.client_memory_bytes,
        "loop_delay_ms": None if status is None else status.loop_delay_ms,
        "disk_bytes": None if status is None else status.disk_bytes,
        "disk_free_bytes": None if status is None else status.disk_free_bytes,
        "reason": load if isinstance(load, str) else None,
    }


def _written(before: Look, now: Look) -> dict[TopicPartition, float]:
    """Records a second, of the partitions that both looks know; a topic of that name that was made
    anew begins at 0."""
    seconds = now.at_s - before.at_s
    return {
        at: max(0, end - before.ends[at]) / seconds
        for at, end in now.ends.items()
        if at in before.ends
    }


def _users_first(topic: str) -> tuple[bool, str]:
    """Of topics alike the brokers' own are the last."""
    return is_internal_topic(topic), topic


def _groups(before: Look, now: Look) -> list[dict[str, Any]]:
    earlier = {_name(each): _lag(each, before.ends) for each in before.groups}
    seconds = now.at_s - before.at_s
    found = []
    for each in now.groups:
        lag, old = _lag(each, now.ends), earlier.get(_name(each))
        change = None if lag is None or old is None else round((lag - old) / seconds, 1)
        found.append(
            {
                "group": each.listing.group,
                "family": each.listing.family,
                "subject": each.listing.subject,
                "state": each.listing.state,
                "members": each.listing.member_count,
                "lag": lag,
                "lag_change": change,
                "caught_up_s": round(lag / -change, 1) if lag and change and change < 0 else None,
            }
        )
    return sorted(found, key=lambda each: (-(each["lag"] or 0), each["group"], each["family"]))


def _name(look: GroupLook) -> tuple[str, str, str]:
    return look.listing.family, look.listing.group, look.listing.subject


def _lag(look: GroupLook, ends: Mapping[TopicPartition, int]) -> int | None:
    """Records behind what it has committed; None where that, or an end, is not known."""
    if look.committed is None or not look.committed.keys() <= ends.keys():
        return None
    return sum(max(0, ends[at] - offset) for at, offset in look.committed.items())
