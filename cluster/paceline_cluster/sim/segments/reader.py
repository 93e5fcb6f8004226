"""Reading segments with the production reader; what it gets is judged on the way."""

from __future__ import annotations

import random

import trio

from paceline.client.client import Client
from paceline.errors import PacelineError
from paceline_cluster.sim.cluster import SEGMENT_PORT, SimCluster
from paceline_cluster.sim.segments.events import DEEP
from paceline_cluster.sim.segments.judge import SegmentJudge
from paceline_cluster.sim.segments.wiretap import tapped
from paceline_cluster.sim.workload import AGAIN_S, while_connected


class StreamReader:
    """Reads on and on, from the start or from the middle of anything, waiting at the tail."""

    def __init__(self, name: str, judge: SegmentJudge, rng: random.Random) -> None:
        self.name = name
        self._judge = judge
        self._rng = rng

    async def run(self, cluster: SimCluster, host: str) -> None:
        """Read until cancelled."""
        dial = tapped(cluster.dial_from(host), SEGMENT_PORT, self._judge)
        await while_connected(cluster, host, self._rng, self._read, dial=dial)

    async def _read(self, client: Client) -> None:
        rng = self._rng
        async with client.segments() as segments:
            while True:
                name = rng.choice(DEEP)
                known = len(self._judge.content(name).data)
                position = rng.choice((0, rng.randint(0, known), known, known))
                at_once = rng.choice((500, 5000, 100_000))
                reader = segments.reader(name, position)
                try:
                    with trio.move_on_after(rng.uniform(0.5, 4.0)):
                        while True:
                            await reader.read(at_once)
                except PacelineError:
                    await trio.sleep(AGAIN_S)


async def read_whole(client: Client, judge: SegmentJudge, name: str) -> None:
    """Read a segment from its start until all that is committed was given."""
    content = judge.content(name)
    async with client.segments() as segments:
        reader = segments.reader(name, content.start)
        while reader.position < len(content.data):
            try:
                await reader.read()
            except PacelineError:
                await trio.sleep(AGAIN_S)
