"""What an attack did to the cluster, and whether that is allowed. Pure: figures in, verdict out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Latency:
    """Of a well-behaved client's requests, in milliseconds; nothing where there were none."""

    count: int
    p50_ms: float
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Latency:
        if not seconds:
            return cls(0, 0.0, 0.0, 0.0)
        ordered = sorted(seconds)
        last = len(ordered) - 1

        def at(share: float) -> float:
            return round(1000 * ordered[round(share * last)], 1)

        return cls(len(ordered), at(0.5), at(0.99), at(1.0))


@dataclass(frozen=True)
class Round:
    """One attack. ``latency`` by protocol of the load; ``resident_mib`` and ``charged_mib`` are the
    largest seen of any node, ``grown_mib`` by how much one grew, ``left_mib`` what one never had
    less than, so what earlier attacks left it with; ``longest_step_ms`` is of the event loop's
    longest step, with its name; ``attacker`` is what the attacking process said when it failed."""

    attack: str
    seconds: float
    latency: dict[str, Latency]
    resident_mib: float
    grown_mib: float
    left_mib: float
    charged_mib: float
    clients_ended: int
    leaderships_lost: int
    longest_step_ms: float
    longest_step: str
    nodes_ended: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    attacker: str = ""

    @property
    def line(self) -> str:
        """A row of the report."""
        times = "  ".join(
            f"{name} {each.p50_ms:6.1f} {each.p99_ms:7.1f} {each.max_ms:7.1f} ms"
            for name, each in sorted(self.latency.items())
        )
        return (
            f"{self.attack:28} {times}  {self.resident_mib:6.0f} MiB, {self.grown_mib:4.0f} more, "
            f"{self.left_mib:4.0f} left ({self.charged_mib:5.1f} charged)  "
            f"{self.clients_ended:5} ended  {self.leaderships_lost:3} moved  "
            f"{self.longest_step_ms:5.0f} ms {self.longest_step}"
        )


@dataclass(frozen=True)
class Bounds:
    """What is allowed. ``grown_mib``: what one attack may add for a moment. ``left_mib``: what all
    may leave behind, for what clients make a node remember (the table of counts) is beside the
    budget of memory. ``p99_ms`` and ``steady`` (no leadership moves) are judged only where asked
    for: a machine that others use moves both by itself."""

    grown_mib: float
    left_mib: float
    p99_ms: float | None = None
    steady: bool = False


def refusals(made: Round, bounds: Bounds) -> Iterator[str]:
    """Why the judge refuses, a sentence each."""
    for text in made.nodes_ended:
        yield f"{made.attack}: a node ended: {text}"
    for text in made.failures:
        yield f"{made.attack}: a well-behaved request failed: {text}"
    for what, took, most in (
        ("took", made.grown_mib, bounds.grown_mib),
        ("was left by others with", made.left_mib, bounds.left_mib),
    ):
        if took > most:
            yield f"{made.attack}: a node {what} {took:.0f} MiB, at most {most:.0f} are allowed"
    if made.attacker:
        yield f"{made.attack}: the attacker itself failed: {made.attacker}"
    for name, each in made.latency.items():
        if not each.count:
            yield f"{made.attack}: no {name} request was answered in {made.seconds:.0f} s"
        elif bounds.p99_ms is not None and each.p99_ms > bounds.p99_ms:
            yield f"{made.attack}: p99 of {name} {each.p99_ms} ms, at most {bounds.p99_ms} ms"
    if bounds.steady and made.leaderships_lost:
        yield f"{made.attack}: leadership moved {made.leaderships_lost} times"
