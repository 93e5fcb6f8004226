"""Repairs that meet damage which nobody has noticed yet."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

from paceline_node.replication.repairs import Repairs
from paceline_node.storage.memory import MemoryDisk
from tests.unit.storage.world import PATH, batch, env_on, new_log


async def test_bytes_that_the_table_cannot_be_built_from_are_suspected() -> None:
    """They ended the node: the repair was to name the first damaged range, and there was none."""
    disk = MemoryDisk()
    log = await new_log(disk)
    log.append_leader(batch(producer=(5, 0, 0)), 1, 1_000)
    log.producers.transactions.known_to = 0
    first = f"{PATH}/{0:020d}.log"
    disk.make_unreadable(first, 0, len(disk.content(first)))
    key = (log.identity.topic_id, log.identity.partition)
    partition = cast(Any, SimpleNamespace(log=log, key=key, log_start_offset=0))
    context = cast(Any, SimpleNamespace(node_id=1, failed=Mock()))
    parts: dict[str, Any] = dict.fromkeys(
        ("find", "hosted", "follow", "unfollow", "broker_epoch", "fetch_state"), Mock()
    )
    repairs = Repairs(env_on(disk), context, Mock(), Mock(), **parts)
    await repairs._repair(partition)
    assert list(repairs._suspects) == [(key, 0)]
    log.abandon()
