"""Counters and histograms that cost little: plain numbers, turned into samples at scrape.

One event loop owns a node's instruments, so no locks. What a scrape gets of them is a
:class:`Family` each; ``exposition.py`` writes those down.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

LATENCY_BUCKETS_S = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
    0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip


LabelValues = tuple[str, ...]


class Kind(enum.Enum):
    """What the samples of a family are."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class HistogramSample(NamedTuple):
    """``buckets``: (upper bound, observations up to it)."""

    buckets: list[tuple[str, float]]
    total: float


class Family(NamedTuple):
    """All samples of one name at one moment; counters' names are without ``_total``."""

    kind: Kind
    name: str
    doc: str
    labels: tuple[str, ...]
    samples: Sequence[tuple[LabelValues, float | HistogramSample]]


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
        self._children: dict[LabelValues, Counter] = {}

    def of(self, *values: str) -> Counter:
        """The counter of these label values; keep it where it is used often."""
        child = self._children.get(values)
        if child is None:
            assert len(values) == len(self._labels), f"{self._name} has labels {self._labels}"
            child = self._children[values] = Counter()
        return child

    def values(self) -> list[float]:
        """Of all of them."""
        return [each.value for each in self._children.values()]

    def forget(self, *values: str) -> None:
        """Drop the series whose labels begin with these values."""
        for key in [key for key in self._children if key[: len(values)] == values]:
            del self._children[key]

    def collect(self) -> Family:
        samples = [(values, child.value) for values, child in sorted(self._children.items())]
        return Family(Kind.COUNTER, self._name, self._doc, self._labels, samples)


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
        self._children: dict[LabelValues, Histogram] = {}

    def of(self, *values: str) -> Histogram:
        """The histogram of these label values; keep it where it is used often."""
        child = self._children.get(values)
        if child is None:
            assert len(values) == len(self._labels), f"{self._name} has labels {self._labels}"
            child = self._children[values] = Histogram(self._bounds)
        return child

    @property
    def bounds(self) -> tuple[float, ...]:
        """Of their buckets."""
        return self._bounds

    def counts(self, names: Collection[str]) -> list[int]:
        """Observations by bucket of those whose last label is one of ``names``."""
        found = [each.counts for values, each in self._children.items() if values[-1] in names]
        return [sum(each) for each in zip(*found, strict=True)] or [0] * (len(self._bounds) + 1)

    def collect(self) -> Family:
        samples = [
            (values, HistogramSample(child.cumulative(), child.total))
            for values, child in sorted(self._children.items())
        ]
        return Family(Kind.HISTOGRAM, self._name, self._doc, self._labels, samples)


def gauge(
    name: str, doc: str, labels: tuple[str, ...], samples: Iterable[tuple[LabelValues, float]]
) -> Family:
    """One gauge family with its samples of this moment."""
    return Family(Kind.GAUGE, name, doc, labels, list(samples))
