"""A batch of Cursus of which only the first part could be stored (services/DESIGN 5): PARTIAL."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
import trio

from paceline.types import Acks
from paceline.wire.cursus.batch import CursusBatch, CursusRecord
from tests.integration.faults.faulty import faulty_cluster, is_log
from tests.integration.faults.writing import create
from tests.integration.node.cursus_client import CursusClient, batch

pytestmark = pytest.mark.timeout(120)

COUNT = 20


class AfterTheFirst:
    """Names the records of t/0, but not the first write of them."""

    def __init__(self) -> None:
        self.writes = 0

    def __call__(self, path: str) -> bool:
        if not is_log(path) or not path.startswith("topics/t-0."):
            return False
        self.writes += 1
        return self.writes > 1


async def stored_at_last(client: CursusClient, sent: CursusBatch) -> dict[str, Any]:
    """The acknowledgement, sent again for as long as the leader gives way to another."""
    with trio.fail_after(60):
        while (ack := await client.produce(sent))["status"] != "OK":
            word = ack["error"].partition(" ")[0]
            assert word in ("leader_not_available", "request_timed_out"), ack["error"]
            await trio.sleep(0.1)
    return ack


def told_as_stored(ack: dict[str, Any], acks: Acks) -> int:
    """How many records the acknowledgement says are stored, all before the one without room."""
    if acks is Acks.ALL and ack["status"] == "ERROR":
        # The leader gave way before its followers had the first part, whose outcome nobody knows.
        assert ack["error"].startswith(("request_timed_out ", "leader_not_available ")), ack
        return 0
    assert ack["status"] == "PARTIAL", ack["error"]
    assert ack["error"].startswith("storage_full "), ack
    stored = ack["seq_end"]
    assert isinstance(stored, int)
    assert 0 < stored < COUNT
    assert (ack["seq_start"], ack["last_offset"]) == (1, stored - 1)
    return stored


@pytest.mark.parametrize("acks", [pytest.param(Acks.LEADER, marks=pytest.mark.slow), Acks.ALL])
async def test_what_was_stored_before_the_disk_was_full_is_told(tmp_path: Path, acks: Acks) -> None:
    """Ten MiB are appended in parts; those behind the first find no room. What the clients do then,
    sending on from there or all of it again, ends with every record stored once."""
    records = [
        CursusRecord(0, number, b"p", b"", 1, b"%d:" % number + bytes(500_000))
        for number in range(1, COUNT + 1)
    ]
    async with faulty_cluster(tmp_path) as nodes:
        leader = await create(nodes, "t")
        via = (leader + 1) % 3
        disk = nodes.disks[leader]
        disk.broken, disk.write_error = AfterTheFirst(), errno.ENOSPC
        async with CursusClient(nodes.up[via].addresses["cursus"]) as client:
            sent = batch("t", records, acks=acks, idempotent=True)
            stored = told_as_stored(await client.produce(sent), acks)
            disk.write_error = 0
            rest = await stored_at_last(client, sent._replace(records=records[stored:]))
            if rest["last_offset"] != COUNT - 1:
                # The client asked for the leader's word only, and the leader gave way: what the
                # next one has not fetched of the first part is lost.
                assert acks is Acks.LEADER
                assert await nodes.leader("t", 0) != leader
                assert COUNT - 1 - stored <= rest["last_offset"] < COUNT - 1
                return
            again = await stored_at_last(client, sent)
            assert rest["last_offset"] == again["last_offset"] == COUNT - 1
            found: list[CursusRecord] = []
            while len(found) < COUNT:
                found += await client.read(f"CONSUME t 0 {len(found)}")
        assert [each.payload for each in found] == [each.payload for each in records]
