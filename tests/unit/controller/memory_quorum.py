"""A metadata quorum in memory: the service's protocol, committing when the test says so."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar, cast

import trio

from paceline.errors import NotController
from paceline_node.controller.image import Image
from paceline_node.controller.metadata_store import MetadataStore
from paceline_node.env import Disk, Env, Network, RunBlocking
from tests.unit.controller.bench import CLUSTER

T = TypeVar("T")


class VirtualHost:
    """trio's (virtual) clock and nothing else."""

    def now(self) -> float:
        return trio.current_time()

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + int(trio.current_time() * 1000)

    @property
    def stopwatch(self) -> None:
        return

    def boot_id(self) -> str:
        return "boot"

    def pid(self) -> int:
        return 1

    def environ(self) -> dict[str, str]:
        return {}

    async def run_blocking(self, work: Callable[[], T]) -> T:
        return work()

    def apart(self) -> RunBlocking:
        return self.run_blocking

    def exit(self, code: int) -> NoReturn:
        raise SystemExit(code)

    def buggify(self, site: str) -> bool:
        return False


def virtual_env() -> Env:
    """An environment for code that needs a clock and random numbers only."""
    return Env(VirtualHost(), cast(Disk, None), cast(Network, None), random.Random(5))


class MemoryQuorum:
    """One node's view of a quorum: a log, a term, and whether this node leads it."""

    def __init__(self, store: MetadataStore, voters: int = 1) -> None:
        self.store = store
        self.voters = range(voters)
        self.is_leader = False
        self.stood_still = False
        self.term = 0
        self.refusing = False
        self.log: list[tuple[int, Sequence[bytes]]] = [(0, ())]
        store.install(Image.bootstrap(CLUSTER).to_snapshot(), 1)

    def is_sure(self) -> bool:
        return self.is_leader and not self.stood_still

    def lead(self) -> None:
        """Become leader of the next term, with the entry a new leader appends."""
        self.term += 1
        self.is_leader = True
        self.log.append((self.term, ()))

    def depose(self, *, keep: int = 0) -> None:
        """Lose leadership; of the uncommitted entries only the first ``keep`` survive."""
        self.is_leader = False
        self.term += 1
        del self.log[self.store.image.offset + keep :]

    def propose(self, records: Sequence[bytes]) -> tuple[int, int]:
        if not self.is_leader or self.refusing:
            raise NotController("not the leader")
        self.log.append((self.term, tuple(records)))
        return len(self.log), self.term

    def commit(self, count: int | None = None) -> int:
        """Commit and apply the next ``count`` entries (None: all); returns how many."""
        first = self.store.image.offset
        end = len(self.log) if count is None else min(len(self.log), first + count)
        for index in range(first, end):
            term, records = self.log[index]
            self.store.apply(index + 1, term, records)
        return end - first


class EagerQuorum(MemoryQuorum):
    """Commits within propose(), as a quorum of one might."""

    def propose(self, records: Sequence[bytes]) -> tuple[int, int]:
        position = super().propose(records)
        self.commit()
        return position


async def settle(quorum: MemoryQuorum) -> None:
    """Commit until nobody proposes any more."""
    await trio.testing.wait_all_tasks_blocked()
    while quorum.commit():
        await trio.testing.wait_all_tasks_blocked()
