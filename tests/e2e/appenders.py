"""Several appenders that share connections: all whose segments one node leads use one.

Written against the protocol's messages alone, not with the client library, which gives each writer
a connection of its own.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID, uuid4

import trio

from paceline.wire.segment import messages as m
from paceline.wire.segment.client import ReplyReader, closed_block
from paceline.wire.segment.events import frame_events

Address = tuple[str, int]
BLOCK_EVENTS = 50
MAX_UNACKED_BYTES = 2 * 1024 * 1024
PAUSE_S = 0.1


@dataclass(eq=False)
class Appender:
    """One writer's stream. ``level`` is what was acknowledged; it may never fall. ``allowed``:
    Events that may be sent so far, so that there is something left to send at each kill."""

    name: str
    events: list[bytes]
    id: UUID = field(default_factory=uuid4)
    level: int = 0
    sent: int = 0
    allowed: int = 0
    ready: bool = False
    setups: int = 0
    bounds: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        sizes = (8 + len(event) for event in self.events)
        self.bounds = [0, *itertools.accumulate(sizes)]

    @property
    def is_done(self) -> bool:
        return self.level == self.bounds[-1]

    def told(self, level: int) -> None:
        assert level >= self.level, f"{self.name}: level fell from {self.level} to {level} (I6)"
        assert level in (self.bounds[bisect_right(self.bounds, level) - 1],), "not at an Event"
        self.level = level

    def set_up(self, level: int) -> None:
        self.told(level)
        self.setups += 1
        self.sent = bisect_right(self.bounds, level) - 1
        self.ready = True

    def next_block(self) -> bytes | None:
        """The next Events as a block; None while enough is under way."""
        start = self.bounds[self.sent]
        if not self.ready or start - self.level >= MAX_UNACKED_BYTES:
            return None
        chosen = self.events[self.sent : min(self.allowed, self.sent + BLOCK_EVENTS)]
        if not chosen:
            return None
        self.sent += len(chosen)
        return closed_block(self.id, start, chosen)

    @property
    def content(self) -> bytes:
        return frame_events(self.events)


class Node:
    """One connection at a time to one listener, for all appenders that belong there."""

    def __init__(self, address: Address, crew: Crew) -> None:
        self.address = address
        self.most_shared = 0
        self._crew = crew
        self._appenders: dict[Appender, None] = {}
        self._asked: set[Appender] = set()
        self._changed = trio.Event()

    def add(self, appender: Appender) -> None:
        """Set it up here, also if it is here already."""
        appender.ready = False
        self._appenders[appender] = None
        self._asked.discard(appender)
        self.notify()

    def remove(self, appender: Appender) -> None:
        self._appenders.pop(appender, None)

    def notify(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    def _give_away(self, appender: Appender, host: str = "") -> None:
        self.remove(appender)
        self._crew.place(appender, host)

    async def run(self) -> None:
        while True:
            while not self._appenders:
                await self._changed.wait()
            try:
                stream = await trio.open_tcp_stream(*self.address)
                async with stream:
                    await self._use(stream)
            except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                pass
            for appender in list(self._appenders):
                self._give_away(appender)
            await trio.sleep(PAUSE_S)

    async def _use(self, stream: trio.SocketStream) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send, stream)
            reader = ReplyReader()
            while data := await stream.receive_some():
                for reply in reader.receive(data):
                    self._take(reply)
                self.notify()
                self._crew.tell()
            nursery.cancel_scope.cancel()

    async def _send(self, stream: trio.SocketStream) -> None:
        self._asked.clear()
        while True:
            changed = self._changed
            progress = False
            for appender in list(self._appenders):
                if not appender.ready and appender not in self._asked:
                    self._asked.add(appender)
                    await stream.send_all(m.encode(m.SetupAppend(appender.id, appender.name)))
                    progress = True
                elif appender.ready:
                    self._asked.discard(appender)
                    if (block := appender.next_block()) is not None:
                        self.most_shared = max(
                            self.most_shared, sum(each.ready for each in self._appenders)
                        )
                        await stream.send_all(block)
                        progress = True
            self._asked &= set(self._appenders)
            if progress:
                self._crew.tell()
            else:
                await changed.wait()

    def _take(self, reply: m.SegmentMessage) -> None:
        match reply:
            case m.AppendSetup(_, identity, level):
                self._crew.by_id[identity].set_up(level)
            case m.DataAppended(identity, level):
                self._crew.by_id[identity].told(level)
            case m.WrongHost(segment, host):
                for appender in [each for each in self._appenders if each.name == segment]:
                    self._give_away(appender, host)
            case m.NoSuchSegment() | m.ErrorMessage():
                # Too few replicas, or a node that has not heard yet: set up anew, elsewhere.
                for appender in list(self._appenders):
                    if appender.name == reply.segment:
                        self._give_away(appender)
            case _:
                raise AssertionError(f"unexpected {reply}")


class Crew:
    """All appenders and nodes; :meth:`run` ends when everything is acknowledged."""

    def __init__(self, addresses: list[Address], appenders: list[Appender]) -> None:
        self.nodes = [Node(address, self) for address in addresses]
        self.by_id = {appender.id: appender for appender in appenders}
        self.news = trio.Event()
        self._turn = itertools.cycle(self.nodes)

    def place(self, appender: Appender, host: str) -> None:
        """Give an appender to the node that was named, or to one after the other."""
        for node in self.nodes:
            if ":".join(map(str, node.address)) == host:
                node.add(appender)
                return
        next(self._turn).add(appender)

    def gather(self, number: int) -> None:
        """Set every appender up at one node. Nothing of theirs may be under way: an answer on the
        connection before would come too late."""
        for appender in self.by_id.values():
            assert appender.bounds[appender.sent] == appender.level, f"{appender.name} is writing"
            for node in self.nodes:
                node.remove(appender)
            self.nodes[number].add(appender)

    @property
    def most_shared(self) -> int:
        """The most appenders that have written through one connection."""
        return max(node.most_shared for node in self.nodes)

    async def run(self) -> None:
        for appender in self.by_id.values():
            self.place(appender, "")
        async with trio.open_nursery() as nursery:
            for node in self.nodes:
                nursery.start_soon(node.run)
            await self.until(lambda: all(each.is_done for each in self.by_id.values()))
            nursery.cancel_scope.cancel()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for what is sent, or what replies bring about."""
        while not holds():
            await self.news.wait()

    def allow(self, events: int) -> None:
        """Let every appender send so many of its Events, all told."""
        for appender in self.by_id.values():
            appender.allowed = events
        for node in self.nodes:
            node.notify()

    def tell(self) -> None:
        news, self.news = self.news, trio.Event()
        news.set()
