"""Cursus's consume-transform-produce loop: a member of a group and a transactional producer in one
(transactions/DESIGN 1.2). A command is said again, to whoever coordinates by then, until it is
answered for good; what was staged by the same number before is not staged again."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import trio

from paceline.errors import PacelineError
from paceline.wire.cursus.errors import CursusError
from paceline.wire.cursus.replies import parse_assignment
from paceline_cluster.sim.cluster import SimCluster
from paceline_cluster.sim.foreign_clients.copier import TAKE, Anew, ForeignCopier, MembershipLost
from paceline_cluster.sim.foreign_clients.copy_rule import CopyRule, Read
from paceline_cluster.sim.foreign_clients.cursus import (
    CursusLink,
    CursusLinks,
    Leaders,
    coordinator_of,
    cursus_links,
    fields_of,
)
from paceline_cluster.sim.foreign_clients.links import AGAIN_S, Address

_ELSEWHERE = "NOT_COORDINATOR"
_AGAIN = frozenset(
    (
        _ELSEWHERE,
        "coordinator_not_available",
        "leader_not_available",
        "no_raft_leader",
        "request_timed_out",
        "request_cancelled",
        "not_enough_replicas",
        "transaction_commit_failed",
        "transaction_sync_failed",
        "init_producer_failed",
        "topic_not_found",
    )
)
_NO_MEMBER = frozenset(("GEN_MISMATCH", "NOT_OWNER", "member_not_found", "group_not_found"))
_LOST = frozenset(
    (
        "producer_fenced",
        "producer_reinitialization_required",
        "transaction_aborted",
        "transaction_already_committed",
        "transaction_not_abortable",
        "transaction_not_found",
    )
)
"""What a producer begins anew for."""


class _Coordinator:
    """Who coordinates one key, until that turns out to be wrong."""

    def __init__(self, links: CursusLinks, key: str) -> None:
        self._links = links
        self._key = key
        self._address: Address | None = None

    async def link(self) -> CursusLink:
        """A connection to it. Raises PacelineError."""
        self._address = self._address or await coordinator_of(self._links, self._key)
        return await self._links.to(self._address)

    def forget(self) -> None:
        """Ask for it anew."""
        self._address = None


class CursusCopier(ForeignCopier):
    """``name`` is its transactional id, too."""

    def __init__(self, name: str, rule: CopyRule, rng: random.Random) -> None:
        super().__init__(name, rule, rng)
        self._place = f"topic={rule.copying.topic} group={rule.copying.group}"
        self._member = ""
        self._who = ""
        self._sequence = 0
        self._links: CursusLinks
        self._leaders: Leaders
        self._group: _Coordinator
        self._transactions: _Coordinator

    @asynccontextmanager
    async def _connected(self, cluster: SimCluster, host: str) -> AsyncIterator[None]:
        async with cursus_links(cluster, host, self._rng) as links:
            self._links = links
            self._leaders = Leaders(links, self.rule.copying.topic)
            self._group = _Coordinator(links, f"group={self.rule.copying.group}")
            self._transactions = _Coordinator(links, f"transactional_id={self.name}")
            yield

    async def _open(self) -> None:
        name = f"transactional_id={self.name}"
        told = fields_of(await self._say(self._transactions, f"INIT_PRODUCER_ID {name}"))
        self._who = f"{name} producerId={told['producerId']} epoch={told['epoch']}"
        self._sequence = 0

    # --- the member -------------------------------------------------------------------------------

    async def _join(self) -> Sequence[int]:
        while True:
            # A member that is none any more joins under the name that the next one gets.
            with suppress(MembershipLost):
                line = f"JOIN_GROUP {self._place} member={self.name}"
                told = await self._say(self._group, line)
                fields = fields_of(told)
                self._member = f"member={fields['member']} generation={fields['generation']}"
                return sorted(parse_assignment(told))
            await trio.sleep(AGAIN_S)

    async def _beat(self) -> None:
        try:
            link = await self._group.link()
            await link.ask(f"HEARTBEAT {self._place} {self._member}")
        except CursusError as error:
            if error.word in _NO_MEMBER:
                raise MembershipLost from None
            self._group.forget()
        except PacelineError:
            self._group.forget()

    async def _leave(self) -> None:
        member = self._member.partition(" ")[0]
        with suppress(PacelineError):
            await (await self._group.link()).ask(f"LEAVE_GROUP {self._place} {member}")

    async def _offsets(self, partitions: Sequence[int]) -> Mapping[int, int]:
        found: dict[int, int] = {}
        for number in partitions:
            line = f"FETCH_OFFSET {self._place} partition={number}"
            found[number] = int(fields_of(await self._say(self._group, line))["offset"])
        return found

    async def _fetch(self, partition: int, offset: int) -> Sequence[Read]:
        where = f"partition={partition} offset={offset} isolation=read_committed batch={TAKE}"
        try:
            leader = await self._leaders.of(partition)
            if leader is None:
                self._leaders.forget()
                return []
            link = await self._links.to(leader)
            found = await link.consume(f"CONSUME {self._place} {where} {self._member}")
        except PacelineError as error:
            if isinstance(error, CursusError) and error.word in _NO_MEMBER:
                raise MembershipLost from None
            self._leaders.forget()
            return []
        return [Read(partition, each.offset, each.payload) for each in found]

    # --- the transaction --------------------------------------------------------------------------

    async def _write(self, reads: Sequence[Read], offsets: Mapping[int, int]) -> None:
        await self._command("BEGIN_TXN")
        place = f"topic={self.rule.copying.copies} partition=0"
        for read in reads:
            self._sequence += 1
            number = f"seqNum={self._sequence}"
            await self._command("TXN_PUBLISH", f"{place} {number} message={read.copy.decode()}")
        pairs = ",".join(f"P{partition}:{offset}" for partition, offset in offsets.items())
        await self._command("SEND_OFFSETS_TO_TXN", f"{self._place} {self._member} {pairs}")

    async def _end(self, *, commits: bool) -> None:
        await self._command("END_TXN", f"result={'commit' if commits else 'abort'}")

    async def _command(self, word: str, rest: str = "") -> None:
        await self._say(self._transactions, f"{word} {self._who} {rest}".rstrip())

    async def _say(self, to: _Coordinator, line: str) -> str:
        """The answer of the coordinator, whoever that is in the end."""
        while True:
            try:
                return await (await to.link()).say(line)
            except CursusError as error:
                if error.word in _NO_MEMBER:
                    raise MembershipLost from None
                if error.word in _LOST:
                    raise Anew from None
                if error.word not in _AGAIN:
                    raise AssertionError(f"{line} was answered {error}") from error
                to.forget()
            except PacelineError:
                to.forget()
            await trio.sleep(AGAIN_S)
