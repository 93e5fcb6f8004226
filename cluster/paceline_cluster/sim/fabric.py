"""The simulated network between hosts: latency, cuts, resets, silence.

Everything that takes time lies on one heap and is delivered by one task. A cut of a directed link
holds back what is under way, as retransmission does, until the link heals; a connection is refused
only by a host that is up and has no listener there, and a host without power answers nothing. That
difference is what the product takes for proof of a process's death (peers/DESIGN 2).
"""

from __future__ import annotations

import heapq
import random
import zlib
from collections import deque
from collections.abc import Callable

import trio

from paceline.values import dataclass
from paceline_cluster.sim.pipe import Pipe, SimStream

BACKLOG = 128
_RETRY_S = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(slots=True)
class Link:
    """One direction between two hosts. ``latency_s`` is the usual delay, ``extra_s`` what a slow
    link adds to everything, ``rate`` the bytes per second of each connection (0: unlimited)."""

    latency_s: float
    is_cut: bool = False
    extra_s: float = 0.0
    rate: float = 0.0


@dataclass(frozen=True, slots=True)
class Weather:
    """What the network does to everybody. Shares are per piece sent."""

    latency_s: tuple[float, float] = (0.0001, 0.001)
    slow_share: float = 0.001
    slow_s: float = 0.05
    split_share: float = 0.0


class SimListener(trio.abc.Listener[trio.abc.Stream]):
    """Accepts what the kernel has accepted already, also while its process is stopped."""

    def __init__(self, host: str, port: int, closed: Callable[[SimListener], None]) -> None:
        self.host = host
        self.port = port
        self.waiting: deque[SimStream] = deque()
        self.is_closed = False
        self._closed = closed
        self._acceptors = trio.lowlevel.ParkingLot()

    def offer(self, stream: SimStream) -> None:
        self.waiting.append(stream)
        self._acceptors.unpark()

    async def accept(self) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        while not self.waiting:
            if self.is_closed:
                raise trio.ClosedResourceError("the listener was closed")
            await self._acceptors.park()
        return self.waiting.popleft()

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._closed(self)
            for stream in self.waiting:
                stream.close()
            self.waiting.clear()
            self._acceptors.unpark_all()


class Attempt:
    """A connect under way."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.stream: SimStream | None = None
        self.refused = False
        self.is_given_up = False


class Fabric:
    """Hosts, links between them, and everything under way. Times are trio's."""

    def __init__(self, rng: random.Random, weather: Weather) -> None:
        self._rng = rng
        self.weather = weather
        self._links: dict[tuple[str, str], Link] = {}
        self._listeners: dict[tuple[str, int], SimListener] = {}
        self._streams: dict[str, list[SimStream]] = {}
        self._other: dict[SimStream, SimStream] = {}
        self._down: set[str] = set()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._held: dict[tuple[str, str], dict[Pipe, None]] = {}
        self._stalled: dict[Pipe, None] = {}
        self._scope: trio.CancelScope | None = None
        self.sent_pieces = 0
        self.sent_bytes = 0
        self.trace = 0
        """Running checksum of everything sent: equal runs have equal traces."""

    # --- time -------------------------------------------------------------------------------------

    def at(self, when: float, event: Callable[[], None]) -> None:
        """Let ``event`` happen at ``when``."""
        self._count += 1
        heapq.heappush(self._heap, (when, self._count, event))
        scope = self._scope
        if scope is not None and when < scope.deadline:
            scope.deadline = when

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Deliver until cancelled."""
        task_status.started()
        while True:
            now = trio.current_time()
            while self._heap and self._heap[0][0] <= now:
                heapq.heappop(self._heap)[2]()
            deadline = self._heap[0][0] if self._heap else float("inf")
            with trio.CancelScope(deadline=deadline) as self._scope:
                await trio.sleep_forever()
            self._scope = None

    # --- links ------------------------------------------------------------------------------------

    def link(self, source: str, target: str) -> Link:
        """The directed link; made with a latency of its own when first asked for."""
        known = self._links.get((source, target))
        if known is None:
            low, high = self.weather.latency_s
            known = self._links[source, target] = Link(self._rng.uniform(low, high))
        return known

    def cut(self, source: str, target: str) -> None:
        """Nothing from ``source`` reaches ``target`` until :meth:`heal`."""
        self.link(source, target).is_cut = True

    def heal(self, source: str, target: str) -> None:
        """End a cut: what was under way arrives late, in order. Also ends slowness."""
        link = self.link(source, target)
        link.is_cut, link.extra_s, link.rate = False, 0.0, 0.0
        when = trio.current_time() + self._rng.uniform(0.0, 0.2)
        for pipe in self._held.pop((source, target), {}):
            pipe.held_until = when
            self._wake(pipe, when)

    def heal_all(self) -> None:
        """A perfect network from now on."""
        self.weather = Weather(self.weather.latency_s, 0.0, 0.0, 0.0)
        for source, target in list(self._links):
            self.heal(source, target)
        for pipe in list(self._stalled):
            self.unstall(pipe)

    def stall(self, pipe: Pipe) -> None:
        """Hold back one direction of one connection, while newer connections are quick."""
        pipe.stalled = True
        self._stalled[pipe] = None

    def unstall(self, pipe: Pipe) -> None:
        pipe.stalled = False
        self._stalled.pop(pipe, None)
        self._wake(pipe, trio.current_time())

    def connections(self, host: str) -> list[SimStream]:
        """The open ends at a host, oldest first."""
        return [stream for stream in self._streams.get(host, ()) if not stream.is_closed]

    def reset(self, stream: SimStream) -> None:
        """Break a connection for both ends, as a middle box that forgot it does."""
        other = self._other.get(stream)
        for end in (stream, other):
            if end is not None:
                end.into.break_off()
                end.out.break_off()

    # --- hosts ------------------------------------------------------------------------------------

    def power_off(self, host: str) -> None:
        """The host vanishes: its connections stay half open at the other ends."""
        self._down.add(host)
        for stream in self._streams.pop(host, []):
            stream.has_vanished = True
        for key in [key for key in self._listeners if key[0] == host]:
            del self._listeners[key]

    def power_on(self, host: str) -> None:
        """The host answers again; it knows nothing of its old connections."""
        self._down.discard(host)

    def end_process(self, host: str) -> None:
        """What the kernel does for a process that ended: close everything it had."""
        for key in [key for key in self._listeners if key[0] == host]:
            self._listeners[key].close()
        for stream in self._streams.pop(host, []):
            stream.close()

    # --- connecting -------------------------------------------------------------------------------

    def listen(self, host: str, port: int) -> SimListener:
        """Raises OSError when the port is taken."""
        if (host, port) in self._listeners:
            raise OSError(98, f"{host}:{port} is in use")
        listener = SimListener(host, port, self._unlisten)
        self._listeners[host, port] = listener
        return listener

    def _unlisten(self, listener: SimListener) -> None:
        if self._listeners.get((listener.host, listener.port)) is listener:
            del self._listeners[listener.host, listener.port]

    async def connect(self, source: str, host: str, port: int) -> SimStream:
        """Raises ConnectionRefusedError; waits for as long as nobody answers."""
        attempt = Attempt()
        self._knock(attempt, source, host, port, 0)
        try:
            await attempt.done.wait()
        finally:
            attempt.is_given_up = True
            if attempt.stream is not None and not attempt.done.is_set():
                attempt.stream.close()
        if attempt.refused or attempt.stream is None:
            raise ConnectionRefusedError(111, f"{host}:{port}: connection refused")
        return attempt.stream

    def _knock(self, attempt: Attempt, source: str, host: str, port: int, tries: int) -> None:
        """Send a SYN, and another one later if no answer can come."""
        now = trio.current_time()

        def arrived() -> None:
            if attempt.is_given_up or attempt.done.is_set() or attempt.stream is not None:
                return
            unreachable = host in self._down or self.link(source, host).is_cut
            if unreachable or self.link(host, source).is_cut:
                wait = _RETRY_S[min(tries, len(_RETRY_S) - 1)]
                self.at(
                    trio.current_time() + wait,
                    lambda: self._knock(attempt, source, host, port, tries + 1),
                )
                return
            self._answer(attempt, source, host, port)

        if not attempt.is_given_up:
            self.at(now + self._delay(self.link(source, host)), arrived)

    def _answer(self, attempt: Attempt, source: str, host: str, port: int) -> None:
        listener = self._listeners.get((host, port))
        if listener is not None and len(listener.waiting) >= BACKLOG:
            return  # the SYN is dropped: a full backlog is silence
        if listener is None:
            attempt.refused = True
        else:
            near, far = self._pair(source, host)
            attempt.stream = near
            listener.offer(far)
        back = trio.current_time() + self._delay(self.link(host, source))
        self.at(back, lambda: self._established(attempt, source))

    def _established(self, attempt: Attempt, source: str) -> None:
        if source in self._down:
            return
        attempt.done.set()
        if attempt.is_given_up and attempt.stream is not None:
            attempt.stream.close()

    def _pair(self, source: str, host: str) -> tuple[SimStream, SimStream]:
        there, back = Pipe(source, host), Pipe(host, source)
        near = SimStream(there, back, self._send, self._finish, self._close)
        far = SimStream(back, there, self._send, self._finish, self._close)
        self._other[near], self._other[far] = far, near
        self._keep(source, near)
        self._keep(host, far)
        return near, far

    def _keep(self, host: str, stream: SimStream) -> None:
        streams = self._streams.setdefault(host, [])
        if len(streams) > 64:
            streams[:] = [each for each in streams if not each.is_closed]
        streams.append(stream)

    # --- sending ----------------------------------------------------------------------------------

    def _delay(self, link: Link) -> float:
        weather, rng = self.weather, self._rng
        delay = link.latency_s * (0.5 + rng.random()) + link.extra_s
        if weather.slow_share and rng.random() < weather.slow_share:
            delay += rng.uniform(0.0, weather.slow_s)
        return delay

    def _send(self, stream: SimStream, data: bytes) -> None:
        if not data or stream.has_vanished:
            return
        self.sent_pieces += 1
        self.sent_bytes += len(data)
        out = stream.out
        self.trace = zlib.crc32(
            b"%r %s %s %d" % (trio.current_time(), *_hosts(out), zlib.crc32(data)), self.trace
        )
        share = self.weather.split_share
        if share and len(data) > 1 and self._rng.random() < share:
            middle = self._rng.randrange(1, len(data))
            self._put(stream, data[:middle])
            self._put(stream, data[middle:])
        else:
            self._put(stream, data)

    def _put(self, stream: SimStream, data: bytes) -> None:
        stream.out.under_way += len(data)
        self._enqueue(stream, len(data), lambda: self._arrive(stream, data))

    def _enqueue(self, stream: SimStream, size: int, event: Callable[[], None]) -> None:
        """After everything sent before it on this connection."""
        out = stream.out
        link = self.link(out.source, out.target)
        out.sent_at = max(out.sent_at, trio.current_time())
        if link.rate:
            out.sent_at += size / link.rate
        due = max(out.due, out.sent_at + self._delay(link))
        out.due = due
        out.queue.append((due, event))
        self._wake(out, due)

    def _wake(self, pipe: Pipe, when: float) -> None:
        self.at(when, lambda: self._deliver(pipe))

    def _deliver(self, pipe: Pipe) -> None:
        if pipe.stalled:
            return
        key = (pipe.source, pipe.target)
        if self.link(*key).is_cut:
            self._held.setdefault(key, {})[pipe] = None
            return
        now = trio.current_time()
        if now < pipe.held_until:
            return
        while pipe.queue and pipe.queue[0][0] <= now:
            pipe.queue.popleft()[1]()

    def _arrive(self, stream: SimStream, data: bytes) -> None:
        out = stream.out
        if out.target in self._down or out.is_broken:
            return
        other = self._other.get(stream)
        if other is None or other.has_vanished or other.is_closed:
            self._reset_back(stream)
        else:
            out.arrive(data)

    def _reset_back(self, stream: SimStream) -> None:
        """Data for a connection that the host does not know (any more): it answers with a reset."""
        back = self.link(stream.out.target, stream.out.source)
        when = trio.current_time() + self._delay(back)

        def arrived() -> None:
            if not back.is_cut:
                stream.into.break_off()
                stream.out.break_off()

        self.at(when, arrived)

    def _finish(self, stream: SimStream) -> None:
        if not stream.has_vanished:
            self._enqueue(stream, 40, lambda: self._ended(stream))

    def _ended(self, stream: SimStream) -> None:
        if stream.out.target not in self._down:
            stream.out.end()

    def _close(self, stream: SimStream) -> None:
        """FIN; a reset when the program leaves bytes unread."""
        if stream.has_vanished:
            return
        unread = stream.into.unread > 0
        self._enqueue(stream, 40, lambda: self._closed(stream, unread))

    def _closed(self, stream: SimStream, unread: bool) -> None:
        if stream.out.target in self._down:
            return
        if unread:
            stream.out.break_off()
            stream.into.break_off()
        else:
            stream.out.end()
        other = self._other.get(stream)
        if other is not None and other.is_closed:
            self._other.pop(stream, None)
            self._other.pop(other, None)


def _hosts(pipe: Pipe) -> tuple[bytes, bytes]:
    return pipe.source.encode(), pipe.target.encode()
