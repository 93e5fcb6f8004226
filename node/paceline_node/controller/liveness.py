"""Who is alive: broker sessions as the active controller sees them (DESIGN 3).

Volatile state of the active controller alone, pure: the caller says what time it is. A session
counts from the controller's own receipt of a registration or heartbeat. A new controller gives
every registered broker a full session, because it does not know what its predecessor heard.
"""

from __future__ import annotations

from collections.abc import Iterable

from paceline.types import NodeId
from paceline.values import dataclass

STORM_SHARE = 3
"""A storm is when more than one of this many registered brokers expire at once."""
STORM_FENCES_PER_S = 10
"""In a storm, at most one of this many brokers is fenced each second, but at least one broker."""


@dataclass(slots=True)
class _Session:
    renewed_at: float
    heard_at: float = float("-inf")
    image_offset: int = 0
    durable_offset: int = -1
    wall_base_ms: float | None = None
    shutdown_point: int | None = None
    fence_point: int | None = None


class Sessions:
    """Last contact, reported image offset and shutdown progress per node."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._sessions: dict[NodeId, _Session] = {}
        self._no_fence_before = float("-inf")
        self._cluster_base_ms: float | None = None

    def reset(self, nodes: Iterable[NodeId], now: float, cluster_ms: int | None = None) -> None:
        """Start anew, with a full session for each of ``nodes``; ``cluster_ms``: the cluster's time
        as the last controller told it, None: not known."""
        self._sessions = {node: _Session(now) for node in nodes}
        self._no_fence_before = float("-inf")
        self._cluster_base_ms = None if cluster_ms is None else cluster_ms - now * 1000

    def registered(self, node: NodeId, now: float) -> None:
        """A new process of ``node`` was accepted: a full session, nothing known of its image."""
        self._sessions[node] = _Session(now, now)

    def heard(
        self,
        node: NodeId,
        now: float,
        image_offset: int,
        wall_ms: int = -1,
        durable_offset: int = -1,
    ) -> None:
        """A heartbeat of the registered process came; ``wall_ms``: its wall clock, if it says;
        ``durable_offset``: the metadata that it holds for good, if it says."""
        session = self._sessions.setdefault(node, _Session(now))
        session.renewed_at = session.heard_at = now
        session.image_offset = max(session.image_offset, image_offset)
        session.durable_offset = max(session.durable_offset, durable_offset)
        session.wall_base_ms = wall_ms - now * 1000 if wall_ms >= 0 else None

    def cluster_ms(self, total: int, now: float) -> int:
        """The median of the wall clocks of the brokers that were heard of late; -1 unless these are
        most of the ``total`` registered ones. Of two in the middle, as while one of three brokers
        restarts, the one that goes on from what was told before; with no before, the earlier."""
        bases = sorted(
            session.wall_base_ms
            for session in self._sessions.values()
            if session.wall_base_ms is not None and now < session.heard_at + self._timeout_s
        )
        if 2 * len(bases) <= total:
            return -1
        base, later = bases[(len(bases) - 1) // 2], bases[len(bases) // 2]
        before = self._cluster_base_ms
        if before is not None and abs(later - before) < abs(base - before):
            base = later
        self._cluster_base_ms = base
        return int(base + now * 1000)

    def end(self, node: NodeId) -> None:
        """The process is known to be gone (DESIGN 3.3), or the node was unregistered."""
        self._sessions.pop(node, None)

    def postpone(self, seconds: float) -> None:
        """Lengthen all sessions by a time in which this controller itself could not listen."""
        for session in self._sessions.values():
            session.renewed_at += seconds

    def alive(self, node: NodeId, now: float) -> bool:
        """Whether the session of ``node`` still runs."""
        session = self._sessions.get(node)
        return session is not None and now < session.renewed_at + self._timeout_s

    def heard_since(self, node: NodeId, moment: float) -> bool:
        """Whether this controller heard ``node`` itself after ``moment``."""
        session = self._sessions.get(node)
        return session is not None and session.heard_at > moment

    def image_offset(self, node: NodeId) -> int:
        """The newest metadata offset that ``node`` said it has applied."""
        session = self._sessions.get(node)
        return 0 if session is None else session.image_offset

    def durable_offset(self, node: NodeId) -> int:
        """The newest metadata offset that ``node`` said it holds for good; -1: it did not say."""
        session = self._sessions.get(node)
        return -1 if session is None else session.durable_offset

    def shutdown_point(self, node: NodeId, offset: int) -> int:
        """The metadata offset from which ``node`` leads nothing: ``offset`` when first asked."""
        session = self._sessions.get(node)
        if session is None:
            return offset
        if session.shutdown_point is None:
            session.shutdown_point = offset
        return session.shutdown_point

    def fence_point(self, node: NodeId, offset: int) -> int:
        """The metadata offset from which an image shows that ``node``, which is fenced, leads
        nothing: ``offset`` when first asked since :meth:`unfenced`."""
        session = self._sessions.get(node)
        if session is None:
            return offset
        if session.fence_point is None:
            session.fence_point = offset
        return session.fence_point

    def unfenced(self, node: NodeId) -> None:
        """``node`` may lead again."""
        session = self._sessions.get(node)
        if session is not None:
            session.fence_point = None

    def next_expiry(self, nodes: Iterable[NodeId]) -> float:
        """When :meth:`due` may next name one of ``nodes``; infinity for none."""
        ends = [self._expiry(node) for node in nodes]
        return max(min(ends, default=float("inf")), self._no_fence_before)

    def due(self, nodes: Iterable[NodeId], total: int, now: float) -> tuple[NodeId, ...]:
        """Those of the unfenced ``nodes`` to fence now, longest silent first.

        ``total`` is the number of registered brokers. When more than a third expire at once the
        fault may well be here, so only a tenth of the brokers (at least one) is fenced each
        second, and heartbeats that wait in our buffers get their chance.
        """
        if now < self._no_fence_before:
            return ()
        expired = sorted((self._expiry(node), node) for node in nodes)
        nodes_due = tuple(node for expiry, node in expired if expiry <= now)
        if len(nodes_due) * STORM_SHARE <= total:
            return nodes_due
        self._no_fence_before = now + 1.0
        return nodes_due[: max(1, total // STORM_FENCES_PER_S)]

    def _expiry(self, node: NodeId) -> float:
        session = self._sessions.get(node)
        return float("-inf") if session is None else session.renewed_at + self._timeout_s
