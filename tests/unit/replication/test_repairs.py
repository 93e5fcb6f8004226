"""Repairs that meet damage which nobody has noticed yet."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from paceline_node.replication.repairs import Repairs
from paceline_node.storage import scrubbing
from paceline_node.storage.log import Log
from paceline_node.storage.memory_disk import MemoryDisk
from tests.unit.storage.world import PATH, batch, env_on, new_log


def repairs_of(log: Log, disk: MemoryDisk) -> tuple[Any, Repairs]:
    key = (log.identity.topic_id, log.identity.partition)
    partition = cast(Any, SimpleNamespace(log=log, key=key, log_start_offset=0))
    context = cast(Any, SimpleNamespace(node_id=1, events=Mock()))
    parts: dict[str, Any] = dict.fromkeys(
        ("hosted", "follow", "unfollow", "broker_epoch", "fetch_state"), Mock()
    )
    parts["find"] = lambda _: partition
    return partition, Repairs(env_on(disk), context, Mock(), Mock(), **parts)


async def test_bytes_that_the_table_cannot_be_built_from_are_suspected() -> None:
    """They ended the node: the repair was to name the first damaged range, and there was none."""
    disk = MemoryDisk()
    log = await new_log(disk)
    log.append_leader(batch(producer=(5, 0, 0)), 1, 1_000)
    log.producers.transactions.known_to = 0
    first = f"{PATH}/{0:020d}.log"
    disk.make_unreadable(first, 0, len(disk.content(first)))
    partition, repairs = repairs_of(log, disk)
    await repairs._repair(partition)
    assert list(repairs._suspects) == [(partition.key, 0)]
    log.abandon()


async def test_a_log_that_grows_all_the_time_is_read_to_an_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A replica called damaged read its log for ever while somebody wrote, and never came back."""
    disk = MemoryDisk()
    log = await new_log(disk)
    log.append_leader(batch(), 1, 1_000)
    partition, repairs = repairs_of(log, disk)
    read = scrubbing.scrub

    async def read_while_somebody_writes(*args: Any) -> scrubbing.Scrubbed:
        scrubbed = await read(*args)
        assert log.log_end_offset < 10, "read again and again"
        log.append_leader(batch(), 1, 1_000)
        return scrubbed

    monkeypatch.setattr(scrubbing, "scrub", read_while_somebody_writes)
    assert await repairs._reads_well(partition)
    log.abandon()
