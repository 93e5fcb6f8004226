"""Several appenders that share one connection, to whichever node it goes.

Written against the protocol's messages: the client library gives every writer a connection of its
own. Blocks of all shapes alternate; appenders are set up again in the middle, connections end in
the middle of blocks, and what was not acknowledged is sent again from where the node says or from
an earlier Event, or given up for something else.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from uuid import UUID

import trio

from paceline.client.endpoint import Endpoint
from paceline.client.transport import Dial
from paceline.wire.segment import messages as m
from paceline.wire.segment.client import ReplyReader
from paceline.wire.segment.errors import ReplyCode
from paceline.wire.segment.events import event_data, frame_events
from paceline_cluster.sim.cluster import SEGMENT_PORT, SimCluster
from paceline_cluster.sim.plan import Plan
from paceline_cluster.sim.segments.blocks import block_of
from paceline_cluster.sim.segments.events import DEEP, some_events
from paceline_cluster.sim.segments.judge import SegmentJudge
from paceline_cluster.sim.segments.wiretap import tapped

_APPENDERS = 3
_CONNECT_S = 1.0
_AGAIN_S = 0.1
_UNACKED_BYTES = 64 * 1024
_ANEW = 0.3
"""How likely an appender that was set up forgets what was not acknowledged."""
_SET_UP_AGAIN = 0.04
_CUT = 0.04
"""How likely a connection ends within a block."""
_PASSING = frozenset((ReplyCode.NOT_ENOUGH_REPLICAS, ReplyCode.TIMEOUT, ReplyCode.INTERNAL))


class Strand:
    """One appender: its stream, and how much of it was sent and acknowledged."""

    def __init__(self, name: str, judge: SegmentJudge, rng: random.Random) -> None:
        self.name = name
        self.id = UUID(int=rng.getrandbits(128), version=4)
        self.is_ready = False
        self.may_grow = True
        self.is_left_behind = False
        """Whether a connection was given up before it answered a set-up, which may arrive late and
        take the appender from the connection after it."""
        self._asked = 0
        self._judge = judge
        self._rng = rng
        self._stream = bytearray()
        self._bounds = [0]
        self._sent = 0
        self._level = 0

    @property
    def is_done(self) -> bool:
        return self._level == len(self._stream)

    def ask(self) -> bytes:
        """A set-up, to be sent now."""
        self._asked += 1
        return m.encode(m.SetupAppend(self.id, self.name))

    def disconnected(self) -> None:
        """Another connection comes."""
        self.is_ready = False
        self.is_left_behind |= self._asked > 0
        self._asked = 0

    def told(self, level: int) -> None:
        assert level in self._bounds, f"{self.name}: level {level} is in the middle of an Event"
        self._level = level

    def set_up(self, level: int) -> None:
        """Ready again, from ``level`` or an earlier Event on."""
        self._asked -= 1
        self.told(level)
        at = bisect_right(self._bounds, level)
        if self.may_grow and self._rng.random() < _ANEW:
            self._judge.resume(self.name, self.id, level)
            del self._stream[level:]
            del self._bounds[at:]
        self._sent = self._bounds[max(0, at - self._rng.choice((1, 1, 2, 4)))]
        self.is_ready = True

    def next_block(self) -> bytes | None:
        """What was not sent on this connection, and some more; None for nothing."""
        if self.may_grow and len(self._stream) - self._level < _UNACKED_BYTES:
            for event in some_events(self._rng):
                run = frame_events((event,))
                self._judge.offer(self.name, self.id, run)
                self._stream += run
                self._bounds.append(len(self._stream))
        events = event_data(self._stream[self._sent :])
        if not events:
            return None
        start, self._sent = self._sent, len(self._stream)
        return block_of(self.id, start, events, self._rng)


class SegmentWriters:
    """Appends until told to stop, and everything is acknowledged."""

    def __init__(self, name: str, plan: Plan, judge: SegmentJudge, rng: random.Random) -> None:
        self.name = name
        self._pause_s = plan.pause_s
        self._judge = judge
        self._rng = rng
        self._strands = [
            Strand(DEEP[number % len(DEEP)], judge, rng) for number in range(_APPENDERS)
        ]
        self._leaders: dict[str, str] = {}
        self.stopping = False
        self.ended = trio.Event()

    async def run(self, cluster: SimCluster, host: str) -> None:
        dial = tapped(cluster.dial_from(host), SEGMENT_PORT, self._judge)
        while not self._is_done():
            try:
                await self._connect(cluster, dial)
            except* (OSError, trio.BrokenResourceError, trio.TooSlowError):
                pass
            await trio.sleep(_AGAIN_S)
        self.ended.set()

    def _is_done(self) -> bool:
        return self.stopping and all(strand.is_done for strand in self._strands)

    async def _connect(self, cluster: SimCluster, dial: Dial) -> None:
        """One connection, for a while, to where one of the appenders belongs."""
        wanted = self._rng.choice([s for s in self._strands if not s.is_done] or self._strands)
        hint = self._leaders.pop(wanted.name, None)
        with trio.fail_after(_CONNECT_S):
            target = hint or self._rng.choice(cluster.members).host
            stream = await dial(Endpoint(target, SEGMENT_PORT))
        for strand in self._strands:
            strand.disconnected()
        async with stream, trio.open_nursery() as nursery:
            nursery.cancel_scope.deadline = trio.current_time() + self._rng.uniform(1.0, 5.0)
            nursery.start_soon(self._receive, stream, nursery.cancel_scope)
            await self._send(stream)
            nursery.cancel_scope.cancel()

    async def _send(self, stream: trio.abc.Stream) -> None:
        for strand in self._strands:
            await stream.send_all(strand.ask())
        rng = self._rng
        while not self._is_done():
            await trio.sleep(rng.uniform(0.0, self._pause_s))
            strand = rng.choice(self._strands)
            strand.may_grow = not self.stopping
            if not strand.is_ready:
                continue
            if rng.random() < _SET_UP_AGAIN:
                strand.is_ready = False
                await stream.send_all(strand.ask())
            elif (block := strand.next_block()) is not None:
                if rng.random() < _CUT:
                    await stream.send_all(block[: rng.randrange(len(block))])
                    return
                await stream.send_all(block)

    async def _receive(self, stream: trio.abc.Stream, scope: trio.CancelScope) -> None:
        replies = ReplyReader()
        while data := await stream.receive_some():
            for reply in replies.receive(data):
                self._take(reply)
        scope.cancel()

    def _take(self, reply: m.SegmentMessage) -> None:
        match reply:
            case m.AppendSetup(_, writer, level):
                self._of(writer).set_up(level)
            case m.DataAppended(writer, level):
                self._of(writer).told(level)
            case m.WrongHost(name, host):
                self._failed(name)
                if host:
                    self._leaders[name] = host.rpartition(":")[0]
            case m.NoSuchSegment(name):
                self._failed(name)
            case m.ErrorMessage(_, name, _, code) if code in _PASSING:
                self._failed(name)
            case m.ErrorMessage(writer, _, _, ReplyCode.FENCED) if self._of(writer).is_left_behind:
                self._of(writer).is_ready = False
            case m.KeepAlive():
                pass
            case _:
                raise AssertionError(f"unexpected {reply}")

    def _of(self, writer: UUID) -> Strand:
        return next(strand for strand in self._strands if strand.id == writer)

    def _failed(self, name: str) -> None:
        """Nothing more is taken in of the segment's appenders on this connection."""
        for strand in self._strands:
            if strand.name == name:
                strand.is_ready = False
