"""submit_many: which record went where, told as the acknowledgements arrive."""

from __future__ import annotations

import pytest

from paceline.client import Portion, ProducerSettings
from paceline.errors import Closed, ErrorCode, PolicyViolation
from paceline.wire.native.api import NativeApi
from paceline.wire.records import decode_records
from tests.unit.client.harness import cluster_and_client


async def test_every_record_is_found_at_its_portions_place(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        logs = cluster.create("orders", 3)
        async with client.producer(ProducerSettings(batch_bytes=4096)) as producer:
            await producer.send("orders", b"someone else's", partition=1)
            keys = [None if number % 5 == 0 else b"k%d" % (number % 7) for number in range(900)]
            values = [b"%d" % number for number in range(900)]
            portions = await producer.submit_many("orders", values, keys=keys)
            await producer.flush()
        assert sorted(at for portion in portions for at in portion.positions) == list(range(900))
        stored = {
            (number, record.offset): (record.key, record.value)
            for number, log in enumerate(logs)
            for batch in log.batches
            for record in decode_records(batch)
        }
        for portion in portions:
            placed = portion.result()
            assert placed.record_count == len(portion.positions)
            for offset, at in enumerate(portion.positions, start=placed.base_offset):
                assert stored[placed.partition, offset] == (keys[at], values[at])


async def test_portions_of_two_calls_may_share_a_batch(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.create("orders", 1)
        async with client.producer(ProducerSettings(linger_s=1)) as producer:
            [first] = await producer.submit_many("orders", [b"a", b"b"])
            [second] = await producer.submit_many("orders", [b"c"])
            assert first.batch is second.batch
            with pytest.raises(Closed):
                second.result()
            await producer.flush()
        assert (first.result().base_offset, second.result().base_offset) == (0, 2)


async def test_callbacks_come_once_with_the_outcome(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.create("orders", 1)
        seen: list[str] = []

        def note(portion: Portion) -> None:
            try:
                seen.append(f"stored at {portion.result().base_offset}")
            except PolicyViolation:
                seen.append("refused")

        async with client.producer() as producer:
            [fine] = await producer.submit_many("orders", [b"x"])
            fine.when_done(lambda: note(fine))
            await producer.flush()
            fine.when_done(lambda: note(fine))
            cluster.fault(NativeApi.PRODUCE, error=ErrorCode.POLICY_VIOLATION)
            [bad] = await producer.submit_many("orders", [b"y"])
            bad.when_done(lambda: note(bad))
            await producer.flush()  # somebody was told already, so it keeps silent
            delivery = await producer.submit("orders", b"z")
            delivery.when_done(lambda: seen.append(f"record at {delivery.result().offset}"))
            await producer.flush()
        assert seen == ["stored at 0", "stored at 0", "refused", "record at 1"]
