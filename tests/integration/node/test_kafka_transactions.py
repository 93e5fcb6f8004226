"""Kafka transactions, byte by byte: what is committed, aborted, fenced and refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from paceline.errors import ErrorCode
from paceline.wire.batch import TRANSACTIONAL, build_batch, iter_batches
from paceline.wire.kafka import cluster, offsets, records
from paceline.wire.kafka import transactions as wire
from paceline.wire.records import Record, decode_records
from tests.integration.node.kafka_client import NO_COORDINATOR, KafkaClient, coordinated
from tests.integration.node.nodes import HANG_S, lone_node
from tests.integration.node.test_kafka import NOW, ONE, TOPIC, fetch, fetched, make_topic

pytestmark = pytest.mark.virtual_time

Identity = tuple[int, int]
ID = "tx"
VERSIONS = range(4)


class TransactionalClient(KafkaClient):
    """Requests of a producer with a transactional id; each returns the error code."""

    name = ID
    sequence = 0

    async def init(
        self, version: int = 4, name: str | None = None, **more: Any
    ) -> tuple[int, Identity]:
        name = self.name if name is None else name
        request = wire.InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=60_000, **more
        )
        with trio.fail_after(HANG_S):  # as clients do: until there is a coordinator
            while (made := await self.ask(request, version)).error_code in NO_COORDINATOR:  # noqa: ASYNC110
                await trio.sleep(0.02)
        self.sequence = 0
        return made.error_code, (made.producer_id, made.producer_epoch)

    async def add(self, who: Identity, version: int = 3, topic: str = TOPIC) -> int:
        named = wire.AddPartitionsToTxnRequestTopic(name=topic, partitions=(0,))
        request = wire.AddPartitionsToTxnRequest(
            transactional_id=self.name, producer_id=who[0], producer_epoch=who[1], topics=(named,)
        )
        [answered] = (await self.ask(request, version)).results_by_topic
        return int(answered.results_by_partition[0].partition_error_code)

    async def write(self, who: Identity, value: bytes, *, flags: int = TRANSACTIONAL) -> int:
        batch = build_batch(
            [Record(-1, NOW, None, value)],
            producer_id=who[0],
            producer_epoch=who[1],
            base_sequence=self.sequence,
            flags=flags,
        )
        part = records.ProduceRequestTopicPartition(index=0, records=bytes(batch))
        topic = records.ProduceRequestTopic(name=TOPIC, partition_data=(part,))
        request = records.ProduceRequest(
            transactional_id=self.name if flags else None,
            acks=-1,
            timeout_ms=10_000,
            topic_data=(topic,),
        )
        [entry] = (await self.ask(request, 9)).responses
        code = int(entry.partition_responses[0].error_code)
        self.sequence += code == 0
        return code

    async def end(self, who: Identity, *, commits: bool, version: int = 3) -> int:
        request = wire.EndTxnRequest(
            transactional_id=self.name, producer_id=who[0], producer_epoch=who[1], committed=commits
        )
        return int((await self.ask(request, version)).error_code)

    async def add_group(self, who: Identity, version: int = 3, group: str = "g") -> int:
        request = wire.AddOffsetsToTxnRequest(
            transactional_id=self.name, producer_id=who[0], producer_epoch=who[1], group_id=group
        )
        return int((await self.ask(request, version)).error_code)

    async def commit_offset(
        self, who: Identity, offset: int, version: int = 3, group: str = "g"
    ) -> int:
        part = wire.TxnOffsetCommitRequestTopicPartition(partition_index=0, committed_offset=offset)
        topic = wire.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=(part,))
        request = wire.TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=who[0],
            producer_epoch=who[1],
            topics=(topic,),
        )
        [answered] = (await self.ask(request, version)).topics
        return int(answered.partitions[0].error_code)

    async def offset(self, *, require_stable: bool) -> tuple[int, int]:
        asked = offsets.OffsetFetchRequestGroupTopic(name=TOPIC, partition_indexes=(0,))
        group = offsets.OffsetFetchRequestGroup(group_id="g", topics=(asked,))
        request = offsets.OffsetFetchRequest(groups=(group,), require_stable=require_stable)
        [found] = (await self.ask(request, 8)).groups[0].topics
        return found.partitions[0].error_code, found.partitions[0].committed_offset

    async def seen(self, *, committed: bool) -> tuple[list[bytes | None], Any]:
        """Values from the start as they are sent, control records left out; and the rest."""
        part = fetched(await self.ask(fetch(0, isolation_level=int(committed)), 12))
        values = [
            each.value
            for at, header in iter_batches(part.records)
            if not header.is_control
            for each in decode_records(part.records, at)
        ]
        return values, part


@asynccontextmanager
async def client_of(directory: Path) -> AsyncIterator[TransactionalClient]:
    async with (
        lone_node(directory, ONE) as node,
        TransactionalClient(node.addresses["kafka"]) as client,
    ):
        await make_topic(client)
        await coordinated(node.addresses["kafka"], "g")
        yield client


async def test_every_version_commits_and_aborts(tmp_path: Path) -> None:
    async with client_of(tmp_path) as client:
        asked = cluster.FindCoordinatorRequest(key=ID, key_type=1)
        assert (await client.ask(asked, 3)).error_code == 0
        committed = []
        for version in VERSIONS:
            error, who = await client.init(version)
            assert error == 0
            for commits in (True, False):
                value = b"%d %d" % (version, commits)
                assert await client.add(who, version) == 0
                assert await client.write(who, value) == 0
                assert (await client.seen(committed=True))[0][-1:] != [value]
                assert await client.end(who, commits=commits, version=version) == 0
                committed += [value] if commits else []
        values, part = await client.seen(committed=True)
        assert len(values) == 2 * len(VERSIONS), "readers leave out themselves what was aborted"
        aborted = [(each.producer_id, each.first_offset) for each in part.aborted_transactions]
        assert aborted == [(who[0], 2 + 4 * version) for version in VERSIONS]
        assert part.last_stable_offset == part.high_watermark == 4 * len(VERSIONS)
        values, part = await client.seen(committed=False)
        assert part.aborted_transactions is None
        assert values[::2] == committed


async def test_offsets_of_transactions_keep_to_the_limits_of_groups(tmp_path: Path) -> None:
    """Also below version 3, where the producer speaks for no member."""
    async with client_of(tmp_path) as client:
        _, who = await client.init()
        for version in (0, 3):
            await client.add_group(who, group="g" * 300)
            code = await client.commit_offset(who, 5, version, group="g" * 300)
            assert code == ErrorCode.INVALID_GROUP_ID


async def test_an_open_transaction_holds_the_last_stable_offset(tmp_path: Path) -> None:
    async with client_of(tmp_path) as client:
        _, who = await client.init()
        assert await client.add(who) == 0
        assert await client.write(who, b"v") == 0
        values, part = await client.seen(committed=True)
        assert (values, part.last_stable_offset, part.high_watermark) == ([], 0, 1)
        assert (await client.seen(committed=False))[0] == [b"v"]
        asked = records.ListOffsetsRequestTopicPartition(partition_index=0, timestamp=-1)
        topic = records.ListOffsetsRequestTopic(name=TOPIC, partitions=(asked,))
        for isolation, end in ((0, 1), (1, 0)):
            request = records.ListOffsetsRequest(isolation_level=isolation, topics=(topic,))
            found = (await client.ask(request, 7)).topics[0].partitions[0]
            assert found.offset == end


async def test_a_second_producer_of_an_id_fences_the_first(tmp_path: Path) -> None:
    async with client_of(tmp_path) as client:
        _, first = await client.init()
        assert await client.add(first) == 0
        assert await client.write(first, b"lost") == 0
        error, second = await client.init()
        while error == ErrorCode.CONCURRENT_TRANSACTIONS:
            error, second = await client.init()
        assert error == 0
        assert second[0] == first[0]
        assert second[1] > first[1]
        for version in VERSIONS:
            known = version >= 2
            fenced = ErrorCode.PRODUCER_FENCED if known else ErrorCode.INVALID_PRODUCER_EPOCH
            assert await client.add(first, version) == fenced
            assert await client.add_group(first, version) == fenced
            assert await client.end(first, commits=True, version=version) == fenced
            assert await client.commit_offset(first, 1, version) == ErrorCode.INVALID_PRODUCER_EPOCH
        for version, fenced in (
            (4, ErrorCode.PRODUCER_FENCED),
            (3, ErrorCode.INVALID_PRODUCER_EPOCH),
        ):
            assert (await client.init(version, producer_id=first[0], producer_epoch=first[1]))[
                0
            ] == fenced
        client.sequence = 1
        assert await client.write(first, b"late") == ErrorCode.INVALID_PRODUCER_EPOCH


async def test_offsets_are_the_groups_when_the_transaction_commits(tmp_path: Path) -> None:
    async with client_of(tmp_path) as client:
        _, who = await client.init()
        for version in VERSIONS:
            before = await client.offset(require_stable=True)
            for commits in (False, True):
                assert await client.add_group(who, version) == 0
                assert await client.commit_offset(who, 10 + version, version) == 0
                assert await client.offset(require_stable=False) == before
                unstable = await client.offset(require_stable=True)
                assert unstable == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
                assert await client.end(who, commits=commits, version=version) == 0
                before = (0, 10 + version) if commits else before
                assert await client.offset(require_stable=True) == before


async def test_what_is_refused(tmp_path: Path) -> None:
    async with client_of(tmp_path) as client:
        _, who = await client.init()
        assert await client.write(who, b"not added") == ErrorCode.INVALID_TXN_STATE
        assert await client.commit_offset(who, 1) == ErrorCode.INVALID_TXN_STATE
        assert await client.end(who, commits=True) == ErrorCode.INVALID_TXN_STATE
        assert await client.add(who, topic="nowhere") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await client.add(who, topic="__groups") != 0
        assert (await client.init(name=""))[0] == ErrorCode.INVALID_REQUEST
        request = wire.InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=10**9)
        answer = await client.ask(request, 4)
        assert answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        named = [
            wire.AddPartitionsToTxnRequestTopic(name=name, partitions=(0,))
            for name in (TOPIC, "nowhere")
        ]
        both = wire.AddPartitionsToTxnRequest(
            transactional_id=ID, producer_id=who[0], producer_epoch=who[1], topics=tuple(named)
        )
        answered = (await client.ask(both, 3)).results_by_topic
        assert [each.results_by_partition[0].partition_error_code for each in answered] == [
            ErrorCode.OPERATION_NOT_ATTEMPTED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert await client.add(who) == 0
        assert await client.write(who, b"v") == 0
        plain = await client.write(who, b"plain", flags=0)
        assert plain in (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_RECORD)
