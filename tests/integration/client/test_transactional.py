"""The transactional producer, and consumers beside it, against real nodes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from paceline.client import (
    Client,
    ClientSettings,
    GroupMember,
    Position,
    TransactionalSettings,
    blocking,
)
from paceline.errors import (
    AlreadyCommitted,
    InvalidProducerMapping,
    InvalidTransactionState,
    PacelineError,
    ProducerFenced,
    RequestTimedOut,
)
from paceline.types import Isolation, TopicPartition
from paceline.wire.native.api import NativeApi
from paceline.wire.native.transactions import EndTransaction, TransactionEnded
from tests.integration.node.machines import connect
from tests.integration.node.native import NativeConnection
from tests.integration.node.nodes import cluster, lone_node

pytestmark = pytest.mark.virtual_time

ONE = {
    "topics.partitions": "3",
    "topics.replication_factor": "1",
    "topics.min_insync_replicas": "1",
}


class Oops(Exception):
    """What an application fails with."""


async def seen(
    client: Client, topic: str = "out", isolation: Isolation = Isolation.READ_COMMITTED
) -> list[bytes | None]:
    """All that a consumer of this isolation is shown now, sorted."""
    values = []
    async with client.consumer(topic, stop=Position.LATEST, isolation=isolation) as consumer:
        async for record in consumer:
            values.append(record.value)
    return sorted(values, key=lambda value: value or b"")


async def test_a_transaction_is_seen_whole_or_not_at_all(tmp_path) -> None:
    async with lone_node(tmp_path, ONE) as node, connect(node.native) as client:
        async with client.transactional_producer("payments") as producer:
            with pytest.raises(InvalidTransactionState):
                await producer.send("out", b"outside")
            async with producer.transaction():
                for number in range(30):
                    await producer.submit("out", b"%02d" % number, partition=number % 3)
                await producer.flush()
                assert await seen(client) == []
                assert len(await seen(client, isolation=Isolation.READ_UNCOMMITTED)) == 30
            expected = [b"%02d" % number for number in range(30)]
            assert await seen(client) == expected

            async def fail() -> None:
                async with producer.transaction():
                    await producer.send_many("out", [b"no"] * 10)
                    raise Oops

            with pytest.raises(Oops):
                await fail()
            assert not producer.in_transaction
            for round_ in range(3):
                async with producer.transaction():
                    await producer.send("out", b"more %d" % round_, partition=0)
            async with producer.transaction():
                pass
            expected += [b"more 0", b"more 1", b"more 2"]
            assert await seen(client) == sorted(expected)
            await producer.begin()
            await producer.send("out", b"left open")
        assert await seen(client) == sorted(expected)
        listed = await client.admin.transactions.list()
        assert [(each.transactional_id, each.state) for each in listed] == [
            ("payments", "complete_abort")
        ]


async def test_a_newer_producer_fences_the_older(tmp_path) -> None:
    async with (
        lone_node(tmp_path, ONE) as node,
        connect(node.native) as client,
        client.transactional_producer("payments") as old,
    ):
        await old.begin()
        await old.send("out", b"old", partition=0)
        async with client.transactional_producer("payments") as new:
            with pytest.raises(PacelineError):
                await old.send("out", b"late", partition=0)
            with pytest.raises(ProducerFenced):
                await old.commit()
            with pytest.raises(ProducerFenced):
                await old.begin()
            async with new.transaction():
                await new.send("out", b"new", partition=0)
        assert await seen(client) == [b"new"]


async def test_a_transaction_with_a_failed_record_cannot_be_committed(tmp_path) -> None:
    async with (
        lone_node(tmp_path, ONE) as node,
        connect(node.native) as client,
        client.transactional_producer("payments") as producer,
    ):
        await producer.begin()
        await producer.send("out", b"a", partition=0)
        # The coordinator ends it on its own account: an operator's doing.
        assert await client.admin.transactions.abort("payments")
        with pytest.raises(PacelineError):
            await producer.send("out", b"b", partition=0)
        with pytest.raises(PacelineError):
            await producer.commit()
        assert await seen(client) == []
        described = await client.admin.transactions.describe("payments")
        assert described.reason == "aborted by an operator"


async def test_read_process_write_commits_offsets_with_the_output(tmp_path) -> None:
    async with (
        lone_node(tmp_path, ONE) as node,
        connect(node.native) as client,
        client.transactional_producer("copier") as producer,
    ):
        async with client.producer() as plain:
            await plain.send_many("in", [b"%d" % number for number in range(20)], partition=0)
        at = TopicPartition("in", 0)

        async def copy(*, fails: bool) -> None:
            committed = await client.admin.groups.offsets("copiers")
            begin = committed[at].offset if at in committed else 0
            async with (
                client.consumer(at, start=Position.at(begin)) as consumer,
                producer.transaction(),
            ):
                for _ in range(5):
                    record = await anext(consumer)
                    await producer.submit("out", record.value)
                await producer.send_offsets({at: record.offset + 1}, "copiers")
                if fails:
                    raise Oops

        for fails in (False, True, False, True, True, False, False):
            if fails:
                with pytest.raises(Oops):
                    await copy(fails=True)
            else:
                await copy(fails=False)
        assert await seen(client) == sorted(b"%d" % number for number in range(20))
        # A member of a generation that is over commits nothing.
        await producer.begin()
        await producer.send("out", b"zombie")
        with pytest.raises(PacelineError):
            await producer.send_offsets({at: 7}, GroupMember("copiers", 3, "gone"))
        with pytest.raises(InvalidTransactionState):
            await producer.commit()
        await producer.abort()
        assert len(await seen(client)) == 20


async def test_a_commit_whose_answer_was_lost_can_be_found_out_and_lived_with(tmp_path) -> None:
    """Whoever aborts because of an unknown outcome is told that it was committed, and goes on."""
    async with (
        lone_node(tmp_path, ONE) as node,
        connect(node.native) as client,
        client.transactional_producer("payments") as producer,
        NativeConnection(node.addresses["native"]) as other,
    ):
        await producer.begin()
        await producer.send("out", b"kept")
        found = (await client.admin.transactions.describe("payments")).listing
        identity = found.producer_id, found.producer_epoch
        lost = EndTransaction("payments", *identity, True, 5000)
        await other.call(NativeApi.END_TRANSACTION, lost, TransactionEnded)
        with pytest.raises(InvalidTransactionState):
            await producer.abort()
        async with producer.transaction():
            await producer.send("out", b"and more")
        assert await seen(client) == [b"and more", b"kept"]


async def test_silent_producers_are_forgotten_by_a_record(tmp_path) -> None:
    """But for one whose transaction is open, and one that writes on; timestamps say nothing."""
    flags = {**ONE, "log.producer_ttl_ms": "4000", "log.producer_check_ms": "100"}
    async with (
        lone_node(tmp_path, flags) as node,
        connect(node.native) as client,
        client.transactional_producer("open") as opened,
    ):
        await client.admin.create_topic("out", partitions=1)
        async with client.transactional_producer("gone") as gone, gone.transaction():
            await gone.send("out", b"1")
        async with client.producer() as short:
            await short.send("out", b"2")
        await opened.begin()
        await opened.send("out", b"3")
        known = node.node.broker.replicas.table.get("out", 0).log.producers
        assert len(known) == 3
        sent = 0
        async with client.producer() as busy:
            with trio.fail_after(60):
                while len(known) != 2:
                    await busy.send("out", b"more", timestamp_ms=1000)
                    sent += 1
                    await trio.sleep(0.02)
            await busy.send("out", b"more", timestamp_ms=1000)
        await opened.commit()
        assert await seen(client) == [b"1", b"2", b"3", *[b"more"] * (sent + 1)]
        async with client.transactional_producer("gone") as again, again.transaction():
            await again.send("out", b"4")
        assert b"4" in await seen(client)


@pytest.mark.virtual_time(False)
async def test_the_blocking_one(tmp_path) -> None:
    async with lone_node(tmp_path, ONE) as node, connect(node.native) as client:

        def work() -> None:
            with (
                blocking.connect(node.native) as other,
                other.transactional_producer("writer") as producer,
            ):
                with producer.transaction():
                    assert producer.in_transaction
                    producer.send_many("out", [b"a", b"b"])
                    producer.submit("out", b"c", key=b"k")
                    producer.send_offsets({TopicPartition("in", 0): 7}, "team")
                with pytest.raises(Oops), producer.transaction():  # noqa: PT012  the block's end
                    producer.send("out", b"never")
                    raise Oops
                assert not producer.in_transaction
                with pytest.raises(InvalidTransactionState):
                    producer.commit()
                with pytest.raises(InvalidTransactionState):
                    producer.send("out", b"outside")
                producer.begin()
                producer.send("out", b"d")
                producer.commit()
                producer.begin()
                producer.send("out", b"left open")
                with other.transactional_producer("writer"), pytest.raises(ProducerFenced):
                    producer.commit()

        await client.admin.create_topic("in", partitions=1)
        await client.admin.create_topic("out", partitions=3)
        await trio.to_thread.run_sync(work)
        assert await seen(client) == [b"a", b"b", b"c", b"d"]
        offsets = await client.admin.groups.offsets("team")
        assert offsets[TopicPartition("in", 0)].offset == 7


@pytest.mark.virtual_time(False)
async def test_sinks_through_the_blocking_client(tmp_path) -> None:
    async with lone_node(tmp_path, ONE) as node:

        def work() -> int:
            with blocking.connect(node.native) as client:
                begun = client.sinks.begin("sink", run="r", batch=0, timeout_s=60)
                assert client.sinks.touch("sink", run="r", batch=0) == 1
                client.sinks.commit("sink", run="r", batch=0, transactions=[begun.transaction])
                with pytest.raises(AlreadyCommitted):
                    client.sinks.begin("sink", run="r", batch=0)
                client.sinks.abort("sink", batch=1, transactions=["unknown"])
                return client.sinks.state("sink").last_batch

        assert await trio.to_thread.run_sync(work) == 0


async def test_transactions_go_on_while_leaders_and_the_coordinator_change(tmp_path) -> None:
    """Three nodes; one after the other crashes and comes back while a producer commits, aborts and
    commits: what it was told is what is there."""
    settings = TransactionalSettings(transaction_timeout_s=60)
    async with cluster(tmp_path, 3) as nodes:
        addresses = ",".join(node.native for _, node in sorted(nodes.up.items()))
        async with connect(addresses) as client:
            expected: list[bytes] = []
            stop = trio.Event()

            async def write() -> None:
                number = 0
                async with client.transactional_producer("payments", settings) as producer:
                    while not stop.is_set():
                        number += 1
                        values = [b"%d-%d" % (number, part) for part in range(3)]
                        await producer.begin()
                        for part, value in enumerate(values):
                            await producer.submit("out", value, partition=part)
                        if number % 4 == 0:
                            await producer.abort()
                        else:
                            await producer.commit()
                            expected.extend(values)

            def more_than(count: int) -> Callable[[], Awaitable[bool | None]]:
                async def found() -> bool | None:
                    return len(expected) > count or None

                return found

            async with trio.open_nursery() as nursery:
                nursery.start_soon(write)
                for victim in (0, 1, 2):
                    before = len(expected)
                    await nodes.crash(victim)
                    await nodes.start(victim)
                    await nodes.wait_for("more commits", more_than(before + 5))
                stop.set()
            assert await seen(client) == sorted(expected)


async def test_nothing_is_written_while_a_commit_is_under_way(tmp_path) -> None:
    """It would be in the next transaction, or look like another producer's."""
    async with lone_node(tmp_path, ONE) as node, connect(node.native) as client:
        async with client.transactional_producer("payments") as producer:
            await producer.begin()
            await producer.send("out", b"1", partition=0)
            refused: list[PacelineError] = []

            async def send_meanwhile() -> None:
                while producer.in_transaction:
                    try:
                        await producer.submit("out", b"late", partition=0)
                    except InvalidTransactionState as error:
                        refused.append(error)
                    await trio.sleep(0.0001)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(producer.commit)
                await trio.lowlevel.checkpoint()
                nursery.start_soon(send_meanwhile)
            assert refused
            async with producer.transaction():
                await producer.send("out", b"2", partition=0)
        assert [each for each in await seen(client) if each != b"late"] == [b"1", b"2"]


async def test_a_commit_that_was_thought_lost_is_no_error(tmp_path, monkeypatch) -> None:
    """The answer was lost, and asking again says that it is committed: then so does the block."""
    async with lone_node(tmp_path, ONE) as node, connect(node.native) as client:
        async with client.transactional_producer("payments") as producer:
            honest = producer._coordinator.call
            lost = []

            async def losing(api: NativeApi, body: object, *arguments: object, **more: object):
                told = await honest(api, body, *arguments, **more)
                if isinstance(body, EndTransaction) and body.commits and not lost:
                    lost.append(body)
                    raise RequestTimedOut("the answer was lost")
                return told

            monkeypatch.setattr(producer._coordinator, "call", losing)
            async with producer.transaction():
                await producer.send("out", b"1", partition=0)
            assert lost
            with pytest.raises(Oops):  # noqa: PT012
                async with producer.transaction():
                    await producer.send("out", b"2", partition=0)
                    raise Oops
        assert await seen(client) == [b"1"]


async def test_a_transaction_that_could_not_be_aborted_is_aborted_by_the_next(tmp_path) -> None:
    """Its coordinator was away for longer than an answer may take."""
    settings = ClientSettings(request_timeout_s=1.0)
    async with (
        cluster(tmp_path, 1, ONE) as nodes,
        connect(nodes.bootstrap_native, settings) as client,
        client.transactional_producer("payments") as producer,
    ):
        with pytest.raises(Oops):  # noqa: PT012
            async with producer.transaction():
                await producer.send("out", b"1", partition=0)
                await nodes.crash(0)
                raise Oops
        assert producer.in_transaction
        await nodes.restart(0)
        async with producer.transaction():
            await producer.send("out", b"2", partition=0)
        assert await seen(client) == [b"2"]


async def test_a_commit_nobody_heard_of_keeps_no_transaction_from_beginning(
    tmp_path, monkeypatch
) -> None:
    async with (
        lone_node(tmp_path, ONE) as node,
        connect(node.native) as client,
        client.transactional_producer("payments") as producer,
    ):
        honest = producer._coordinator.call
        asked: list[bool] = []

        async def losing(api: NativeApi, body: object, *arguments: object, **more: object):
            if isinstance(body, EndTransaction) and len(asked) < 2:
                asked.append(body.commits)
                if body.commits:
                    await honest(api, body, *arguments, **more)
                raise RequestTimedOut("the answer was lost")
            return await honest(api, body, *arguments, **more)

        monkeypatch.setattr(producer._coordinator, "call", losing)
        with pytest.raises(RequestTimedOut):
            async with producer.transaction():
                await producer.send("out", b"1", partition=0)
        assert asked == [True, False]
        async with producer.transaction():
            await producer.send("out", b"2", partition=0)
        assert await seen(client) == [b"1", b"2"]


async def test_an_abort_that_was_cancelled_can_become_no_commit(tmp_path) -> None:
    """Its request never went out, for want of a coordinator: there the transaction is open."""
    async with (
        cluster(tmp_path, 1, ONE) as nodes,
        connect(nodes.bootstrap_native) as client,
        client.transactional_producer("payments") as producer,
    ):
        await producer.begin()
        await producer.send("out", b"taken back", partition=0)
        await nodes.crash(0)
        with trio.move_on_after(0.5) as scope:
            await producer.abort()
        assert scope.cancelled_caught
        await nodes.restart(0)
        with pytest.raises(InvalidTransactionState):
            await producer.commit()
        with pytest.raises(InvalidTransactionState):
            await producer.send("out", b"more", partition=0)
        await producer.abort()
        async with producer.transaction():
            await producer.send("out", b"2", partition=0)
        assert await seen(client) == [b"2"]


FORGETFUL = {"transactions.ids_kept_ms": "1000", "transactions.expiry_check_ms": "100"}


async def forgotten(client: Client, transactional_id: str) -> None:
    with trio.fail_after(30):
        while any(  # noqa: ASYNC110  nobody tells when an id is forgotten
            each.transactional_id == transactional_id
            for each in await client.admin.transactions.list()
        ):
            await trio.sleep(0.05)


async def test_a_producer_that_was_silent_for_days_goes_on(tmp_path) -> None:
    """Its id was forgotten. It was told for ever that another producer had taken over."""
    async with (
        lone_node(tmp_path, {**ONE, **FORGETFUL}) as node,
        connect(node.native) as client,
        client.transactional_producer("weekly") as producer,
    ):
        await client.admin.create_topic("t", partitions=1, replication_factor=1)
        for value in (b"one", b"two", b"three"):
            async with producer.transaction():
                await producer.send("t", value)
            await forgotten(client, "weekly")
            with pytest.raises(InvalidProducerMapping):
                async with producer.transaction():
                    await producer.send("t", b"lost")
        # Nor does a transaction without records know of it before its end.
        await forgotten(client, "weekly")
        await producer.begin()
        with pytest.raises(InvalidProducerMapping):
            await producer.commit()
        await producer.abort()
        async with producer.transaction():
            await producer.send("t", b"four")
        assert await seen(client, "t") == sorted([b"one", b"two", b"three", b"four"])


async def test_a_producer_that_was_silent_for_days_fences_nobody(tmp_path) -> None:
    async with (
        lone_node(tmp_path, {**ONE, **FORGETFUL}) as node,
        connect(node.native) as client,
        client.transactional_producer("weekly") as producer,
    ):
        await client.admin.create_topic("t", partitions=1, replication_factor=1)
        async with producer.transaction():
            await producer.send("t", b"one")
        await forgotten(client, "weekly")
        async with client.transactional_producer("weekly") as newer:
            await newer.begin()
            await newer.send("t", b"two")
            with pytest.raises(PacelineError):
                async with producer.transaction():
                    await producer.send("t", b"lost")
            with pytest.raises(ProducerFenced):
                await producer.begin()
            await newer.commit()
        assert await seen(client, "t") == [b"one", b"two"]
