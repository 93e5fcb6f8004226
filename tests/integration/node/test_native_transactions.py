"""Transactions of the native protocol, by hand, over real sockets."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from paceline.errors import (
    AlreadyCommitted,
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    ErrorCode,
    InvalidTransactionState,
    NotCoordinator,
    NotLeader,
    PacelineError,
    ProducerFenced,
    SinkFenced,
)
from paceline.types import Acks, Isolation
from paceline.wire.batch import TRANSACTIONAL, build_batch, iter_batches
from paceline.wire.end_marker import is_end_marker, read_end_marker
from paceline.wire.native import data
from paceline.wire.native import groups as group_wire
from paceline.wire.native import transactions as wire
from paceline.wire.native.api import NativeApi
from paceline.wire.records import Record, decode_records
from tests.integration.node.native import NativeConnection
from tests.integration.node.native import request as framed
from tests.integration.node.nodes import HANG_S, V1Client, lone_node

pytestmark = pytest.mark.virtual_time

ONE = {
    "topics.partitions": "2",
    "topics.replication_factor": "1",
    "topics.min_insync_replicas": "1",
}
SOON = (
    ConcurrentTransactions,
    NotCoordinator,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
)


class Writer:
    """A transactional producer at one connection."""

    def __init__(
        self,
        native: NativeConnection,
        name: str,
        *,
        family: str = wire.KAFKA,
        identity: tuple[int, int] = (-1, -1),
    ) -> None:
        self.native = native
        self.name = name
        self.family = family
        self.identity = identity
        self.sequences: dict[int, int] = {}

    async def init(self, timeout_ms: int = 60_000) -> None:
        request = data.InitProducer(self.name, timeout_ms)
        while True:
            try:
                found = await self.native.call(
                    NativeApi.INIT_PRODUCER, request, data.ProducerIdentity
                )
            except SOON:
                await trio.sleep(0.02)
                continue
            self._take(found.producer_id, found.producer_epoch)
            return

    def _take(self, producer_id: int, epoch: int) -> None:
        self.identity = (producer_id, epoch)
        self.sequences = {}

    def batch(self, partition: int, values: Sequence[bytes], flags: int = TRANSACTIONAL) -> bytes:
        sequence = self.sequences.get(partition, 0)
        return bytes(
            build_batch(
                [Record(-1, 1_700_000_000_000, None, value) for value in values],
                producer_id=self.identity[0],
                producer_epoch=self.identity[1],
                base_sequence=sequence,
                flags=flags,
            )
        )

    async def send(self, partition: int, *values: bytes) -> data.ProducedPartition:
        while True:
            result = await self.send_raw(partition, self.batch(partition, values))
            if result.error in {error.code for error in SOON}:
                await trio.sleep(0.02)
                continue
            if result.error == 0:
                sequence = self.sequences.get(partition, 0)
                self.sequences[partition] = sequence + len(values)
            return result

    async def send_raw(
        self, partition: int, batch: bytes, acks: Acks = Acks.ALL
    ) -> data.ProducedPartition:
        part = data.ProducePartition("orders", partition, len(batch))
        request = data.Produce(10_000, acks, (part,), self.name, self.family)
        reply = await self.native.call(NativeApi.PRODUCE, request, data.ProduceReply, batch)
        return reply.partitions[0]

    async def end(self, *, commits: bool) -> wire.TransactionEnded:
        request = wire.EndTransaction(self.name, *self.identity, commits)
        ended = await self.native.call(NativeApi.END_TRANSACTION, request, wire.TransactionEnded)
        self._take(ended.producer_id, ended.producer_epoch)
        return ended


async def plain(native: NativeConnection, value: bytes) -> None:
    """A record of partition 0 outside of any transaction; the topic is there then, and led."""
    request = data.MetadataRequest(("orders",), True)
    await native.call(NativeApi.METADATA, request, data.MetadataReply)
    for partition in (0, 1):
        await led(native, partition)
    batch = build_batch([Record(-1, 1_700_000_000_000, None, value)])
    assert (await native.produce("orders", 0, batch)).error == 0


async def led(native: NativeConnection, partition: int) -> None:
    """Wait until the node leads a partition."""
    with trio.fail_after(HANG_S):
        while True:
            try:
                await native.describe("orders", partition)
                return
            except NotLeader:
                await trio.sleep(0.02)


async def fetch(
    native: NativeConnection, partition: int, isolation: Isolation, offset: int = 0
) -> tuple[data.FetchedPartition, bytes]:
    request = data.Fetch(
        0, 1, 1 << 20, isolation, (data.FetchPartition("orders", partition, offset, 1 << 20),)
    )
    await native.send(framed(NativeApi.FETCH, request, correlation=10**6))
    frame = await native.receive()
    assert frame is not None
    frame.raise_for_error()
    return data.FetchReply.unpack(frame.body).partitions[0], bytes(frame.payload)


async def values(
    native: NativeConnection, partition: int, isolation: Isolation = Isolation.READ_COMMITTED
) -> list[bytes | None]:
    """What a client of this isolation shows of a partition."""
    found, payload = await fetch(native, partition, isolation)
    begins = {(each.producer_id, each.first_offset) for each in found.aborted}
    aborted: set[int] = set()
    shown: list[bytes | None] = []
    for position, header in iter_batches(payload):
        for producer, first in begins:
            if first <= header.base_offset and producer == header.producer_id:
                aborted.add(producer)
        if is_end_marker(header):
            marker = read_end_marker(payload, position)
            if not marker.commits:
                aborted.discard(header.producer_id)
                begins = {
                    each
                    for each in begins
                    if each[0] != header.producer_id or each[1] > header.base_offset
                }
            continue
        if header.is_transactional and header.producer_id in aborted:
            continue
        shown += [record.value for record in decode_records(payload, position)]
    return shown


async def test_all_or_nothing_over_partitions_and_protocols(tmp_path) -> None:
    async with (
        lone_node(tmp_path, ONE) as node,
        V1Client(node.v1) as v1,
        NativeConnection(node.addresses["native"]) as native,
    ):
        await plain(native, b"plain")
        writer = Writer(native, "payments")
        await writer.init()
        for partition in (0, 1):
            assert (await writer.send(partition, b"a", b"b")).error == 0
            assert (await writer.send(partition, b"c")).error == 0
        found, _ = await fetch(native, 0, Isolation.READ_COMMITTED)
        assert (found.last_stable_offset, found.high_watermark) == (1, 4)
        assert await values(native, 0) == [b"plain"]
        assert await values(native, 1) == []
        assert await values(native, 1, Isolation.READ_UNCOMMITTED) == [b"a", b"b", b"c"]
        first = writer.identity
        ended = await writer.end(commits=True)
        assert ended.complete
        assert (ended.producer_id, ended.producer_epoch) == (first[0], first[1] + 1)
        assert await values(native, 0) == [b"plain", b"a", b"b", b"c"]
        assert await values(native, 1) == [b"a", b"b", b"c"]

        # An abort hides what was written, from every protocol; what comes behind it is shown.
        for partition in (0, 1):
            await writer.send(partition, b"no")
        assert (await writer.end(commits=False)).complete
        await writer.send(0, b"d")
        assert (await writer.end(commits=True)).complete
        assert await values(native, 0) == [b"plain", b"a", b"b", b"c", b"d"]
        found, payload = await fetch(native, 0, Isolation.READ_COMMITTED)
        assert [each.first_offset for each in found.aborted] == [5]
        markers = [
            read_end_marker(payload, position).commits
            for position, header in iter_batches(payload)
            if is_end_marker(header)
        ]
        assert markers == [True, False, True]
        read = await v1.ok("CONSUME", "orders 0 0 max=100")
        assert read["messages"] == "0:plain,1:a,2:b,3:c,7:d"


async def test_who_is_fenced_can_write_nothing(tmp_path) -> None:
    async with (
        lone_node(tmp_path, ONE) as node,
        NativeConnection(node.addresses["native"]) as native,
    ):
        await plain(native, b"plain")
        old = Writer(native, "payments")
        await old.init()
        await old.send(0, b"old")
        new = Writer(native, "payments")
        await new.init()
        assert new.identity[0] == old.identity[0]
        result = await old.send(0, b"late")
        assert result.error in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
        result = await old.send(1, b"late")
        assert result.error in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
        with pytest.raises(ProducerFenced):
            await old.end(commits=True)
        await new.send(0, b"new")
        await new.end(commits=True)
        assert await values(native, 0) == [b"plain", b"new"]
        assert await values(native, 1) == []


async def test_what_a_partition_must_not_take(tmp_path) -> None:
    async with (
        lone_node(tmp_path, ONE) as node,
        NativeConnection(node.addresses["native"]) as native,
    ):
        await plain(native, b"plain")
        writer = Writer(native, "payments")
        await writer.init()
        batch = writer.batch(0, [b"x"])
        assert (await writer.send_raw(0, batch, Acks.LEADER)).error == (
            ErrorCode.INVALID_REQUIRED_ACKS
        )
        # A transactional batch outside of a transaction's request, and the other way round.
        assert (await native.produce("orders", 0, batch)).error == ErrorCode.INVALID_RECORD
        no_member = writer.batch(0, [b"x"], flags=0)
        assert (await writer.send_raw(0, no_member)).error == ErrorCode.INVALID_REQUEST
        await writer.send(0, b"x")
        outside = await native.produce("orders", 0, writer.batch(0, [b"y"], flags=0))
        assert outside.error == ErrorCode.INVALID_TXN_STATE
        marker = build_batch(
            [Record(-1, 1, b"\0\0\0\1", b"\0" * 6)],
            producer_id=writer.identity[0],
            producer_epoch=writer.identity[1],
            flags=0x30,
        )
        for raw in (writer.send_raw(0, bytes(marker)), native.produce("orders", 0, marker)):
            assert (await raw).error == ErrorCode.INVALID_RECORD
        stranger = Writer(native, "payments", identity=(writer.identity[0] + 1, 0))
        assert (await stranger.send(1, b"z")).error == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        nobody = Writer(native, "never heard of", identity=(5, 0))
        assert (await nobody.send(1, b"z")).error == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        await writer.end(commits=True)
        assert await values(native, 0) == [b"plain", b"x"]


async def test_a_transaction_left_open_blocks_readers_no_longer_than_its_time_out(
    tmp_path,
) -> None:
    async with (
        lone_node(tmp_path, ONE) as node,
        NativeConnection(node.addresses["native"]) as native,
    ):
        await plain(native, b"plain")
        writer = Writer(native, "payments")
        await writer.init(timeout_ms=1000)
        await writer.send(0, b"never ended")
        await plain(native, b"behind")
        assert await values(native, 0) == [b"plain"]
        with trio.fail_after(30):
            # A long poll, which is woken by the marker.
            request = data.Fetch(
                20_000,
                1,
                1 << 20,
                Isolation.READ_COMMITTED,
                (data.FetchPartition("orders", 0, 1, 1 << 20),),
            )
            await native.call(NativeApi.FETCH, request, data.FetchReply)
        assert await values(native, 0) == [b"plain", b"behind"]
        with pytest.raises(ProducerFenced):
            await writer.end(commits=True)
        described = await native.call(
            NativeApi.DESCRIBE_TRANSACTION,
            wire.DescribeTransaction("payments"),
            wire.TransactionDescription,
        )
        assert described.listing.state == "complete_abort"
        assert "1000 ms" in described.reason


async def test_offsets_are_committed_with_the_transaction_or_not_at_all(tmp_path) -> None:
    async with (
        lone_node(tmp_path, ONE) as node,
        NativeConnection(node.addresses["native"]) as native,
    ):
        await plain(native, b"plain")
        writer = Writer(native, "payments")
        await writer.init()

        async def stage(offset: int) -> list[int]:
            request = wire.CommitTransactionOffsets(
                "payments",
                *writer.identity,
                "team",
                -1,
                "",
                (group_wire.OffsetToCommit("orders", 0, offset),),
            )
            while True:
                try:
                    reply = await native.call(
                        NativeApi.COMMIT_TRANSACTION_OFFSETS, request, group_wire.OffsetResults
                    )
                except SOON:
                    await trio.sleep(0.02)
                    continue
                return [each.error for each in reply.partitions]

        async def committed(*, stable: bool = False) -> list[tuple[int, int]]:
            reply = await native.call(
                NativeApi.FETCH_OFFSETS,
                group_wire.FetchOffsets(
                    "team", (group_wire.TopicPartitions("orders", (0,)),), stable
                ),
                group_wire.OffsetsFetched,
            )
            return [(each.error, each.offset) for each in reply.partitions]

        assert await stage(1) == [0]
        await writer.send(0, b"out")
        assert await committed() == [(0, -1)]
        assert await committed(stable=True) == [(ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)]
        assert (await writer.end(commits=True)).complete
        assert await committed(stable=True) == [(0, 1)]
        assert await stage(7) == [0]
        assert (await writer.end(commits=False)).complete
        assert await committed(stable=True) == [(0, 1)]
        old = writer.identity
        writer.identity = (old[0], old[1] - 1)
        with pytest.raises(PacelineError) as refused:
            await stage(9)
        assert refused.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


async def test_a_group_commit_shows_the_listed_attempts_and_nothing_else(tmp_path) -> None:
    async with (
        lone_node(tmp_path, ONE) as node,
        NativeConnection(node.addresses["native"]) as native,
    ):
        await plain(native, b"plain")

        async def begin(number: int, run: str = "run-1", batch: int = 0) -> Writer:
            request = wire.BeginAttempt("sink", "query", run, batch, 0, number, 60_000)
            begun = await native.call(NativeApi.BEGIN_ATTEMPT, request, wire.AttemptBegun)
            identity = (begun.producer_id, begun.producer_epoch)
            return Writer(native, begun.transaction, family=wire.SINK, identity=identity)

        async def commit(*listed: Writer, run: str = "run-1", batch: int = 0) -> bool:
            names = tuple(each.name for each in listed)
            request = wire.CommitGroup("sink", run, batch, names)
            reply = await native.call(NativeApi.COMMIT_GROUP, request, wire.GroupCommitted)
            return reply.complete

        with trio.fail_after(30):
            while True:
                try:
                    one = await begin(1)
                    break
                except SOON:
                    await trio.sleep(0.02)
        two, twin = await begin(2), await begin(3)
        for number, each in enumerate((one, two, twin)):
            for partition in (0, 1):
                assert (await each.send(partition, b"%d" % number)).error == 0
        touched = await native.call(
            NativeApi.TOUCH_BATCH, wire.TouchBatch("sink", "run-1", 0), wire.BatchTouched
        )
        assert touched.open_count == 3
        assert await commit(one, two)
        assert sorted(await values(native, 0)) == [b"0", b"1", b"plain"]
        assert await values(native, 1) == [b"0", b"1"]
        with pytest.raises(AlreadyCommitted):
            await commit(one, two)
        with pytest.raises(AlreadyCommitted):
            await begin(1)
        for zombie in (one, twin):
            assert (await zombie.send(0, b"late")).error == ErrorCode.INVALID_TXN_STATE
        later = await begin(1, batch=1)
        await later.send(0, b"of the run before")
        taker = await begin(1, run="run-2", batch=1)
        with pytest.raises(SinkFenced):
            await commit(later, batch=1)
        with pytest.raises(InvalidTransactionState):
            await commit(later, run="run-2", batch=1)
        await taker.send(1, b"2")
        assert await commit(taker, run="run-2", batch=1)
        assert await values(native, 1) == [b"0", b"1", b"2"]
        state = await native.call(
            NativeApi.SINK_STATE, wire.SinkState("sink"), wire.SinkDescription
        )
        assert (state.known, state.run, state.last_batch) == (True, "run-2", 1)
        await native.call(
            NativeApi.ABORT_GROUP, wire.AbortGroup("sink", 1, (taker.name,)), wire.GroupAborted
        )
        assert sorted(await values(native, 0)) == [b"0", b"1", b"plain"]
