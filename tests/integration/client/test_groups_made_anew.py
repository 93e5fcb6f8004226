"""Members of groups whose topic is deleted and made anew under its name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import trio

from paceline.client import Client, DrivenSettings, GroupSettings, Position
from paceline.client.shared_consumer import SharedConsumer
from paceline.types import TopicPartition
from paceline_node.services.groups.driven_rebalancing import Rebalancing
from tests.integration.client.test_groups import FLAGS, until
from tests.integration.client.test_made_anew import NEW, OLD, make, make_anew, take
from tests.integration.node.machines import connect
from tests.integration.node.nodes import lone_node

pytestmark = [pytest.mark.virtual_time, pytest.mark.timeout(120)]

AT = TopicPartition("t", 0)
OWN = GroupSettings(session_timeout_s=6, rebalance_timeout_s=20, auto_commit_s=None)
DRIVEN = DrivenSettings(heartbeat_interval_ms=500, auto_commit=False)
Open = Callable[[Client], AbstractAsyncContextManager[SharedConsumer]]


def member(client: Client) -> AbstractAsyncContextManager[SharedConsumer]:
    return client.consumer("t", group="g", membership=OWN)


def driven(client: Client) -> AbstractAsyncContextManager[SharedConsumer]:
    return client.coordinated_consumer("t", group="g", driven=DRIVEN, auto_offset_reset="smallest")


async def _nobody_watches(_: object) -> None:
    await trio.sleep_forever()


def begun(consumer: SharedConsumer) -> Callable[[], bool]:
    return lambda: AT in consumer.positions()


@pytest.mark.parametrize("consumer_of", [member, driven])
async def test_one_that_has_asked_for_nothing_yet_reads_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, consumer_of: Open
) -> None:
    """A driven member begins where its coordinator says, and looks nothing up before: its reader
    knew of the old topic, and nobody else, so that it stood for ever."""
    monkeypatch.setattr(Rebalancing, "_watch_topics", _nobody_watches)
    async with (
        lone_node(tmp_path, FLAGS) as node,
        connect(node.native) as reading,
        connect(node.native) as other,
    ):
        await make(other, OLD)
        async with consumer_of(other) as before:
            await take(before, 2)
            await before.commit()
        async with consumer_of(reading) as consumer:
            await until(begun(consumer))
            await until(lambda: reading._metadata.view.topic_id("t") is not None)
            await make_anew(other)
            await reading.admin.topic("t")
            assert await take(consumer, 5) == NEW


@pytest.mark.parametrize("consumer_of", [member, driven])
async def test_a_seek_in_the_new_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, consumer_of: Open
) -> None:
    """It was read from its start all the same."""
    monkeypatch.setattr(Rebalancing, "_watch_topics", _nobody_watches)
    async with (
        lone_node(tmp_path, FLAGS) as node,
        connect(node.native) as reading,
        connect(node.native) as other,
    ):
        await make(other, OLD)
        async with consumer_of(reading) as consumer:
            assert await take(consumer, 3) == OLD
            await make_anew(other)
            await reading.admin.topic("t")
            await consumer.seek(AT, Position.at(2))
            assert await take(consumer, 3) == NEW[2:]
