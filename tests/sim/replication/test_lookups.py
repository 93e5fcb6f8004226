"""Offsets that a client asks for: by time, by name, by epoch, so many bytes ahead; and what is
refused (replication/DESIGN 3.2)."""

from __future__ import annotations

import contextlib

import pytest
import trio
import trio.testing

from paceline.errors import (
    FencedLeaderEpoch,
    InvalidRequest,
    NotLeader,
    OffsetNotAvailable,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from paceline.types import Acks, Isolation, LeaderEpoch, OffsetSpec
from paceline.wire.batch import build_batch, validate_client_batches
from paceline.wire.batch_header import TRANSACTIONAL
from paceline.wire.records import Record
from paceline_node.replication.offset_lookups import TimesNotKnown, ahead, epoch_end, find_offset
from tests.integration.replication.cluster import batch, produce
from tests.sim.replication.memory_cluster import RECORDS, memory_cluster

END = len(RECORDS)


async def test_names_and_times(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_cluster(1) as cluster:
        leader = await cluster.written([], replicas=1)
        for time_ms in (9000, 1000, 2000, 3000, 2000, 3000):
            await produce(leader, build_batch([Record(-1, time_ms, None, b"value")]))
        leader.trim(1)
        assert find_offset(leader, OffsetSpec.EARLIEST).offset == 1
        assert find_offset(leader, OffsetSpec.LATEST).offset == 6
        assert find_offset(leader, 0)[:2] == (1, 1000)
        assert find_offset(leader, 2000)[:2] == (2, 2000)
        assert find_offset(leader, 2001)[:2] == (3, 3000)
        assert find_offset(leader, 3001).offset == -1
        assert find_offset(leader, OffsetSpec.MAX_TIMESTAMP)[:2] == (3, 3000)
        with pytest.raises(InvalidRequest, match="neither a time nor an offset's name"):
            find_offset(leader, -99)


async def test_what_is_not_committed_has_no_time_yet(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster() as cluster:
        leader = await cluster.written(RECORDS)
        for disk in cluster.disks.values():
            disk.hang()
        async with trio.open_nursery() as nursery:
            late = build_batch([Record(-1, 5000, None, b"late")])
            nursery.start_soon(produce, leader, late)
            await trio.sleep(0.1)
            assert leader.log_end_offset == END + 1
            assert find_offset(leader, OffsetSpec.LATEST).offset == END
            assert find_offset(leader, 5000).offset == -1
            assert find_offset(leader, OffsetSpec.MAX_TIMESTAMP).timestamp_ms == 1000
            for disk in cluster.disks.values():
                disk.heal()
        assert find_offset(leader, 5000)[:2] == (END, 5000)


async def test_records_of_an_open_transaction_are_read_by_those_who_ask_for_all(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster(1) as cluster:
        leader = await cluster.written(RECORDS, replicas=1)
        undecided = build_batch(
            [Record(-1, 5000, None, b"undecided")],
            producer_id=7,
            producer_epoch=0,
            base_sequence=0,
            flags=TRANSACTIONAL,
        )
        leader.produce(
            undecided,
            validate_client_batches(undecided, allowed_attributes=TRANSACTIONAL),
            acks=Acks.ALL,
            timeout_s=1.0,
            done=lambda _: None,
            ticket=leader.gate.ticket(7, 0),
        )
        await cluster.wait(lambda: leader.high_watermark == END + 1)
        ends = [find_offset(leader, OffsetSpec.LATEST, each).offset for each in Isolation]
        assert ends == [END + 1, END]
        assert find_offset(leader, 5000, Isolation.READ_COMMITTED).offset == -1


async def test_an_empty_log_has_ends_but_no_times(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_cluster(1) as cluster:
        leader = await cluster.written([], replicas=1)
        assert find_offset(leader, OffsetSpec.EARLIEST).offset == 0
        assert find_offset(leader, OffsetSpec.LATEST).offset == 0
        assert find_offset(leader, OffsetSpec.MAX_TIMESTAMP).offset == -1
        assert ahead(leader, 0, 1000).offset == 0
        assert epoch_end(leader, LeaderEpoch(0))[::2] == (0, 0)


async def test_followers_answer_nothing_about_offsets(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster() as cluster:
        await cluster.written(RECORDS)
        follower = cluster.follower().partition("t")
        for ask in (
            lambda: find_offset(follower, OffsetSpec.LATEST),
            lambda: epoch_end(follower, LeaderEpoch(0)),
            lambda: ahead(follower, 0, 1),
            lambda: follower.read(0, 1),
        ):
            with pytest.raises(NotLeader):
                ask()
        with pytest.raises(OffsetNotAvailable, match="has not reached this follower"):
            follower.read(END + 1, 1, from_follower=True)


async def test_a_fresh_leader_says_no_end_that_may_be_too_low(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """It holds a record of the old leader that it does not know to be committed."""
    async with memory_cluster() as cluster:
        old = await cluster.written(RECORDS)
        fresh = cluster.follower()
        others = [cluster.host_of(n) for n in cluster.nodes if n != fresh.node_id]
        await produce(old, batch(b"committed"))
        partition = fresh.partition("t")
        assert (partition.high_watermark, partition.log_end_offset) == (END, END + 1)
        for other in others:
            cluster.fabric.cut(other, cluster.host_of(fresh.node_id))
        cluster.elect("t", fresh.node_id)
        assert partition.is_leader
        with pytest.raises(OffsetNotAvailable, match="not confirmed yet"):
            find_offset(partition, OffsetSpec.LATEST)
        for other in others:
            cluster.fabric.heal(other, cluster.host_of(fresh.node_id))
        await cluster.wait(lambda: partition.replica.high_watermark_is_true)
        assert find_offset(partition, OffsetSpec.LATEST).offset == END + 1


async def test_where_epochs_end(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_cluster() as cluster:
        await cluster.written(RECORDS)
        cluster.elect("t", cluster.follower().node_id)
        moved = cluster.leader("t")
        assert moved is not None
        assert epoch_end(moved, LeaderEpoch(0))[::2] == (END, 0)
        assert epoch_end(moved, LeaderEpoch(1))[::2] == (END, 1), "nothing was written in it yet"
        with pytest.raises(UnknownLeaderEpoch):
            epoch_end(moved, LeaderEpoch(2))
        with pytest.raises(FencedLeaderEpoch):
            moved.read(0, 1, current_leader_epoch=0)
        with pytest.raises(UnknownLeaderEpoch):
            moved.read(0, 1, current_leader_epoch=2)
        with pytest.raises(OffsetOutOfRange):
            moved.read(END + 1, 1)


async def test_bytes_ahead_over_segments(autojump_clock: trio.testing.MockClock) -> None:
    """At least one batch, else as many whole ones as fit, over the segments' borders."""
    async with memory_cluster(1) as cluster:
        leader = await cluster.written([b"x" * 400] * 9, replicas=1, segment_bytes="1024")
        size = leader.log.segments[0].size // leader.log.segments[0].next_offset
        reached = [ahead(leader, 1, size * count).offset for count in range(10)]
        assert reached == [2, 2, 3, 4, 5, 6, 7, 8, 9, 9]
        assert ahead(leader, 9, 1).offset == 9
        assert ahead(leader, 12, 1).offset == 12


async def test_a_time_index_that_rotted_is_made_anew_before_it_is_believed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A bit in the time of an entry: the answer was a later record than asked for."""
    async with memory_cluster(1) as cluster:
        await cluster.create_topic("t", replicas=1, segment_bytes="4096")
        leader = cluster.leader("t")
        assert leader is not None
        for at in range(40):
            await produce(leader, build_batch([Record(-1, 4096 + at, None, b"x" * 400)]))
        names = [each.path(".timeindex") for each in leader.log.segments[:-1]]
        await cluster.stop(0)
        disk = cluster.disks[0]
        for name in names:
            content = bytearray(disk.content(name))
            content[-12 + 6] ^= 0x08  # of the newest entry: two seconds less
            disk.overwrite(name, bytes(content))
        await cluster.start(0, clean=True)
        await cluster.wait(lambda: cluster.leader("t") is not None)
        again = cluster.leader("t")
        assert again is not None
        with pytest.raises(TimesNotKnown, match="time index"):
            find_offset(again, 4100)

        def is_known() -> bool:
            with contextlib.suppress(TimesNotKnown):
                return find_offset(again, 4100)[:2] == (4, 4100)
            return False

        await cluster.wait(is_known)
        assert [find_offset(again, 4096 + at)[0] for at in range(5)] == list(range(5))
