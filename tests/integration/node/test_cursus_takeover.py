"""Who takes a partition over while a Cursus transaction that has read it is being ended: it begins
behind what that has read if it is committed, at the same place if not, and nowhere before either is
known."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from paceline.errors import NotLeader
from paceline.types import Acks
from paceline.wire.peer import transactions as wire
from paceline_node.services.transactions.transaction_rpc import TransactionRpc
from paceline_node.services.transactions.transaction_service import TransactionService
from tests.integration.node.cursus_client import CursusClient, batch, numbered, payloads
from tests.integration.node.nodes import Cluster, cluster
from tests.integration.node.test_cursus_transactions import THREE, begin, said

pytestmark = pytest.mark.virtual_time

COMMITTED = "OK transactional_id=x state=committed messages=0 offsets=8"
READ = "CONSUME topic=in partition=0"


class Held:
    """A step that is not gone through until it is let go. ``reached``: it would have been."""

    def __init__(self) -> None:
        self.reached = trio.Event()
        self.is_free = False


@pytest.fixture
def settling(monkeypatch: pytest.MonkeyPatch) -> Held:
    """What is decided reaches no group."""
    held = Held()
    settle = TransactionRpc.settle_offsets

    async def later(self: TransactionRpc, order: wire.SettleOffsets) -> None:
        held.reached.set()
        if not held.is_free:
            raise NotLeader("nobody leads it")
        await settle(self, order)

    monkeypatch.setattr(TransactionRpc, "settle_offsets", later)
    return held


@pytest.fixture
def deciding(monkeypatch: pytest.MonkeyPatch) -> Held:
    """All is ready for a decision, which is not taken."""
    held = Held()
    decide = TransactionService._with_spare

    async def later(self: TransactionService, command: object) -> object:
        if "end_staged" in getattr(command, "__qualname__", "") and not held.is_free:
            held.reached.set()
            await trio.sleep_forever()  # until its client gives up
        return await decide(self, command)  # type: ignore[arg-type]

    monkeypatch.setattr(TransactionService, "_with_spare", later)
    return held


class Scene:
    """``a`` has copied the three records of ``in`` in a transaction that commits its offset, too;
    nobody has ended it. Its group's coordinator is not the transactions'."""

    def __init__(
        self,
        nodes: Cluster,
        transactions: CursusClient,
        keeper: CursusClient,
        leader: CursusClient,
    ) -> None:
        self.nodes = nodes
        self.transactions = transactions
        self.keeper = keeper
        self.leader = leader
        self.group = ""
        self.end = ""

    async def copied(self, group: str) -> None:
        self.group = group
        told = await self.join("a")
        await self.transactions.ok("INIT_PRODUCER_ID transactional_id=x")
        who = await begin(self.transactions)
        self.end = f"END_TXN {who} result="
        for number in (1, 2, 3):
            line = f"TXN_PUBLISH {who} topic=out partition=0 seqNum={number} message={number}"
            await self.transactions.ok(line)
        await self.transactions.ok(f"SEND_OFFSETS_TO_TXN {who} topic=in group={group} {told} P0:3")

    async def join(self, name: str) -> str:
        told = await self.keeper.ok(f"JOIN_GROUP topic=in group={self.group} member={name}")
        return f"member={told['member']} generation={told['generation']}"

    @property
    def fetch(self) -> str:
        return f"FETCH_OFFSET topic=in group={self.group} partition=0"

    async def knows_nothing(self, told: str) -> None:
        """``told``, a member that takes over, hears no offset, and is not given a record."""
        host, port = self.keeper.address
        answer = await self.keeper.say(self.fetch)
        assert answer == f"ERROR: NOT_COORDINATOR host={host} port={port}"
        await self.leader.send(f"{READ} group={self.group} {told}".encode())
        answer = (await self.leader.receive()).decode()
        assert answer == f"ERROR: coordinator_not_available group={self.group}"


@asynccontextmanager
async def scene(directory: Path) -> AsyncIterator[Scene]:
    async with cluster(directory, 3, THREE) as nodes:
        addresses = [nodes.up[number].addresses["cursus"] for number in range(3)]
        async with CursusClient(addresses[0]) as any_node:
            for topic in ("in", "out"):
                await any_node.create(f"topic={topic} partitions=1")
                await nodes.in_sync(topic, 0, 0, 1, 2)
            await any_node.produce(batch("in", numbered(1, 3), acks=Acks.ALL))
            home = (await any_node.ok("FIND_COORDINATOR transactional_id=x"))["coordinator_id"]
            for number in range(100):
                found = await any_node.ok(f"FIND_COORDINATOR group=g{number}")
                if found["coordinator_id"] != home:
                    break
        async with (
            CursusClient(addresses[int(home)]) as transactions,
            CursusClient(addresses[int(found["coordinator_id"])]) as keeper,
            CursusClient(addresses[await nodes.leader("in", 0)]) as leader,
        ):
            made = Scene(nodes, transactions, keeper, leader)
            await made.copied(f"g{number}")
            yield made


async def test_who_takes_over_before_the_offsets_are_settled_begins_behind_them(
    tmp_path: Path, settling: Held
) -> None:
    """It was told the offset of before, and read and copied all of it again."""
    async with scene(tmp_path) as made, trio.open_nursery() as nursery:
        nursery.start_soon(made.transactions.say, f"{made.end}commit")
        with trio.fail_after(60):
            await settling.reached.wait()
            told = await made.join("b")
            await made.knows_nothing(told)
            settling.is_free = True
            await said(made.keeper, made.fetch, "OK offset=3")
            assert payloads(await made.leader.read(f"{READ} group={made.group} {told}")) == []
            async with CursusClient(made.transactions.address) as again:
                done = "OK transactional_id=x state=committed messages=3 offsets=1"
                await said(again, f"{made.end}commit", done)
            async with CursusClient(made.keeper.address) as reader:
                assert payloads(await reader.read("CONSUME out 0 0")) == [b"1", b"2", b"3"]


async def test_who_takes_over_before_the_decision_is_not_overtaken_by_it(
    tmp_path: Path, deciding: Held
) -> None:
    """The member was asked before the decision, and was none any more when it was taken."""
    async with scene(tmp_path) as made, trio.open_nursery() as nursery:
        nursery.start_soon(made.transactions.say, f"{made.end}commit")
        with trio.fail_after(60):
            await deciding.reached.wait()
            told = await made.join("b")
            await made.knows_nothing(told)
            deciding.is_free = True
            async with CursusClient(made.transactions.address) as again:
                refused = await again.say(f"{made.end}commit")
                assert refused.startswith("ERROR: GEN_MISMATCH current=2 requested=1 "), refused
                assert "state=open" in await again.say("TXN_STATUS transactional_id=x")
                await again.ok(f"{made.end}abort")
            await said(made.keeper, made.fetch, "OK offset=0")
            read = await made.leader.read(f"{READ} group={made.group} {told}")
            assert payloads(read) == [b"1", b"2", b"3"]


async def test_what_is_pending_and_who_is_fenced_outlive_the_groups_coordinator(
    tmp_path: Path, settling: Held
) -> None:
    async with scene(tmp_path) as made, trio.open_nursery() as nursery:
        nursery.start_soon(made.transactions.say, f"{made.end}commit")
        with trio.fail_after(100):
            await settling.reached.wait()
            told = await made.join("b")
            addresses = {up.addresses["cursus"]: n for n, up in made.nodes.up.items()}
            await made.nodes.crash(addresses.pop(made.keeper.address))
            async with CursusClient(made.transactions.address) as survivor:
                host, port = await _coordinator(survivor, made.group, set(addresses))
                async with CursusClient((host, port)) as keeper:
                    moved = f"ERROR: NOT_COORDINATOR host={host} port={port}"
                    await said(keeper, made.fetch, moved)
                    old = told.replace("generation=2", "generation=1")
                    commit = f"COMMIT_OFFSET topic=in group={made.group} partition=0 offset=9 {old}"
                    assert (await keeper.say(commit)).startswith("ERROR: GEN_MISMATCH ")
                    assert await keeper.say(made.fetch) == moved
                    settling.is_free = True
                    await said(keeper, made.fetch, "OK offset=3")


async def test_every_leader_waits_for_what_is_pending(tmp_path: Path, settling: Held) -> None:
    """Also one that has no replica of the group's state, as of four nodes one leads something: it
    asks the coordinator, and takes no refusal for a group that has committed nothing."""
    async with cluster(tmp_path, 4, THREE) as nodes:
        async with CursusClient(nodes.up[0].addresses["cursus"]) as client:
            await client.create("topic=in partitions=8")
            leaders = (await client.ok("METADATA topic=in"))["leaders"].split(",")
            found = await client.ok("FIND_COORDINATOR group=g")
            home = await client.ok("FIND_COORDINATOR transactional_id=x")
        async with (
            CursusClient((found["host"], int(found["port"]))) as keeper,
            CursusClient((home["host"], int(home["port"]))) as transactions,
            CursusClient(transactions.address) as watcher,
            trio.open_nursery() as nursery,
        ):
            old = await keeper.ok("JOIN_GROUP topic=in group=g member=a")
            await transactions.ok("INIT_PRODUCER_ID transactional_id=x")
            who = await begin(transactions)
            line = f"SEND_OFFSETS_TO_TXN {who} topic=in group=g member={old['member']} generation=1"
            await transactions.ok(f"{line} {','.join(f'P{n}:3' for n in range(8))}")
            nursery.start_soon(transactions.say, f"END_TXN {who} result=commit")
            with trio.fail_after(60):
                await settling.reached.wait()
                told = await keeper.ok("JOIN_GROUP topic=in group=g member=b")
                async with trio.open_nursery() as readers:
                    for number, leader in enumerate(leaders):
                        line = (
                            f"CONSUME topic=in partition={number} group=g"
                            f" member={told['member']} generation={told['generation']}"
                        )
                        readers.start_soon(_refused, leader, line)
                settling.is_free = True
                await said(watcher, "TXN_STATUS transactional_id=x", COMMITTED)


async def _refused(leader: str, line: str) -> None:
    host, _, port = leader.rpartition(":")
    async with CursusClient((host, int(port))) as client:
        await client.send(line.encode())
        assert await client.receive() == b"ERROR: coordinator_not_available group=g"


async def _coordinator(
    client: CursusClient, group: str, alive: set[tuple[str, int]]
) -> tuple[str, int]:
    """The group's coordinator, once that is one of ``alive``."""
    while True:
        told = await client.say(f"FIND_COORDINATOR group={group}")
        fields = dict(word.partition("=")[::2] for word in told.split())
        if told.startswith("OK") and (fields["host"], int(fields["port"])) in alive:
            return fields["host"], int(fields["port"])
        await trio.sleep(0.05)
