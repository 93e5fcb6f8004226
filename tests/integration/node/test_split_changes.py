"""Changes of more partitions than one entry of the metadata log holds, on nodes with real sockets.

``tests/unit/controller/test_many_partitions.py`` has every operation at 10,002 partitions, over a
quorum in memory; here an entry holds few records, and nodes, clients and quorum are real.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from paceline.wire.batch import build_batch
from paceline.wire.native.admin import AlterTopic, CreateTopic, DeleteTopic, Done, TopicCreated
from paceline.wire.native.api import NativeApi
from paceline.wire.records import Record
from paceline_node.controller import service
from paceline_node.controller.metadata_records import Record as MetadataRecord
from paceline_node.controller.service import Controller
from tests.integration.node.native import NativeConnection
from tests.integration.node.nodes import Cluster, cluster

pytestmark = pytest.mark.virtual_time

RECORDS = 5
PARTITIONS = 3 * RECORDS + 2


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Records of each entry that a controller appends."""
    sizes: list[int] = []
    append = Controller._append_entry

    def counted(self: Controller, records: Sequence[MetadataRecord]) -> object:
        sizes.append(len(records))
        return append(self, records)

    monkeypatch.setattr(Controller, "_append_entry", counted)
    monkeypatch.setattr(service, "MAX_BATCH_RECORDS", RECORDS)
    return sizes


async def ask(nodes: Cluster, api: NativeApi, body: object, reply: type) -> None:
    async def asked() -> bool:
        async with NativeConnection(nodes.up[min(nodes.up)].addresses["native"]) as client:
            await client.call(api, body, reply)  # type: ignore[arg-type]
        return True

    await nodes.wait_for(f"{body}", asked)


async def in_sync(nodes: Cluster, members: set[int]) -> None:
    """Wait until every node knows these, and nobody else, in sync and leading everywhere."""

    async def are() -> bool:
        for number in sorted(nodes.up):
            [wide] = (await nodes.metadata(number, "wide")).topics
            if len(wide.partitions) != PARTITIONS:
                return False
            if any(set(each.isr) != members for each in wide.partitions):
                return False
            if any(each.leader not in members for each in wide.partitions):
                return False
        return True

    await nodes.wait_for(f"{members} are in sync", are)


async def too_few(nodes: Cluster, count: int) -> None:
    """Wait until so many partitions have fewer in sync than they need, as every node says."""

    async def are() -> bool:
        told = [(await nodes.status(number)).under_min_isr_count for number in sorted(nodes.up)]
        return told == [count] * len(told)

    await nodes.wait_for(f"{count} partitions have too few in sync", are)


async def test_a_topic_is_altered_and_a_node_dies_under_it(
    tmp_path: Path, entries: list[int]
) -> None:
    """An alter of 10,002 partitions, or the death of a node under them, ended the controller, and
    the quorum with it: one entry was to hold them all."""
    async with cluster(tmp_path, 3) as nodes:
        await ask(nodes, NativeApi.CREATE_TOPIC, CreateTopic("wide", PARTITIONS, 3), TopicCreated)
        await in_sync(nodes, {0, 1, 2})
        altered = AlterTopic("wide", {"min.insync.replicas": "3"})
        await ask(nodes, NativeApi.ALTER_TOPIC, altered, Done)
        victim = (await nodes.status(0)).controller
        await nodes.crash(victim)
        await in_sync(nodes, {0, 1, 2} - {victim})
        await too_few(nodes, PARTITIONS)
        altered = AlterTopic("wide", {"min.insync.replicas": "2"})
        await ask(nodes, NativeApi.ALTER_TOPIC, altered, Done)
        await too_few(nodes, 0)

        async def written() -> bool:
            leader = await nodes.leader("wide", PARTITIONS - 1)
            async with NativeConnection(nodes.up[leader].addresses["native"]) as client:
                batch = build_batch([Record(value=b"v")])
                return (await client.produce("wide", PARTITIONS - 1, batch)).error == 0

        await nodes.wait_for("a record is written", written)
        await nodes.start(victim)
        await in_sync(nodes, {0, 1, 2})
        await ask(nodes, NativeApi.DELETE_TOPIC, DeleteTopic("wide"), Done)
        assert nodes.exits == {}
    assert max(entries) == RECORDS
    assert entries.count(RECORDS) >= 4 * 3, "nothing was split"
