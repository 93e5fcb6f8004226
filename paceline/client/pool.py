"""Connections to the brokers of one cluster, opened when first needed and shared.

One connection per node and lane. Connecting runs in the client's nursery, so that a caller who is
cancelled does not take the connection from the others who wait for it.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Callable, Mapping
from uuid import UUID

import trio

from paceline.client.connection import Connection
from paceline.client.endpoint import Endpoint
from paceline.client.retry import Backoff
from paceline.client.settings import ClientSettings
from paceline.client.transport import Dial
from paceline.errors import ConnectionLost, PacelineError, Unreachable
from paceline.types import NO_NODE, NodeId


class Lane(enum.Enum):
    """Requests of different lanes do not wait behind each other's bytes."""

    REQUEST = "request"
    FETCH = "fetch"


class _Attempt:
    """Connecting, for all who wait for it."""

    __slots__ = ("error", "finished")

    def __init__(self) -> None:
        self.finished = trio.Event()
        self.error: PacelineError | None = None


class _Slot:
    """What is known of one endpoint's lane: a connection, an attempt under way, or a failure that
    forbids the next attempt until ``retry_at``."""

    __slots__ = ("attempt", "connection", "endpoint", "failure", "failures", "retry_at")

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.connection: Connection | None = None
        self.attempt: _Attempt | None = None
        self.failure: PacelineError | None = None
        self.failures = 0
        self.retry_at = 0.0


class ConnectionPool:
    """See the module. ``subscribe`` callbacks run synchronously whenever a connection opened,
    ended or has room again."""

    def __init__(
        self,
        nursery: trio.Nursery,
        bootstrap: tuple[Endpoint, ...],
        settings: ClientSettings,
        dial: Dial,
        rng: random.Random,
    ) -> None:
        self.cluster_id: UUID | None = None
        self._nursery = nursery
        self._bootstrap = bootstrap
        self._settings = settings
        self._dial = dial
        self._rng = rng
        self._backoff = Backoff(settings.backoff_s, settings.max_backoff_s, rng)
        self._brokers: dict[NodeId, Endpoint] = {}
        self._slots: dict[tuple[Endpoint, Lane], _Slot] = {}
        self._subscribers: list[Callable[[], None]] = []

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` on every change; returns the function that ends this."""
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback)

    def set_brokers(self, brokers: Mapping[NodeId, Endpoint]) -> None:
        """Where the brokers are now. Connections to addresses no longer listed are closed."""
        self._brokers = dict(brokers)
        known = {*self._brokers.values(), *self._bootstrap}
        for (endpoint, lane), slot in list(self._slots.items()):
            if endpoint not in known and slot.attempt is None:
                del self._slots[endpoint, lane]
                if slot.connection is not None:
                    slot.connection.close()

    def endpoint_of(self, node: NodeId) -> Endpoint | None:
        return self._brokers.get(node)

    def nodes(self) -> list[NodeId]:
        return sorted(self._brokers)

    def ready(self, node: NodeId, lane: Lane) -> Connection | None:
        """An open connection to ``node``; None while one is being opened (subscribe to hear).

        Raises as :meth:`to_node` when the last attempt has just failed.
        """
        slot = self._slot(self._known(node), lane)
        if slot.connection is not None and slot.connection.is_open:
            return slot.connection
        self._start(slot)
        return None

    async def to_node(self, node: NodeId, lane: Lane = Lane.REQUEST) -> Connection:
        """An open connection to ``node``. Raises ConnectionLost (nothing sent) and what a
        greeting may be answered with."""
        return await self._open(self._slot(self._known(node), lane))

    async def to_any(self, avoid: NodeId = NO_NODE) -> Connection:
        """An open connection to any node: one that is open, else the first that can be reached.

        ``avoid`` is asked only when no other answers. Raises Unreachable when nothing takes
        connections at any address, else the last other failure.
        """
        avoided = self._brokers.get(avoid)
        slots = [self._slot(endpoint, Lane.REQUEST) for endpoint in self._candidates(avoided)]
        for slot in slots:
            connection = slot.connection
            if connection is not None and connection.is_open and slot.endpoint != avoided:
                return connection
        slots.sort(key=lambda slot: slot.failures)
        nowhere: list[Unreachable] = []
        last: PacelineError | None = None
        for slot in slots:
            try:
                return await self._open(slot)
            except Unreachable as error:
                nowhere.append(error)
            except PacelineError as error:
                last = error
        raise last or Unreachable("; ".join(map(str, nowhere)), was_sent=False)

    def close(self) -> None:
        """End every connection."""
        for slot in self._slots.values():
            if slot.connection is not None:
                slot.connection.close()

    def _candidates(self, avoided: Endpoint | None) -> list[Endpoint]:
        known = sorted(set(self._brokers.values()), key=str)
        self._rng.shuffle(known)
        others = [endpoint for endpoint in self._bootstrap if endpoint not in known]
        self._rng.shuffle(others)
        found = known + others
        if avoided in found:
            found.remove(avoided)
            found.append(avoided)
        return found

    def _slot(self, endpoint: Endpoint, lane: Lane) -> _Slot:
        slot = self._slots.get((endpoint, lane))
        if slot is None:
            slot = self._slots[endpoint, lane] = _Slot(endpoint)
        return slot

    def _known(self, node: NodeId) -> Endpoint:
        endpoint = self._brokers.get(node)
        if endpoint is None:
            raise ConnectionLost(f"node {node}: no known native address", was_sent=False)
        return endpoint

    async def _open(self, slot: _Slot) -> Connection:
        while slot.connection is None or not slot.connection.is_open:
            attempt = self._start(slot)
            await attempt.finished.wait()
            if attempt.error is not None:
                raise attempt.error.with_traceback(None)
        return slot.connection

    def _start(self, slot: _Slot) -> _Attempt:
        if slot.attempt is not None:
            return slot.attempt
        if slot.failure is not None and trio.current_time() < slot.retry_at:
            raise slot.failure.with_traceback(None)
        slot.attempt = attempt = _Attempt()
        self._nursery.start_soon(self._connect, slot, attempt)
        return attempt

    async def _connect(self, slot: _Slot, attempt: _Attempt) -> None:
        connection = Connection(
            slot.endpoint,
            self._settings,
            self._dial,
            cluster_id=self.cluster_id,
            on_change=self.changed,
        )
        try:
            await self._nursery.start(connection.run)
        except PacelineError as error:
            attempt.error = slot.failure = error
            slot.retry_at = trio.current_time() + self._backoff.pause_s(slot.failures)
            slot.failures += 1
        except trio.Cancelled:
            # Who waits for it, shielded, must not take it for a success, and try again at once.
            attempt.error = ConnectionLost("the client ends", was_sent=False)
            raise
        else:
            slot.connection, slot.failure, slot.failures = connection, None, 0
            if connection.hello is not None:
                self.cluster_id = connection.hello.cluster_id
        finally:
            slot.attempt = None
            attempt.finished.set()
            self.changed()

    def changed(self) -> None:
        """Tell all subscribers that something they may wait for has happened."""
        for callback in tuple(self._subscribers):
            callback()
