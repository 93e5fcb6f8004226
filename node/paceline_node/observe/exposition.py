"""What /metrics answers: a node's metrics in Prometheus' text format.

prometheus-client writes it and is imported by this file alone, which is imported at the first
scrape: it costs 5 MB and a tenth of a second, which a node that nobody scrapes need not pay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from paceline_node.observe.metric_types import Family, HistogramSample, Kind

CONTENT_TYPE = CONTENT_TYPE_LATEST


def exposition(families: Iterable[Family]) -> bytes:
    """The families as the body of an answer of type :data:`CONTENT_TYPE`."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(families))
    return generate_latest(registry)


class _Collected:
    """Families as a registry asks for them."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return map(_metric, self._families)


def _metric(family: Family) -> Metric:
    if family.kind is Kind.HISTOGRAM:
        return _histogram(family)
    kind = CounterMetricFamily if family.kind is Kind.COUNTER else GaugeMetricFamily
    metric = kind(family.name, family.doc, labels=family.labels)
    for values, sample in family.samples:
        assert not isinstance(sample, HistogramSample), family.name
        metric.add_metric(values, sample)
    return metric


def _histogram(family: Family) -> HistogramMetricFamily:
    metric = HistogramMetricFamily(family.name, family.doc, labels=family.labels)
    for values, sample in family.samples:
        assert isinstance(sample, HistogramSample), family.name
        metric.add_metric(values, sample.buckets, sample.total)
    return metric
