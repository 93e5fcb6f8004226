"""The production writer of segments: one stream under one id, over many lives of its process."""

from __future__ import annotations

import random
from uuid import UUID

import trio

from paceline.client.client import Client
from paceline.client.segment_writer import BlockShape, SegmentWriter, SegmentWriterSettings
from paceline.client.segments import Segments
from paceline.errors import PacelineError
from paceline.wire.segment.events import frame_events
from paceline_cluster.sim.cluster import SEGMENT_PORT, SimCluster
from paceline_cluster.sim.plan import Plan
from paceline_cluster.sim.segments.events import DEEP, some_events
from paceline_cluster.sim.segments.judge import SegmentJudge
from paceline_cluster.sim.segments.wiretap import tapped
from paceline_cluster.sim.workload import AGAIN_S, while_connected

_VANISH = 0.3
"""How likely a life ends with bytes on their way."""
DELIVERY_S = 6.0


class _Vanished(Exception):
    """The writer is left as it is."""


class Streamer:
    """Appends until told to stop."""

    def __init__(self, name: str, plan: Plan, judge: SegmentJudge, rng: random.Random) -> None:
        self.name = name
        self._segment = rng.choice(DEEP)
        self._id = UUID(int=rng.getrandbits(128), version=4)
        self._pause_s = plan.pause_s
        self._judge = judge
        self._rng = rng
        self.stopping = False
        self.ended = trio.Event()

    async def run(self, cluster: SimCluster, host: str) -> None:
        async def work(client: Client) -> None:
            async with client.segments() as segments:
                while not self.stopping:
                    try:
                        await self._live(segments)
                    except (PacelineError, _Vanished):
                        await trio.sleep(self._rng.choice((0.0, AGAIN_S)))

        dial = tapped(cluster.dial_from(host), SEGMENT_PORT, self._judge)
        await while_connected(cluster, host, self._rng, work, dial=dial)
        self.ended.set()

    async def _live(self, segments: Segments) -> None:
        settings = SegmentWriterSettings(
            shape=self._rng.choice(list(BlockShape)),
            buffer_bytes=self._rng.choice((4096, 8 * 1024 * 1024)),
            delivery_timeout_s=DELIVERY_S,
        )
        async with segments.writer(self._segment, writer=self._id, settings=settings) as writer:
            self._judge.resume(self._segment, self._id, writer.level)
            for _ in range(self._rng.randint(1, 30)):
                await write(writer, self._judge, self._rng)
                if self.stopping:
                    break
                await trio.sleep(self._rng.uniform(0.0, self._pause_s))
            if not self.stopping and self._rng.random() < _VANISH:
                raise _Vanished
            await writer.flush()
            self._judge.flushed(self._segment, self._id)


async def write(writer: SegmentWriter, judge: SegmentJudge, rng: random.Random) -> None:
    """Append some Events. Raises as the writer does; they may be stored then, or some of them."""
    events = some_events(rng)
    judge.offer(writer.name, writer.writer, frame_events(events))
    await writer.append_all(events)
