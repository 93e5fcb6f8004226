"""One account of the memory that a node holds on behalf of its clients.

What is held is charged where it is held and released when it is given up: bytes of messages that
have not arrived whole, requests at work, answers that nobody has taken, the places that a
coordinator keeps for the consumer behind the connection. What a client merely announces is charged
nothing. Each connection has a :class:`Holding`; holdings are summed up by the client's address, by
listener, and for the node.

When memory is short, whoever holds least is disturbed last. Above half of the limit a connection
that holds more than its share (the half, divided by the addresses that hold anything, and the
address's part by its connections) is not read any further, except for one such at a time; and of
those that let others wait and send nothing themselves the one that holds most is ended. At the
limit the greediest connection of the greediest address is ended, whatever it does: one over its
share, if there is one, apart from what its request at work takes, since that passes by itself. So
nothing that a client holds keeps another from what is below its share. ``FREE_BYTES`` of each
connection are no matter: no amount of large requests keeps heartbeats out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog
import trio

from paceline_node.client_addresses import source_of

FREE_BYTES = 64 * 1024
_PATIENCE_S = 2.0
"""How long a connection that is over its share waits for others, and how long they may be silent
meanwhile."""
_LINE_EVERY_S = 6.0
_PROGRESS_BYTES = 64 * 1024
"""What a client must send within that time in order not to be silent."""


class ClientMemory:
    """The account of a node. ``limit_bytes`` is what all clients may hold together."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self.ended_count = 0
        """Connections that were ended because memory was short."""
        self._ending_bytes = 0
        self._busy: dict[str, dict[Holding, None]] = {}
        self._by_address: dict[str, int] = {}
        self._by_listener: dict[str, int] = {}
        self._excepted: Holding | None = None
        self._freed: trio.Event | None = None
        self._log = structlog.get_logger(component="memory")
        self._logged_at = -_LINE_EVERY_S

    @property
    def is_short(self) -> bool:
        """Whether who holds more than a share has to wait."""
        return self.held_bytes - self._ending_bytes > self.limit_bytes // 2

    def by_listener(self) -> Iterator[tuple[tuple[str], int]]:
        """What clients of each listener hold."""
        for listener, held_bytes in self._by_listener.items():
            yield (listener,), held_bytes

    @contextmanager
    def holding(
        self, listener: str, address: str, end: Callable[[str], object]
    ) -> Iterator[Holding]:
        """A connection's part of the account while the block lasts; ``end`` ends the connection and
        is told why."""
        held = Holding(self, listener, source_of(address), end)
        try:
            yield held
        finally:
            held.close()

    def share_bytes(self, held: Holding) -> int:
        """What the connection may hold while memory is short."""
        addresses = max(1, len(self._busy))
        connections = max(1, len(self._busy.get(held.address, ())))
        return max(FREE_BYTES, self.limit_bytes // 2 // addresses // connections)

    # --- for holdings -----------------------------------------------------------------------------

    def changed(self, held: Holding, delta: int) -> None:
        """``held`` has ``delta`` bytes more."""
        self.held_bytes += delta
        address, listener = held.address, held.listener
        self._by_address[address] = self._by_address.get(address, 0) + delta
        self._by_listener[listener] = self._by_listener.get(listener, 0) + delta
        if held.is_ending:
            self._ending_bytes += delta
        if held.held_bytes > FREE_BYTES:
            self._busy.setdefault(address, {})[held] = None
        elif held in self._busy.get(address, ()):
            self._rests(held)
        if not self._by_address[address]:
            del self._by_address[address]
        if delta < 0:
            self._tell()
        else:
            while self.held_bytes - self._ending_bytes > self.limit_bytes:
                if not self._end_greediest(lambda _: True):
                    break

    def _rests(self, held: Holding) -> None:
        of_address = self._busy[held.address]
        del of_address[held]
        if not of_address:
            del self._busy[held.address]
        if self._excepted is held:
            self._excepted = None

    def _tell(self) -> None:
        if self._freed is not None:
            self._freed.set()
            self._freed = None

    async def room(self, held: Holding) -> None:
        """Return once ``held`` may take more; at once where it has not more than its share."""
        if not self._must_wait(held):
            return
        if await self._wait_while(held, self._must_wait) and not held.is_ending:
            self._excepted = held

    async def spare(self, held: Holding) -> None:
        """Return once memory is not short, or the connection's address holds less than a share."""
        while self._must_spare(held):
            await self._wait_while(held, self._must_spare)

    async def _wait_while(self, held: Holding, must: Callable[[Holding], bool]) -> bool:
        """Wait for as long as may be waited; True when that was too long."""
        held.is_waiting = True
        try:
            with trio.move_on_after(_PATIENCE_S) as patience:
                while must(held):
                    if self._freed is None:
                        self._freed = trio.Event()
                    await self._freed.wait()
        finally:
            held.is_waiting = False
        if patience.cancelled_caught:
            now = trio.current_time()
            self._end_greediest(lambda other: other.is_silent(now))
        return patience.cancelled_caught

    def _must_spare(self, held: Holding) -> bool:
        share = self.limit_bytes // 2 // max(1, len(self._busy))
        return self.is_short and self._by_address.get(held.address, 0) > share

    def _must_wait(self, held: Holding) -> bool:
        if held.held_bytes <= FREE_BYTES or not self.is_short:
            return False
        if self.held_bytes > self.limit_bytes and not held.is_ending:
            return True  # what the ended ones hold is about to be given back
        if self._excepted is held:
            return False
        if held.held_bytes <= self.share_bytes(held):
            return False
        if self._excepted is None and not held.is_ending:
            self._excepted = held
            return False
        return True

    def _end_greediest(self, may_end: Callable[[Holding], bool]) -> bool:
        """End the connection that holds most, of the address that holds most, among those that may
        be ended; whether there was one."""
        most: Holding | None = None
        best = (False, 0, 0)
        for address, of_address in self._busy.items():
            for held in of_address:
                if held.is_ending or not may_end(held):
                    continue
                is_over = held.held_bytes - held.passing_bytes > self.share_bytes(held)
                rank = (is_over, self._by_address.get(address, 0), held.held_bytes)
                if rank > best:
                    most, best = held, rank
        if most is None:
            return False
        held = most
        self.ended_count += 1
        self._ending_bytes += held.held_bytes
        self._say_ended(held)
        held.finish("memory for clients is short, and this connection held most")
        return True

    def _say_ended(self, held: Holding) -> None:
        """Not of each: clients may bring it about as often as they like."""
        now = trio.current_time()
        if now - self._logged_at < _LINE_EVERY_S:
            return
        self._logged_at = now
        self._log.warning(
            "connection ended: memory for clients is short",
            listener=held.listener,
            address=held.address,
            held_bytes=held.held_bytes,
            all_bytes=self.held_bytes,
            limit_bytes=self.limit_bytes,
            ended=self.ended_count,
        )

    def closed(self, held: Holding) -> None:
        """``held`` has given everything back."""
        if self._excepted is held:
            self._excepted = None
        self._tell()


class Holding:
    """What one connection holds. After :meth:`close` nothing is charged any more."""

    __slots__ = (
        "_account",
        "_arriving_bytes",
        "_end",
        "_is_closed",
        "_progress_at",
        "_progress_bytes",
        "address",
        "held_bytes",
        "is_ending",
        "is_waiting",
        "listener",
        "passing_bytes",
    )

    def __init__(
        self, account: ClientMemory, listener: str, address: str, end: Callable[[str], object]
    ) -> None:
        self._account = account
        self._end = end
        self._is_closed = False
        self._arriving_bytes = 0
        self._progress_at = 0.0
        self._progress_bytes = 0
        self.listener = listener
        self.address = address
        self.held_bytes = 0
        self.passing_bytes = 0
        """As much of it is given back without the client's doing."""
        self.is_ending = False
        self.is_waiting = False

    @property
    def is_over_share(self) -> bool:
        """Whether memory is short and this connection holds more than its share."""
        account = self._account
        return account.is_short and self.held_bytes > account.share_bytes(self)

    def change(self, delta: int) -> None:
        """Hold so many bytes more, or fewer."""
        if delta and not self._is_closed:
            self.held_bytes += delta
            self._account.changed(self, delta)

    def arriving(self, size: int, received: int | None = None) -> None:
        """So many bytes are held for a message that is not whole; ``received`` of them (None: all)
        have come."""
        come = size if received is None else received
        if (size and not 0 <= come - self._progress_bytes < _PROGRESS_BYTES) or (
            size and not self._arriving_bytes
        ):
            self._progress_bytes = come
            self._progress_at = trio.current_time()
        delta, self._arriving_bytes = size - self._arriving_bytes, size
        self.change(delta)

    def is_silent(self, now: float) -> bool:
        """Whether the rest of a message is due from the client, which sends next to nothing."""
        return (
            self._arriving_bytes > 0
            and not self.is_waiting
            and now - self._progress_at >= _PATIENCE_S
        )

    async def room(self) -> None:
        """Return once more may be taken in. No checkpoint where nothing is short."""
        await self._account.room(self)

    async def spare(self) -> None:
        """Return once a new piece of work may begin that needs much at once."""
        await self._account.spare(self)

    def finish(self, reason: str) -> None:
        """End the connection."""
        self.is_ending = True
        self._end(reason)

    def close(self) -> None:
        """Everything is given back; idempotent."""
        if not self._is_closed:
            self.change(-self.held_bytes)
            self._is_closed = True
            self._account.closed(self)


class Portion:
    """A part of a connection's holding that has an owner of its own; ``is_passing`` where it is
    given back without the client's doing."""

    __slots__ = ("held_bytes", "holding", "is_passing")

    def __init__(self, holding: Holding, *, is_passing: bool = False) -> None:
        self.holding = holding
        self.held_bytes = 0
        self.is_passing = is_passing

    @property
    def is_over_share(self) -> bool:
        """As of the connection's whole holding."""
        return self.holding.is_over_share

    async def take(self, size: int) -> None:
        """Hold so many bytes more, once memory is not short, or its address holds little."""
        await self.holding.spare()
        self.set(self.held_bytes + size)

    async def grow(self, size: int) -> None:
        """As :meth:`take`, for work that has begun: it waits no longer than who sends does, and so
        never for what it holds itself."""
        await self.holding.room()
        self.set(self.held_bytes + size)

    def give(self, size: int) -> None:
        """So many bytes are done with; more than are held are as many as are held."""
        self.set(max(0, self.held_bytes - size))

    def set(self, size: int) -> None:
        """Hold so many bytes now."""
        delta, self.held_bytes = size - self.held_bytes, size
        if self.is_passing:
            self.holding.passing_bytes += delta
        self.holding.change(delta)

    def give_all(self) -> None:
        """All of them are done with."""
        self.set(0)


def unlimited() -> Holding:
    """A holding for a stream that no account is kept of."""
    return Holding(ClientMemory(1 << 62), "", "", lambda _: None)
