"""What members of foreign clients' groups have in common: they live for a few seconds one
after another, and are at times long at work on what they have read."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count
from typing import Protocol

import trio

LIFE_S = (2.0, 10.0)
_COMMIT = 0.5
"""How likely a member commits what it has just read."""
_DOZE = 0.04
"""How likely it is long at work on that."""
DOZE_S = (1.0, 5.0)
"""So long that its session may end."""
_LEAVE = 0.5
"""How likely a member says that it goes."""
_LEAVE_S = 1.0


class Life(Protocol):
    """One member of a group."""

    async def run(self) -> None:
        """Join, read and commit until cancelled."""

    async def leave(self) -> None:
        """Be no member any more, if the coordinator can be asked."""


async def be_many(name: str, begin: Callable[[str], Life], rng: random.Random) -> None:
    """Be one member after another, until cancelled; ``begin`` makes one of its name."""
    for number in count(1):
        life = begin(f"{name}.{number}")
        with trio.move_on_after(rng.uniform(*LIFE_S)):
            await life.run()
        if rng.random() < _LEAVE:
            with trio.move_on_after(_LEAVE_S):
                await life.leave()


async def is_to_commit(rng: random.Random, doze_s: tuple[float, float] = DOZE_S) -> bool:
    """Whether a member commits what it has just read, once it is done with that."""
    if rng.random() >= _COMMIT:
        return False
    if rng.random() < _DOZE:
        await trio.sleep(rng.uniform(*doze_s))
    return True
