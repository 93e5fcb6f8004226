"""What the simulation's writers write to segments, and where."""

from __future__ import annotations

import random

from paceline_cluster.sim.segments.judge import SCOPE

DEEP = tuple(f"{SCOPE}/deep/{number}" for number in range(2))
"""Segments that live as long as the run does."""
_SIZES = (0, 1, 30, 300, 300, 3000)


def some_events(rng: random.Random) -> list[bytes]:
    """A few Events, none like another."""
    return [rng.randbytes(rng.choice(_SIZES)) for _ in range(rng.choice((1, 1, 3, 8)))]
