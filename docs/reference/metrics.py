"""Every metric of a node, as a scrape names it."""

from __future__ import annotations

from collections.abc import Iterator

from docs.reference.markdown import code, line, table, whole
from paceline_node.observe.cursus_metric_names import cursus_families
from paceline_node.observe.metric_types import Family, Kind
from paceline_node.observe.metrics import Gauge, Metrics, Total

_INTRO = """
Made from the node's own table of metrics. `http://HOST:7480/metrics` serves them in Prometheus's
text format. States (gauges) are asked for at each scrape, so a deleted topic leaves no series
behind. `metrics.per_partition = false` leaves out those with the label `partition`.
"""
_CURSUS = """
The listener `cursus-metrics` (not there unless it is configured) serves all of the above and
these, under the names that dashboards for Cursus know.
"""


def families() -> list[Family]:
    """All that a node may show, without samples."""
    metrics = Metrics(version="")
    for which in (*Gauge, *Total):
        metrics.provide(which, tuple)
    return list(metrics.collect())


def shown_name(family: Family) -> str:
    """How the text format calls it: counters end in _total there."""
    return f"{family.name}_total" if family.kind is Kind.COUNTER else family.name


def page() -> str:
    """The page."""
    known = families()
    heads = ("name", "kind", "labels", "meaning")
    return whole(
        "Metrics",
        _INTRO,
        table(heads, _rows(known)),
        "## Under Cursus's names",
        _CURSUS,
        table(heads, _rows(list(cursus_families(known)))),
    )


def _rows(known: list[Family]) -> Iterator[tuple[str, ...]]:
    for family in sorted(known, key=lambda family: family.name):
        labels = ", ".join(code(label) for label in family.labels)
        yield code(shown_name(family)), family.kind.name.lower(), labels, line(family.doc)
