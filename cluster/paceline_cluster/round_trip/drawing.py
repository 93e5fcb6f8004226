"""Records as no user would write them, drawn from a seed. Pure."""

from __future__ import annotations

import random

from paceline.spark.jobs.restoring import ORIGIN_HEADER
from paceline.values import dataclass

HOUR_MS = 3_600_000
BASE_MS = 1_700_000_000_000
ODD_TIMES = (
    *(-1, 0, 1, -2, -62_135_596_800_001, 253_402_300_800_000, 9_300_000_000_000_000),
    *(2**62, -(2**62)),
)
"""None at all, before 1970, and what no calendar has a name for."""
HUGE_BYTES = 300_000
KEYS = 6


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a record is, wherever it lies. Bytes of header names that are not UTF-8 are surrogates,
    as the client has them."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


def record(rng: random.Random, *, is_compacted: bool) -> Drawn:
    """One record. A compacted topic takes none without a key, and needs some size to be cleaned."""
    keys = [b"", *(b"k%d" % number for number in range(KEYS))]
    key = rng.choice(keys if is_compacted else [None, *keys])
    return Drawn(key, _value(rng, is_compacted=is_compacted), _headers(rng), _time(rng))


def _value(rng: random.Random, *, is_compacted: bool) -> bytes | None:
    kind = rng.random()
    if kind < 0.15:
        return None
    if kind < 0.3:
        return b""
    if is_compacted:
        return rng.randbytes(rng.randrange(1, 2_000))
    return rng.randbytes(HUGE_BYTES if kind > 0.99 else rng.randrange(1, 200))


def _headers(rng: random.Random) -> tuple[tuple[str, bytes | None], ...]:
    if rng.random() < 0.5:
        return ()
    return tuple(
        (_name(rng), rng.choice([None, b"", rng.randbytes(5)])) for _ in range(rng.randrange(1, 4))
    )


def _name(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.1:
        return ORIGIN_HEADER  # of a record that was restored before
    if kind < 0.5:
        return rng.choice(["a", "", "naïve", "\ufffd"])
    return rng.randbytes(rng.randrange(1, 5)).decode("utf-8", "surrogateescape")


def _time(rng: random.Random) -> int:
    if rng.random() < 0.25:
        return rng.choice(ODD_TIMES)
    return BASE_MS + rng.randrange(3) * HOUR_MS + rng.randrange(1000)
