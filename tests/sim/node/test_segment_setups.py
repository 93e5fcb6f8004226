"""Set-ups of the same appender over two connections: the one that arrived last has it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import permutations
from uuid import UUID

import pytest
import trio

from paceline.wire.segment import messages as m
from paceline.wire.segment.client import closed_block
from paceline.wire.segment.errors import ReplyCode
from paceline_cluster.sim.cluster import SEGMENT_PORT
from tests.integration.segment.client import Raw
from tests.sim.node.story import Story, play

pytestmark = pytest.mark.timeout(600)

NAME = "mine/own/0"
WRITER, BUSY = UUID(int=1), UUID(int=2)
_CLIENT = "10.0.3.1"


@asynccontextmanager
async def connect(story: Story, host: str) -> AsyncIterator[Raw]:
    async with await story.fabric.connect(_CLIENT, host, SEGMENT_PORT) as stream:
        yield Raw(stream)


async def leader_of_own(story: Story) -> str:
    """Make the segment; the host of its leader."""
    async with connect(story, story.machines[0].host) as raw:
        await raw.create(NAME)
        reply = await raw.ask(m.SetupAppend(BUSY, NAME), m.SegmentMessage)
    if isinstance(reply, m.WrongHost):
        return reply.correct_host.rpartition(":")[0]
    return story.machines[0].host


def commits_take(story: Story, seconds: float) -> None:
    for source, target in permutations(story.machines, 2):
        story.fabric.link(source.host, target.host).extra_s = seconds / 2


async def late(story: Story) -> None:
    """On the older connection the set-up stands in line behind one that waits for a commit. Its
    client has come back meanwhile, and writes."""
    host = await leader_of_own(story)
    async with connect(story, host) as older, connect(story, host) as newer:
        await older.set_up(BUSY, NAME)
        commits_take(story, 0.4)
        await older.send(
            closed_block(BUSY, 0, [b"on its way"]),
            m.SetupAppend(BUSY, NAME),
            m.SetupAppend(WRITER, NAME),
        )
        await trio.sleep(0.1)  # virtual: more than the way takes
        assert await newer.set_up(WRITER, NAME) == 0
        await older.expect(m.AppendSetup)
        refused = await older.expect(m.ErrorMessage)
        assert (refused.connection_id, refused.error_code) == (WRITER, ReplyCode.FENCED)
        await newer.append(WRITER, 0, b"goes on")
        story.heal()


async def twice(story: Story) -> None:
    """Both set-ups of one connection's appender stand in line."""
    host = await leader_of_own(story)
    async with connect(story, host) as raw:
        await raw.set_up(BUSY, NAME)
        commits_take(story, 0.4)
        await raw.send(
            closed_block(BUSY, 0, [b"on its way"]),
            m.SetupAppend(BUSY, NAME),
            m.SetupAppend(WRITER, NAME),
            m.SetupAppend(WRITER, NAME),
        )
        for writer in (BUSY, WRITER, WRITER):
            assert (await raw.expect(m.AppendSetup)).connection_id == writer
        await raw.append(WRITER, 0, b"goes on")
        story.heal()


async def failed(story: Story) -> None:
    """The older connection's set-up has failed, and was answered: it is nobody to fence."""
    host = await leader_of_own(story)
    followers = [machine for machine in story.machines if machine.host != host]
    async with connect(story, host) as older, connect(story, host) as newer:
        await older.set_up(WRITER, NAME)
        for machine in followers:
            machine.kill()
        await older.send(closed_block(WRITER, 0, [b"on its way"]), m.SetupAppend(WRITER, NAME))
        told = await older.expect(m.ErrorMessage)
        assert told.error_code == ReplyCode.NOT_ENOUGH_REPLICAS
        for machine in followers:
            story.start(machine)
        while True:
            await newer.send(m.SetupAppend(WRITER, NAME))
            reply = await newer.reply()
            if isinstance(reply, m.AppendSetup):
                break
            assert isinstance(reply, m.WrongHost), reply
            await trio.sleep(0.1)  # virtual, until the followers are back
        await older.ask(m.KeepAlive(b"still here"), m.KeepAlive)
        story.heal()


def test_whose_set_up_has_failed_is_not_fenced() -> None:
    play(failed)


def test_an_appender_is_not_fenced_by_its_own_connection() -> None:
    play(twice)


def test_a_set_up_carried_out_late_does_not_fence_a_newer_one() -> None:
    play(late)
