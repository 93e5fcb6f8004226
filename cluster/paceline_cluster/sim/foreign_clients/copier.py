"""Foreign clients that read, process and write exactly once: members of a group who copy a topic in
transactions of their protocol, which commit how far they have read. They abort, vanish, and are at
work in the middle of a transaction until others have taken their place.

What is the same in all protocols stands here; how it is said there, in ``kafka_copier.py`` and
``cursus_copier.py``. An error ends the membership (:class:`MembershipLost`), for which the
transaction is aborted; or the life (:class:`Anew`), and the next one begins with a new epoch of the
transactional id, which aborts whatever is open. All else is said again until it is answered.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager

import trio

from paceline_cluster.sim.cluster import SimCluster
from paceline_cluster.sim.foreign_clients.copy_rule import CopyRule, Read
from paceline_cluster.sim.foreign_clients.links import AGAIN_S

LIFE_S = (4.0, 12.0)
SESSION_S = 2.0
DOZE_S = (SESSION_S, 2.5 * SESSION_S)
"""How long one may be at work on a transaction: mostly so long that its session ends."""
_DOZE = 0.05
_ABORT = 0.15
_VANISH = 0.05
_LEAVE = 0.7
_LEAVE_S = 1.0
_NOTHING_S = 0.3
TAKE = 8
"""So many records of a partition are copied in one transaction at most."""


class MembershipLost(Exception):
    """The group has gone on without this member."""


class Anew(Exception):
    """The transaction, or the right to write, is lost: the next life begins."""


class ForeignCopier(ABC):
    """Copies until told to stop, and then until nothing of it is open."""

    def __init__(self, name: str, rule: CopyRule, rng: random.Random) -> None:
        self.name = name
        self.rule = rule
        self.stopping = False
        self.ended = trio.Event()
        self._rng = rng

    async def offsets_in_the_end(self, cluster: SimCluster, host: str) -> Mapping[int, int]:
        """Where the group is, when nobody copies any more."""
        async with self._connected(cluster, host):
            try:
                return await self._offsets(range(self.rule.copying.partitions))
            except MembershipLost:
                return {}  # there is no such group: it has never committed anything

    async def run(self, cluster: SimCluster, host: str) -> None:
        """Copy from ``host`` until told to stop."""
        async with self._connected(cluster, host):
            await self._copy()

    # --- what a protocol says ---------------------------------------------------------------------

    @abstractmethod
    def _connected(self, cluster: SimCluster, host: str) -> AbstractAsyncContextManager[None]:
        """Have the way to the nodes from ``host``."""

    @abstractmethod
    async def _open(self) -> None:
        """Begin a life: a new epoch of the transactional id, so that what an earlier life has left
        open is aborted."""

    @abstractmethod
    async def _join(self) -> Sequence[int]:
        """Become a member; the partitions to read."""

    @abstractmethod
    async def _beat(self) -> None:
        """Say that it lives. Raises MembershipLost."""

    @abstractmethod
    async def _leave(self) -> None:
        """Be no member any more, if that can be said."""

    @abstractmethod
    async def _offsets(self, partitions: Sequence[int]) -> Mapping[int, int]:
        """Where the group is, once no transaction can move that any more."""

    @abstractmethod
    async def _fetch(self, partition: int, offset: int) -> Sequence[Read]:
        """Some records; none when that is not told. Raises MembershipLost."""

    @abstractmethod
    async def _write(self, reads: Sequence[Read], offsets: Mapping[int, int]) -> None:
        """Have a transaction with the copies of ``reads`` and ``offsets`` in it. Raises Anew and
        MembershipLost."""

    @abstractmethod
    async def _end(self, *, commits: bool) -> None:
        """Commit it or abort it, and ask again until it is told which. Raises as :meth:`_write`;
        then it was not committed, or nobody knows."""

    # --- lives ------------------------------------------------------------------------------------

    async def _copy(self) -> None:
        is_clean = False
        while not is_clean:
            try:
                stops = self.stopping
                await self._open()
                is_clean = stops
                if not is_clean:
                    with trio.move_on_after(self._rng.uniform(*LIFE_S)):
                        await self._live()
                    await self._part()
            except Anew:
                await trio.sleep(AGAIN_S)
        self.ended.set()

    async def _part(self) -> None:
        if self._rng.random() < _LEAVE:
            with trio.move_on_after(_LEAVE_S):
                await self._leave()

    async def _live(self) -> None:
        while not self.stopping:
            partitions = await self._join()
            try:
                while not self.stopping:
                    await self._read_on(await self._found(partitions))
            except MembershipLost:
                continue

    async def _found(self, partitions: Sequence[int]) -> dict[int, int]:
        floor = self.rule.floor()
        offsets = await self._offsets(partitions)
        self.rule.found(floor, offsets)
        return dict(offsets)

    async def _read_on(self, positions: dict[int, int]) -> None:
        """Copy from there, until a transaction was aborted."""
        while not self.stopping:
            reads: list[Read] = []
            for partition, offset in positions.items():
                reads += (await self._fetch(partition, offset))[:TAKE]
            if not reads:
                await trio.sleep(self._rng.uniform(0.0, _NOTHING_S))
            else:
                offsets = {read.partition: read.offset + 1 for read in reads}
                if not await self._transact(reads, offsets):
                    return
                positions.update(offsets)
            await self._beat()

    async def _transact(self, reads: Sequence[Read], offsets: Mapping[int, int]) -> bool:
        """Whether it was committed."""
        chance = self._rng.random()
        commits = chance >= _VANISH + _ABORT
        lost: MembershipLost | None = None
        try:
            await self._write(reads, offsets)
            if self._rng.random() < _DOZE:
                await trio.sleep(self._rng.uniform(*DOZE_S))
            if chance < _VANISH:
                raise Anew
            await self._end(commits=commits)
        except MembershipLost as error:
            lost = error
        if lost is not None:
            await self._end(commits=False)
            raise lost
        if commits:
            self.rule.committed(offsets)
        return commits
