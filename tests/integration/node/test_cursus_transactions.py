"""Transactions over Cursus, by the bytes that clients see: every reply and every refusal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import trio

from paceline.errors import NotLeader
from paceline.types import Acks, NodeId
from paceline.wire.cursus.frames import framed
from paceline.wire.peer import transactions as wire
from paceline_node.services.transactions.transaction_rpc import TransactionRpc
from paceline_node.transactions.records import Transaction
from paceline_node.transactions.staging import StagedTransactions
from tests.integration.node.cursus_client import ONE, CursusClient, batch, numbered, payloads
from tests.integration.node.nodes import RunningNode, V1Client, cluster, lone_node

pytestmark = pytest.mark.virtual_time
WHO = f"transactional_id=x producerId=txn-{sha256(b'x').hexdigest()[:16]} epoch="
ALL = "CONSUME topic=t partition=0 offset=0 isolation=read_uncommitted"
COMMITTED = "CONSUME topic=t partition=0 offset=0"
THREE = {"topics.replication_factor": "3", "topics.min_insync_replicas": "2"}


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[RunningNode]:
    async with lone_node(tmp_path, ONE) as up:
        yield up


@pytest.fixture
async def client(node: RunningNode) -> AsyncIterator[CursusClient]:
    async with CursusClient(node.addresses["cursus"]) as connection:
        await connection.create("topic=t partitions=3")
        yield connection


async def begin(client: CursusClient, epoch: int = 0) -> str:
    """Begin as ``x``; what its commands say of it."""
    who = f"{WHO}{epoch}"
    state = who.replace("transactional_id=x", "transactional_id=x state=open")
    assert await client.say(f"BEGIN_TXN {who}") == f"OK {state}"
    return who


async def status_without(client: CursusClient, word: str) -> str:
    """What is said of ``x`` once ``word`` is not in it any more."""
    with trio.fail_after(30):
        while True:
            told = await client.say("TXN_STATUS transactional_id=x")
            if word not in told:
                return told
            await trio.sleep(0.05)


async def test_a_commit_shows_all_and_an_abort_leaves_nothing(client: CursusClient) -> None:
    assert await client.say("INIT_PRODUCER_ID transactional_id=orders-worker") == (
        "OK transactional_id=orders-worker producerId=txn-6c5941bbc0408fbd epoch=0"
    )
    assert await client.say("INIT_PRODUCER_ID transactional_id=x") == f"OK {WHO}0"
    status = "TXN_STATUS transactional_id=x"
    assert await client.say(status) == "OK transactional_id=x state=aborted messages=0 offsets=0"
    who = await begin(client)
    publish = f"TXN_PUBLISH {who} topic=t"
    assert await client.say(f"{publish} partition=0 seqNum=1 key=k message=one of two") == (
        "OK transactional_id=x staged_messages=1 topic=t partition=0"
    )
    again = await client.ok(f"{publish} partition=0 seqNum=1 key=k message=one of two")
    assert again["staged_messages"] == "1", "a number that is staged is passed over"
    await client.ok(f"{publish} partition=1 seqNum=2 message=two of two")
    assert await client.say(status) == "OK transactional_id=x state=open messages=2 offsets=0"
    # Others write on, and nobody sees what is staged, nor waits for it.
    await client.produce(batch("t", numbered(1, 1), acks=Acks.ALL))
    assert payloads(await client.read(ALL)) == payloads(await client.read(COMMITTED)) == [b"1"]
    committed = f"END_TXN {who} result=commit"
    done = "OK transactional_id=x state=committed messages=2 offsets=0"
    assert await client.say(committed) == done
    assert await client.say(committed) == done
    assert await client.say(status) == done
    assert payloads(await client.read(COMMITTED)) == [b"1", b"one of two"]
    [_, shown] = await client.read(ALL)
    assert (shown.key, shown.sequence, shown.epoch) == (b"k", 1, 0)
    assert shown.producer_id.startswith(b"txn-")
    second = COMMITTED.replace("partition=0", "partition=1")
    assert payloads(await client.read(second)) == [b"two of two"]
    refused = await client.say(f"END_TXN {who} result=abort")
    assert refused == "ERROR: transaction_already_committed transactional_id=x"
    assert await client.say(f"{publish} partition=0 seqNum=3 message=late") == refused

    # One epoch may have another transaction (listeners/DESIGN 5.5).
    await begin(client)
    await client.ok(f"{publish} partition=0 seqNum=3 message=never")
    aborted = "OK transactional_id=x state=aborted"
    assert await client.say(f"END_TXN {who} action=abort") == aborted
    assert await client.say(f"END_TXN {who} result=abort") == aborted
    assert await client.say(status) == f"{aborted} messages=0 offsets=0"
    refused = await client.say(committed)
    assert refused == "ERROR: transaction_aborted transactional_id=x"
    assert payloads(await client.read(ALL)) == [b"1", b"one of two"]
    offsets = (await client.ok("LIST_OFFSETS topic=t partition=0"))["offsets"]
    assert offsets == "P0:earliest=0:latest=3:leo=3:hwm=3", "an abort writes nothing"


async def test_fences_and_refusals(client: CursusClient) -> None:
    assert (await client.say("TXN_STATUS transactional_id=no")).startswith(
        'ERROR: transaction_not_found reason="'
    )
    assert (await client.say(f"BEGIN_TXN {WHO}0")).startswith("ERROR: transaction_not_found ")
    await client.ok("INIT_PRODUCER_ID transactional_id=x")
    who = f"{WHO}0"
    aborted = "ERROR: transaction_aborted transactional_id=x"
    publish = f"TXN_PUBLISH {who} topic=t partition=0"
    assert await client.say(f"{publish} seqNum=1 message=m") == aborted
    assert await client.say(f"END_TXN {who} result=commit") == aborted
    assert await client.say(f"END_TXN {who} result=abort") == "OK transactional_id=x state=aborted"
    await begin(client)
    await begin(client)  # asked again: nothing is staged yet
    assert await client.say(f"{publish} message=m") == (
        'ERROR: invalid_seq_num command=TXN_PUBLISH reason="seqNum must be greater than zero"'
    )
    await client.ok(f"{publish} seqNum=1 message=m")
    assert await client.say(f"BEGIN_TXN {who}") == (
        "ERROR: producer_reinitialization_required transactional_id=x epoch=0"
    )
    none = publish.replace("topic=t", "topic=none")
    assert await client.say(f"{none} seqNum=2 message=m") == "ERROR: topic_not_found topic=none"
    far = publish.replace("partition=0", "partition=9")
    assert await client.say(f"{far} seqNum=2 message=m") == (
        "ERROR: partition_not_found partition=9"
    )
    inner = publish.replace("topic=t", "topic=__groups")
    assert "ERROR" in await client.say(f"{inner} seqNum=2 message=m")
    too_much = f"{publish} seqNum=2 message={'m' * (9 << 20)}"
    assert (await client.say(too_much)).startswith("ERROR: transaction_publish_failed ")
    # A newer epoch aborts what is open and fences whoever has the older one.
    assert await client.say("INIT_PRODUCER_ID transactional_id=x") == f"OK {WHO}1"
    fenced = "ERROR: producer_fenced transactional_id=x current_epoch=1 requested_epoch=0"
    for line in (
        f"BEGIN_TXN {who}",
        f"{publish} seqNum=2 message=m",
        f"END_TXN {who} result=commit",
    ):
        assert await client.say(line) == fenced
    other = f"{WHO}1".replace("producerId=txn-", "producerId=other-")
    assert "ERROR: producer_fenced " in await client.say(f"BEGIN_TXN {other}")
    assert payloads(await client.read(ALL)) == []
    found = await client.ok("FIND_COORDINATOR transactional_id=x")
    assert (found["coordinator_type"], found["coordinator_id"]) == ("transaction", "0")
    forbidden = await client.say("PUBLISH topic=t transactional_id=x message=m")
    assert forbidden == "ERROR: transaction_metadata_forbidden command=PUBLISH"
    await client.ok("NEGOTIATE version=1 features=structured_errors_v1")
    assert await client.say(f"BEGIN_TXN {who}") == fenced.replace(
        "fenced ", "fenced class=fencing retryable=false "
    )


async def test_records_published_without_waiting_are_staged_together(
    client: CursusClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is answered in its place; one that is refused holds up no other."""
    await client.ok("INIT_PRODUCER_ID transactional_id=x")
    who = await begin(client)
    writes = []
    stage = StagedTransactions.stage

    def counted(*words: Any, **named: Any) -> Transaction:
        writes.append(words[3])
        return stage(*words, **named)

    monkeypatch.setattr(StagedTransactions, "stage", counted)
    places = [9 if number == 7 else number % 2 for number in range(1, 31)]
    lines = [
        f"TXN_PUBLISH {who} topic=t partition={place} seqNum={number} message=m{number}"
        for number, place in enumerate(places, 1)
    ]
    lines += ["TXN_PUBLISH nonsense", "TXN_STATUS transactional_id=x", lines[-1]]
    await client.stream.send_all(b"".join(framed(line.encode()) for line in lines))
    answers = [(await client.receive()).decode() for _ in lines]
    assert answers.pop(6) == "ERROR: partition_not_found partition=9"
    assert answers[29].startswith("ERROR: missing_")
    assert answers[30] == "OK transactional_id=x state=open messages=29 offsets=0"
    for answer, place in zip(
        [*answers[:29], answers[31]], [*places[:6], *places[7:], 0], strict=True
    ):
        assert answer == f"OK transactional_id=x staged_messages=29 topic=t partition={place}"
    assert [len(each) for each in writes] == [29, 1]
    await client.ok(f"END_TXN {who} result=commit")
    assert payloads(await client.read(COMMITTED)) == [b"m%d" % n for n in range(2, 31, 2)]
    odd = [b"m%d" % n for n in range(1, 31, 2) if n != 7]
    assert payloads(await client.read(COMMITTED.replace("partition=0", "partition=1"))) == odd


async def test_records_published_without_waiting_are_refused_one_by_one(
    client: CursusClient,
) -> None:
    await client.ok("INIT_PRODUCER_ID transactional_id=x")
    who = await begin(client)
    stale = who.replace("epoch=0", "epoch=7")
    lines = [
        *(f"TXN_PUBLISH {stale} topic=t partition=0 seqNum={n} message=m" for n in (1, 2)),
        *(f"TXN_PUBLISH {who} topic=none partition=0 seqNum={n} message=m" for n in (3, 4)),
        f"TXN_PUBLISH {who} topic=t partition=0 seqNum=5 message=m",
    ]
    await client.stream.send_all(b"".join(framed(line.encode()) for line in lines))
    fenced = "ERROR: producer_fenced transactional_id=x current_epoch=0 requested_epoch=7"
    assert [(await client.receive()).decode() for _ in lines] == [
        *[fenced] * 2,
        *["ERROR: topic_not_found topic=none"] * 2,
        "OK transactional_id=x staged_messages=1 topic=t partition=0",
    ]


async def test_what_is_left_of_a_connection_is_of_no_later_transaction(
    client: CursusClient,
) -> None:
    """A client gave a connection up that the node took for alive, aborted on another one, and was
    told so: what was still to be read of the first was committed with the next transaction, and
    its END ended that."""
    member = (await client.say("JOIN_GROUP topic=t group=g member=a")).split()[2]
    await client.ok("INIT_PRODUCER_ID transactional_id=x")
    who = await begin(client)
    publish = f"TXN_PUBLISH {who} topic=t partition=0 key=k"
    await client.ok(f"{publish} seqNum=1 message=old")
    async with CursusClient(client.address) as second, CursusClient(client.address) as third:
        await second.ok(f"END_TXN {who} result=abort")
        await begin(second)
        left = [
            f"BEGIN_TXN {who}",
            *(f"{publish} seqNum={number} message=old" for number in range(2, 200)),
            f"SEND_OFFSETS_TO_TXN {who} topic=t group=g {member} generation=1 P0:5",
            f"END_TXN {who} result=abort",
            f"END_TXN {who} result=commit",
        ]
        await client.stream.send_all(b"".join(framed(line.encode()) for line in left))
        fenced = "ERROR: producer_fenced transactional_id=x current_epoch=0 requested_epoch=0 "
        for _ in left:
            assert (await client.receive()).decode().startswith(f'{fenced}reason="')
        told = await second.ok(f"{publish} seqNum=2 message=new")
        assert told["staged_messages"] == "1"
        # One that has acted in none goes on with what is open, and may end it.
        await third.ok(f"{publish} seqNum=3 message=new")
        done = await third.ok(f"END_TXN {who} result=commit")
        assert (done["messages"], done["offsets"]) == ("2", "0")
        assert await second.ok(f"END_TXN {who} result=commit") == done, "an answer that was lost"
    assert payloads(await client.read(COMMITTED)) == [b"new"] * 2
    # And who begins is in what it has begun, as is who takes the id over.
    await begin(client)
    await client.ok(f"{publish} seqNum=4 message=begun")
    await client.ok("INIT_PRODUCER_ID transactional_id=x")
    async with CursusClient(client.address) as second:
        who = await begin(second, 1)
        await client.ok(f"TXN_PUBLISH {who} topic=t partition=0 seqNum=1 message=taken")
        await client.ok(f"END_TXN {who} result=commit")
    assert payloads(await client.read(COMMITTED)) == [b"new", b"new", b"taken"]


async def test_a_number_is_of_one_record(client: CursusClient) -> None:
    """Another record under the number of one that was staged was answered OK, and not stored."""
    await client.ok("INIT_PRODUCER_ID transactional_id=x")
    await client.create("topic=other partitions=1")
    who = await begin(client)
    publish = f"TXN_PUBLISH {who} topic=t"
    first = f"{publish} partition=0 seqNum=1 key=k message=one"
    staged = await client.ok(first)
    assert await client.ok(first) == staged
    refused = (
        "ERROR: invalid_seq_num command=TXN_PUBLISH "
        'reason="seqNum 1 is that of another record of the transaction"'
    )
    for other in (
        first.replace("partition=0", "partition=1"),
        first.replace("topic=t ", "topic=other "),
        first.replace("message=one", "message=two"),
        first.replace("key=k", "key=l"),
    ):
        assert await client.say(other) == refused
    for _ in range(4):  # in turn among three partitions, where it names none
        await client.ok(f"{publish} seqNum=2 message=two")
    numbers = (3, 1, 4, 4, 5)
    lines = [f"{publish} partition=0 seqNum={n} message=m{at}" for at, n in enumerate(numbers)]
    await client.stream.send_all(b"".join(framed(line.encode()) for line in lines))
    answers = [(await client.receive()).decode() for _ in lines]
    assert [answer.startswith("OK") for answer in answers] == [True, False, True, False, True]
    assert answers[1] == refused
    assert answers[3] == refused.replace("seqNum 1", "seqNum 4")
    done = await client.ok(f"END_TXN {who} result=commit")
    assert done["messages"] == "5"
    found = await client.read(COMMITTED)
    assert [each for each in payloads(found) if each != b"two"] == [b"one", b"m0", b"m2", b"m4"]


async def test_offsets_go_with_the_transaction(client: CursusClient) -> None:
    join = await client.say("JOIN_GROUP topic=t group=g member=a")
    member = join.split()[2]
    await client.ok("INIT_PRODUCER_ID transactional_id=x")
    who = await begin(client)
    send = f"SEND_OFFSETS_TO_TXN {who} topic=t group=g {member}"
    assert await client.say(f"{send} generation=1 P0:5,P1:7") == (
        "OK transactional_id=x staged_offsets=2"
    )
    stale = "ERROR: GEN_MISMATCH current=1 requested=2 group=g "
    assert "transaction_offsets_failed" in await client.say(f"{send} generation=2 P0:6")
    fetch = "FETCH_OFFSET topic=t group=g partition="
    assert await client.say(f"{fetch}0") == "OK offset=0"
    assert await client.say(f"END_TXN {who} result=commit") == (
        "OK transactional_id=x state=committed messages=0 offsets=2"
    )
    assert [await client.say(f"{fetch}{at}") for at in range(3)] == [
        "OK offset=5",
        "OK offset=7",
        "OK offset=0",
    ]
    # The fence is asked when offsets are sent, and again at the end.
    await begin(client)
    assert (await client.say(f"{send} generation=2 P0:9")).startswith(stale)
    assert await client.say(f"{send} generation=1 P7:9") == (
        f"ERROR: NOT_OWNER partition=7 {member} group=g generation=1"
    )
    await client.ok(f"{send} generation=1 P0:9")
    async with CursusClient(client.address) as other:
        await other.say("JOIN_GROUP topic=t group=g member=b")
    assert (await client.say(f"END_TXN {who} result=commit")).startswith(
        "ERROR: GEN_MISMATCH current=2 requested=1 group=g "
    )
    assert "state=open" in await client.say("TXN_STATUS transactional_id=x")
    await client.ok(f"END_TXN {who} result=abort")
    assert await client.say(f"{fetch}0") == "OK offset=5"


async def test_an_open_transaction_keeps_nobody_waiting_and_is_aborted_in_time(
    tmp_path: Path,
) -> None:
    flags = {**ONE, "cursus.transaction_timeout_ms": "1000"}
    async with (
        lone_node(tmp_path, flags) as node,
        CursusClient(node.addresses["cursus"]) as client,
    ):
        await client.create("topic=t partitions=3")
        await client.ok("INIT_PRODUCER_ID transactional_id=x")
        who = await begin(client)
        await client.ok(f"TXN_PUBLISH {who} topic=t partition=0 seqNum=1 message=m")
        await client.produce(batch("t", numbered(1, 1)))
        assert payloads(await client.read(COMMITTED)) == [b"1"]
        await status_without(client, "state=open")
        refused = await client.say(f"END_TXN {who} result=commit")
        assert refused == "ERROR: transaction_aborted transactional_id=x"
        await begin(client)  # the same epoch may go on
        await client.ok(f"TXN_PUBLISH {who} topic=t partition=0 seqNum=2 message=two")
        await client.ok(f"END_TXN {who} result=commit")
        assert payloads(await client.read(ALL)) == [b"1", b"two"]


async def test_what_was_committed_survives_a_restart_and_v1_reads_it(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1, ONE) as nodes:
        async with CursusClient(nodes.up[0].addresses["cursus"]) as client:
            await client.create("topic=t partitions=3")
            await client.ok("INIT_PRODUCER_ID transactional_id=x")
            who = await begin(client)
            await client.ok(f"TXN_PUBLISH {who} topic=t partition=0 seqNum=1 message=kept")
            await client.ok(f"END_TXN {who} result=commit")
            await begin(client)
            await client.ok(f"TXN_PUBLISH {who} topic=t partition=0 seqNum=2 message=staged")
        await nodes.crash(0)
        await nodes.start(0)
        async with CursusClient(nodes.up[0].addresses["cursus"]) as client:
            status = await status_without(client, "ERROR")
            assert status == "OK transactional_id=x state=open messages=1 offsets=0"
            await client.ok(f"TXN_PUBLISH {who} topic=t partition=0 seqNum=3 message=more")
            done = await client.ok(f"END_TXN {who} result=commit")
            assert done["messages"] == "2"
            assert payloads(await client.read(ALL)) == [b"kept", b"staged", b"more"]
        async with V1Client(nodes.up[0].addresses["v1"]) as v1:
            told = await v1.ok("CONSUME", "t 0 0")
            assert told["messages"].startswith("0:kept,2:staged,3:more"), told


async def test_coordinators_are_found_and_followed(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3, THREE) as nodes:
        clients = [CursusClient(nodes.up[number].addresses["cursus"]) for number in range(3)]
        async with clients[0] as one, clients[1] as two, clients[2] as three:
            await one.create("topic=t partitions=3")
            await nodes.in_sync("t", 0, 0, 1, 2)
            found = [
                await each.ok("FIND_COORDINATOR transactional_id=x") for each in (one, two, three)
            ]
            assert found[0] == found[1] == found[2]
            home = int(found[0]["coordinator_id"])
            away = [one, two, three][(home + 1) % 3]
            moved = await away.say("INIT_PRODUCER_ID transactional_id=x")
            assert moved == f"ERROR: NOT_COORDINATOR host=127.0.0.1 port={found[0]['port']}"
            at_home = [one, two, three][home]
            await at_home.ok("INIT_PRODUCER_ID transactional_id=x")
            who = await begin(at_home)
            for partition in range(3):
                line = f"TXN_PUBLISH {who} topic=t partition={partition} seqNum={partition + 1}"
                await at_home.ok(f"{line} message=m")
            done = await at_home.ok(f"END_TXN {who} result=commit")
            assert done["messages"] == "3"
            for partition in range(3):
                assert payloads(await away.read(f"CONSUME t {partition} 0")) == [b"m"]


async def test_records_are_stored_in_the_order_of_the_commits(
    node: RunningNode, client: CursusClient
) -> None:
    """Whatever kept those of the first ones from being stored at once."""
    broker = node.node.broker
    assert broker is not None
    dead = Unreachable(broker.transactions.rpc, 1)
    names = [f"x{number}" for number in range(12)]
    async with trio.open_nursery() as nursery, CursusClient(client.address) as other:
        with trio.fail_after(60):
            for name in names:
                found = await client.ok(f"INIT_PRODUCER_ID transactional_id={name}")
                who = f"transactional_id={name} producerId={found['producerId']} epoch=0"
                await client.ok(f"BEGIN_TXN {who}")
                for partition in (0, 1):
                    line = f"TXN_PUBLISH {who} topic=t partition={partition}"
                    await client.ok(f"{line} seqNum={partition + 1} message={name}")
                ender = await nursery.start(connected, client.address)
                nursery.start_soon(ender.say, f"END_TXN {who} result=commit")
                status = f"TXN_STATUS transactional_id={name}"
                await said(other, status, f"OK {status[11:]} state=committing messages=2 offsets=0")
            values = [name.encode() for name in names]
            await read(other, "CONSUME topic=t partition=0 offset=0", values)
            dead.missing.clear()
            for name in names:
                status = f"TXN_STATUS transactional_id={name}"
                await said(other, status, f"OK {status[11:]} state=committed messages=2 offsets=0")
            stored = payloads(await other.read("CONSUME topic=t partition=1 offset=0"))
        assert stored == values
        nursery.cancel_scope.cancel()


async def connected(address: tuple[str, int], task_status: trio.TaskStatus[CursusClient]) -> None:
    """A client of its own, until the nursery is cancelled."""
    async with CursusClient(address) as client:
        task_status.started(client)
        await trio.sleep_forever()


async def said(client: CursusClient, command: str, wanted: str) -> None:
    """Wait until a command is answered so."""
    while True:
        if await client.say(command) == wanted:
            return
        await trio.sleep(0.01)


async def read(client: CursusClient, command: str, wanted: list[bytes]) -> None:
    """Wait until a reader finds these."""
    while True:
        if payloads(await client.read(command)) == wanted:
            return
        await trio.sleep(0.01)


class Unreachable:
    """Leaders of some partitions cannot be asked for a while. ``stored``: which others were."""

    def __init__(self, rpc: TransactionRpc, *missing: int) -> None:
        self.missing = set(missing)
        self.stored: list[int] = []
        self.refused = trio.Event()
        self._append, self._mark = rpc.append_staged, rpc.write_markers
        rpc.append_staged = self._append_staged  # type: ignore[method-assign]
        rpc.write_markers = self._write_markers  # type: ignore[method-assign]

    def _check(self, *partitions: int) -> None:
        if self.missing & set(partitions):
            self.refused.set()
            raise NotLeader("nobody leads it")

    async def _append_staged(self, node: NodeId, order: wire.AppendStaged, data: bytearray) -> None:
        self._check(order.partition)
        await self._append(node, order, data)
        self.stored.append(order.partition)  # a busy node may not host it yet, and is asked again

    async def _write_markers(self, node: NodeId, order: wire.WriteMarkers) -> wire.MarkersWritten:
        self._check(*(each.partition for each in order.partitions))
        return await self._mark(node, order)


async def test_a_partition_without_a_leader_holds_up_no_other_and_no_group(
    node: RunningNode, client: CursusClient
) -> None:
    """One after the other was told, and what was staged for the first ones was sent each time."""
    member = (await client.say("JOIN_GROUP topic=t group=g member=a")).split()[2]
    await client.ok("INIT_PRODUCER_ID transactional_id=x")
    who = await begin(client)
    for partition in range(3):
        line = f"TXN_PUBLISH {who} topic=t partition={partition} seqNum={partition + 1}"
        await client.ok(f"{line} message=m")
    await client.ok(f"SEND_OFFSETS_TO_TXN {who} topic=t group=g {member} generation=1 P0:5")
    broker = node.node.broker
    assert broker is not None
    dead = Unreachable(broker.transactions.rpc, 1)
    async with trio.open_nursery() as nursery, CursusClient(client.address) as reader:
        nursery.start_soon(client.say, f"END_TXN {who} result=commit")
        with trio.fail_after(30):
            await said(reader, "FETCH_OFFSET topic=t group=g partition=0", "OK offset=5")
            for partition in (0, 2):
                command = f"CONSUME topic=t partition={partition} offset=0"
                await read(reader, command, [b"m"])
            for _ in range(4):  # rounds that the dead partition is asked in vain
                dead.refused = trio.Event()
                await dead.refused.wait()
            assert sorted(dead.stored) == [0, 2], "each once"
            assert "state=committing" in await reader.say("TXN_STATUS transactional_id=x")
            dead.missing.clear()
            assert "committed" in await status_without(reader, "committing")
            assert payloads(await reader.read("CONSUME topic=t partition=1 offset=0")) == [b"m"]
        assert sorted(dead.stored) == [0, 1, 2]


async def test_what_a_partition_stored_and_forgot_is_not_stored_again(tmp_path: Path) -> None:
    """Another partition had no leader, and the next coordinator stored it a second time."""
    flags = {**ONE, "log.producer_ttl_ms": "1000", "log.producer_check_ms": "100"}
    async with cluster(tmp_path, 1, flags) as nodes:
        async with CursusClient(nodes.up[0].addresses["cursus"]) as client:
            await client.create("topic=t partitions=3")
            await client.ok("INIT_PRODUCER_ID transactional_id=x")
            who = await begin(client)
            for partition in range(2):
                line = f"TXN_PUBLISH {who} topic=t partition={partition} seqNum={partition + 1}"
                await client.ok(f"{line} message=m")
            broker = nodes.up[0].node.broker
            assert broker is not None
            dead = Unreachable(broker.transactions.rpc, 1)
            stored = broker.replicas.table.get("t", 0)
            assert stored is not None
            await client.send(f"END_TXN {who} result=commit".encode())
            with trio.fail_after(60):
                await dead.refused.wait()
                while stored.log_end_offset < 2:  # noqa: ASYNC110  the record and its marker
                    await trio.sleep(0.02)
                while len(stored.log.producers):  # noqa: ASYNC110  no event tells
                    await trio.sleep(0.05)
            await nodes.crash(0)
        await nodes.start(0)
        async with CursusClient(nodes.up[0].addresses["cursus"]) as client:
            assert "committed" in await status_without(client, "committing")
            for partition in range(2):
                found = await client.read(f"CONSUME topic=t partition={partition} offset=0")
                assert payloads(found) == [b"m"]
