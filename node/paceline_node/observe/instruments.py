"""Counters and histograms that cost little: plain numbers, turned into samples at scrape.

One event loop owns a node's instruments, so no locks; prometheus-client is used for its registry
and text format only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

LATENCY_BUCKETS_S = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
    0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip


class Counter:
    """A number that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def add(self, amount: float = 1) -> None:
        self.value += amount


class Histogram:
    """Counts of observations by upper bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> list[tuple[str, float]]:
        """Prometheus buckets: (upper bound, observations up to it)."""
        buckets = []
        seen = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            seen += count
            buckets.append(("+Inf" if bound == float("inf") else repr(bound), float(seen)))
        return buckets


class Counters:
    """A family of counters told apart by label values."""

    def __init__(self, name: str, doc: str, labels: Sequence[str] = ()) -> None:
        self._name = name
        self._doc = doc
        self._labels = tuple(labels)
        self._children: dict[tuple[str, ...], Counter] = {}

    def of(self, *values: str) -> Counter:
        """The counter of these label values; keep it where it is used often."""
        child = self._children.get(values)
        if child is None:
            assert len(values) == len(self._labels), f"{self._name} has labels {self._labels}"
            child = self._children[values] = Counter()
        return child

    def forget(self, *values: str) -> None:
        """Drop the series whose labels begin with these values."""
        for key in [key for key in self._children if key[: len(values)] == values]:
            del self._children[key]

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(self._name, self._doc, labels=self._labels)
        for values, child in sorted(self._children.items()):
            family.add_metric(values, child.value)
        yield family


class Histograms:
    """A family of histograms told apart by label values."""

    def __init__(
        self,
        name: str,
        doc: str,
        labels: Sequence[str] = (),
        bounds: Sequence[float] = LATENCY_BUCKETS_S,
    ) -> None:
        self._name = name
        self._doc = doc
        self._labels = tuple(labels)
        self._bounds = tuple(bounds)
        self._children: dict[tuple[str, ...], Histogram] = {}

    def of(self, *values: str) -> Histogram:
        """The histogram of these label values; keep it where it is used often."""
        child = self._children.get(values)
        if child is None:
            assert len(values) == len(self._labels), f"{self._name} has labels {self._labels}"
            child = self._children[values] = Histogram(self._bounds)
        return child

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(self._name, self._doc, labels=self._labels)
        for values, child in sorted(self._children.items()):
            family.add_metric(values, child.cumulative(), child.total)
        yield family


def gauge(
    name: str, doc: str, labels: Sequence[str], samples: Sequence[tuple[tuple[str, ...], float]]
) -> Metric:
    """One gauge family with its samples of this moment."""
    family = GaugeMetricFamily(name, doc, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family
