"""Writers of keyed counters through the real client, and the proof that what was acknowledged is
there: once, in order per key, where its acknowledgement said."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from paceline.client import Client, Position, Producer, ProducerSettings
from tests.integration.node.machines import connect
from tests.integration.node.nodes import HANG_S

WRITERS = 4
_PAUSE_S = 0.01
"""As long as something else is waited for, too: the nodes share the loop with who writes."""


@dataclass
class Load:
    """``acked`` has, per writer, the place of each counter in order."""

    topic: str
    client: Client
    acked: list[list[tuple[int, int]]] = field(default_factory=lambda: [[] for _ in range(WRITERS)])
    epochs: set[int] = field(default_factory=set)
    done: bool = False
    _progress: trio.lowlevel.ParkingLot = field(default_factory=trio.lowlevel.ParkingLot)

    async def write(self, producer: Producer, writer: int) -> None:
        """Write one record after the other until told to stop; a failed write fails the test."""
        while not self.done:
            counter = len(self.acked[writer])
            stored = await producer.send(
                self.topic, value(writer, counter), key=b"%d" % writer, partition=writer % 3
            )
            self.acked[writer].append((stored.partition, stored.offset))
            self.epochs.add(stored.leader_epoch)
            self._progress.unpark_all()
            await trio.sleep(_PAUSE_S)

    async def more(self, count: int = 10) -> None:
        """Wait until every writer got further acknowledgements."""
        wanted = [len(each) + count for each in self.acked]
        with trio.fail_after(HANG_S):
            while any(len(each) < least for each, least in zip(self.acked, wanted, strict=True)):
                await self._progress.park()

    async def require_exactly_once(self) -> None:
        """Read everything back. Only what was not acknowledged yet when the load ended may be
        there beyond the acknowledged; nothing may be there twice."""
        found: dict[tuple[int, int], bytes | None] = {}
        async with self.client.consumer(self.topic, stop=Position.LATEST) as consumer:
            with trio.fail_after(HANG_S):
                async for record in consumer:
                    found[record.partition, record.offset] = record.value
        for writer, places in enumerate(self.acked):
            for counter, place in enumerate(places):
                assert found.get(place) == value(writer, counter), (writer, counter, place)
            offsets = [offset for _, offset in places]
            assert offsets == sorted(offsets), f"writer {writer} out of order"
        times = Counter(found.values())
        assert max(times.values()) == 1, times.most_common(3)


def value(writer: int, counter: int) -> bytes:
    return b"%d:%d" % (writer, counter)


@asynccontextmanager
async def load(topic: str, bootstrap: Sequence[str]) -> AsyncIterator[Load]:
    """Write for the length of the block; proves at its end that all is there exactly once."""
    settings = ProducerSettings(delivery_timeout_s=HANG_S)
    async with connect(list(bootstrap)) as client:
        made = Load(topic, client)
        async with client.producer(settings) as producer, trio.open_nursery() as nursery:
            for writer in range(WRITERS):
                nursery.start_soon(made.write, producer, writer)
            await made.more()
            yield made
            made.done = True
        await made.require_exactly_once()
