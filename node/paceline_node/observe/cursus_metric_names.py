"""The node's metrics under the names that Cursus's dashboards know (DESIGN 4.1). Pure.

Only what means the same there is renamed; the rest keeps its own name alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from paceline_node.observe.metric_types import Family, HistogramSample, Kind, LabelValues, gauge
from paceline_node.observe.metrics import OK

_PROTOCOL = "cursus"
_SAME = {
    "paceline_ready": "cursus_broker_ready",
    "paceline_partition_log_start_offset": "cursus_partition_log_start_offset",
    "paceline_partition_log_end_offset": "cursus_partition_log_end_offset",
    "paceline_partition_high_watermark": "cursus_partition_high_watermark",
    "paceline_partition_leader_epoch": "cursus_cluster_partition_leader_epoch",
    "paceline_under_replicated_partitions": "cursus_cluster_under_replicated_partitions",
    "paceline_leaderless_partitions": "cursus_cluster_offline_partitions",
}


def cursus_families(families: Iterable[Family]) -> Iterator[Family]:
    """Those of ``families`` that Cursus has, as it calls them."""
    for family in families:
        if family.name in _SAME:
            yield family._replace(name=_SAME[family.name])
        elif family.name in _MADE:
            yield from _MADE[family.name](family)


def _connections(family: Family) -> Iterator[Family]:
    active = [((), _plain(value)) for (protocol,), value in family.samples if protocol == _PROTOCOL]
    yield gauge("cursus_broker_client_connections_active", family.doc, (), active)


def _connected(family: Family) -> Iterator[Family]:
    samples = [((), value) for (protocol,), value in family.samples if protocol == _PROTOCOL]
    name = "cursus_broker_client_connections"
    yield Family(Kind.COUNTER, name, family.doc, (), samples)


def _commands(family: Family) -> Iterator[Family]:
    by_result: Counter[LabelValues] = Counter()
    errors: Counter[LabelValues] = Counter()
    for (protocol, api, code), value in family.samples:
        if protocol != _PROTOCOL:
            continue
        command = api.upper()
        by_result[command, "ok" if code == OK else "error"] += int(_plain(value))
        if code != OK:
            errors[command, code] += int(_plain(value))
    for name, labels, counts in (
        ("cursus_broker_commands", ("command", "result"), by_result),
        ("cursus_broker_command_errors", ("command", "code"), errors),
    ):
        yield Family(Kind.COUNTER, name, family.doc, labels, sorted(counts.items()))


def _transactions(family: Family) -> Iterator[Family]:
    samples = [
        ((state,), _plain(value)) for (of, state), value in family.samples if of == _PROTOCOL
    ]
    yield gauge("cursus_transactions", family.doc, ("state",), samples)


def _durations(family: Family) -> Iterator[Family]:
    samples = [
        ((api.upper(),), value)
        for (protocol, api), value in family.samples
        if protocol == _PROTOCOL
    ]
    name = "cursus_broker_command_duration_seconds"
    yield Family(Kind.HISTOGRAM, name, family.doc, ("command",), samples)


def _storage(family: Family) -> Iterator[Family]:
    total = sum(_plain(value) for _, value in family.samples)
    yield gauge("cursus_storage_bytes", "Size of all logs on this node.", (), [((), total)])


def _plain(value: float | HistogramSample) -> float:
    assert not isinstance(value, HistogramSample)
    return value


_MADE: dict[str, Callable[[Family], Iterator[Family]]] = {
    "paceline_connections_active": _connections,
    "paceline_connections_accepted": _connected,
    "paceline_requests": _commands,
    "paceline_request_duration_seconds": _durations,
    "paceline_log_bytes": _storage,
    "paceline_transactions": _transactions,
}
