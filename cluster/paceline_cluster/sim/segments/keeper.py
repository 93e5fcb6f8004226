"""Segments that come and go: made, written to, sealed under their writer, cut, removed."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from uuid import UUID

import trio

from paceline.client.client import Client
from paceline.client.segment_writer import SegmentWriterSettings
from paceline.client.segments import Segments
from paceline.errors import (
    OffsetOutOfRange,
    Outcome,
    PacelineError,
    SegmentSealed,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from paceline.wire.segment.events import walk_events
from paceline_cluster.sim.cluster import SEGMENT_PORT, SimCluster
from paceline_cluster.sim.plan import Plan
from paceline_cluster.sim.segments.judge import SCOPE, SegmentJudge
from paceline_cluster.sim.segments.streamer import DELIVERY_S, write
from paceline_cluster.sim.segments.wiretap import tapped
from paceline_cluster.sim.workload import AGAIN_S, while_connected

_DELETE = 0.7


class Keeper:
    """One segment after the other, until cancelled."""

    def __init__(self, name: str, plan: Plan, judge: SegmentJudge, rng: random.Random) -> None:
        self.name = name
        self._pause_s = plan.pause_s
        self._judge = judge
        self._rng = rng
        self._made = 0

    async def run(self, cluster: SimCluster, host: str) -> None:
        async def work(client: Client) -> None:
            async with client.segments() as segments:
                while True:
                    self._made += 1
                    await self._keep(segments, f"{SCOPE}/brief/{self._made}")

        dial = tapped(cluster.dial_from(host), SEGMENT_PORT, self._judge)
        await while_connected(cluster, host, self._rng, work, dial=dial)

    async def _keep(self, segments: Segments, name: str) -> None:
        await insist(lambda: segments.create(name), TopicAlreadyExists)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write, segments, name)
            await trio.sleep(self._rng.uniform(0.2, 1.5))
            await insist(lambda: segments.seal(name))
        reader = segments.reader(name)
        while not reader.at_end:
            await insist(reader.read)
        await self._truncate(segments, name)
        if self._rng.random() < _DELETE:
            await insist(lambda: segments.delete(name), UnknownTopicOrPartition)

    async def _write(self, segments: Segments, name: str) -> None:
        """Write until the segment is sealed."""
        settings = SegmentWriterSettings(delivery_timeout_s=DELIVERY_S)
        while True:
            identity = UUID(int=self._rng.getrandbits(128), version=4)
            try:
                async with segments.writer(name, writer=identity, settings=settings) as writer:
                    while True:
                        await write(writer, self._judge, self._rng)
                        await trio.sleep(self._rng.uniform(0.0, self._pause_s))
            except SegmentSealed:
                return
            except PacelineError:
                await trio.sleep(AGAIN_S)

    async def _truncate(self, segments: Segments, name: str) -> None:
        """Give up everything before some Event, and see that it is."""
        data = bytes(self._judge.content(name).data)
        start = self._rng.choice([0, *(end for _, end in walk_events(data))])
        await insist(lambda: segments.truncate(name, start))
        if start == 0:
            return
        try:
            await insist(segments.reader(name).read)
        except OffsetOutOfRange:
            return
        raise AssertionError(f"{name} is cut at {start}, byte 0 is read")


async def insist(
    ask: Callable[[], Awaitable[object]], done: type[PacelineError] = SegmentSealed
) -> None:
    """Ask until there is an answer. ``done`` says that an earlier try has had its effect."""
    while True:
        try:
            await ask()
            return
        except done:
            return
        except PacelineError as error:
            if error.outcome is not Outcome.UNKNOWN and not error.retriable:
                raise
            await trio.sleep(AGAIN_S)
