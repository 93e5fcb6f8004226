"""The segment listener: the segment protocol in both of its dialects (DESIGN 8).

A client that begins with a Hello of versions 5 to 17 speaks the Pravega dialect, any other the
seed's. Thin drivers: the protocol's rules are ``paceline/wire/segment``'s, the broker's are
``services/segments/segment_service.py``'s.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from paceline.wire.segment import pravega_messages as pravega
from paceline.wire.segment.messages import MESSAGES, Direction
from paceline_node.env import Env
from paceline_node.listeners.segment.connection import SegmentConnection
from paceline_node.listeners.segment.limits import ConnectionLimits, NodeBudget
from paceline_node.listeners.segment.login import SegmentLogin
from paceline_node.listeners.segment.pravega_connection import PravegaConnection, PravegaServices
from paceline_node.listeners.segment.pravega_tables import TableRequests
from paceline_node.listeners.segment.transient_budget import TransientBudget
from paceline_node.listeners.serving import Client
from paceline_node.loop_turns import Turns
from paceline_node.net.deadlines import Deadlines
from paceline_node.observe.metrics import Metrics
from paceline_node.observe.rate_limited_log import RateLimitedLog
from paceline_node.services.segments.segment_service import SegmentService

_TRANSIENT_NODE_BYTES = 128 * 1024 * 1024
"""What large Events of all connections may hold before they are merged."""


class SegmentListener:
    """Serves segment connections; ``inflight_bytes`` of all of them are bounded together."""

    def __init__(
        self,
        env: Env,
        turns: Turns,
        segments: SegmentService,
        tables: TableRequests,
        deadlines: Deadlines,
        limits: ConnectionLimits,
        metrics: Metrics,
        login: Callable[[Client], SegmentLogin],
        *,
        inflight_node_bytes: int,
    ) -> None:
        self._env = env
        self._login = login
        self._turns = turns
        self._segments = segments
        self._deadlines = deadlines
        self._limits = limits
        self._budget = NodeBudget(inflight_node_bytes)
        names = {
            cls.__name__: cls.__name__.lower()
            for cls in (*MESSAGES.values(), *pravega.MESSAGES.values())
            if Direction.CLIENT in cls.FROM
        }
        self._meters = metrics.requests_by("segment", names)
        self._pravega = PravegaServices(
            env=env,
            turns=turns,
            segments=segments,
            tables=tables,
            budget=self._budget,
            transients=TransientBudget(_TRANSIENT_NODE_BYTES),
            meters=self._meters,
            log=RateLimitedLog(),
        )

    @property
    def inflight_bytes(self) -> int:
        """Bytes received and not yet committed, of all connections."""
        return self._budget.inflight_bytes

    async def serve(self, stream: trio.abc.Stream, client: Client) -> None:
        """Serve one connection to its end; owns and closes ``stream``."""
        async with stream:
            connection = SegmentConnection(
                env=self._env,
                turns=self._turns,
                segments=self._segments,
                principal=client.principal,
                deadlines=self._deadlines,
                limits=self._limits,
                budget=self._budget,
                meters=self._meters,
                memory=client.memory,
                account=client.account,
                must_log_in=client.must_log_in,
            )
            other = await connection.run(stream)
            if other is not None:
                login = self._login(client)
                successor = PravegaConnection(self._pravega, login, self._limits)
                try:
                    await successor.run(stream, other.rest)
                finally:
                    login.close()
