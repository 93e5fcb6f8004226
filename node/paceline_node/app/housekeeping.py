"""What a broker does for its clients unasked: forgetting silent producers, driving groups."""

from __future__ import annotations

import trio

from paceline.wire.peer.api import PeerApi
from paceline_node.groups.driven_state import RoundsDue
from paceline_node.peers.server import PeerServer
from paceline_node.replication.producer_quota import ProducerShares
from paceline_node.services.broker_services import BrokerParts, BrokerServices
from paceline_node.services.groups.driven_rebalancing import Rebalancing
from paceline_node.services.groups.partition_bounds import BoundsService
from paceline_node.services.leader_routing import LeaderRouting
from paceline_node.services.records.producer_expiry import (
    PlainProducers,
    ProducerExpiry,
    ProducerKind,
    SegmentWriters,
    SequencedProducers,
)
from paceline_node.services.segments.segment_service import SegmentService
from paceline_node.services.transactions.hanging_offsets import HangingOffsets
from paceline_node.services.transactions.hanging_transactions import HangingTransactions
from paceline_node.services.transactions.transaction_rpc import TransactionRpc
from paceline_node.settings import Settings


class Housekeeping:
    """The tasks beside the listeners."""

    def __init__(
        self,
        settings: Settings,
        broker: BrokerParts,
        services: BrokerServices,
        routing: LeaderRouting,
        server: PeerServer,
        *,
        shares: ProducerShares,
        rounds_due: RoundsDue,
        transactions: TransactionRpc,
    ) -> None:
        writers = services.segments.writers
        shares.is_connected = lambda log, key: (log, key[1]) in writers
        self._expiries = _expiries(settings, broker, services.segments, transactions)
        bounds = BoundsService(broker.store, broker.table, routing)
        server.register(PeerApi.PARTITION_BOUNDS, bounds.serve)
        self._rebalancing = Rebalancing(
            broker.store, services.groups, bounds, rounds_due, services.turns
        )

    async def start(self, nursery: trio.Nursery) -> None:
        """Run all of it in ``nursery``."""
        for expiry in self._expiries:
            await nursery.start(expiry.run)
        await nursery.start(self._rebalancing.run)

    def prepare_to_stop(self) -> None:
        """Send consumers away while this node still coordinates, and can store how far they are."""
        self._rebalancing.shut()


def _expiries(
    settings: Settings, broker: BrokerParts, segments: SegmentService, transactions: TransactionRpc
) -> tuple[ProducerExpiry, ...]:
    """What forgets producers that have been silent for long."""
    env, table = broker.env, broker.table
    hanging = HangingTransactions(table, transactions)
    hanging_offsets = HangingOffsets(transactions.groups, transactions)

    async def end_hanging() -> None:
        await hanging.look()
        await hanging_offsets.look()

    kinds: tuple[tuple[ProducerKind, int], ...] = (
        (
            SegmentWriters(env, table, segments, ttl_ms=settings.segment.writer_ttl_ms),
            settings.segment.writer_check_ms,
        ),
        (
            SequencedProducers(env, table, ttl_ms=settings.cursus.producer_ttl_ms),
            settings.cursus.producer_check_ms,
        ),
    )
    return (
        *(ProducerExpiry(env, kind, pause_s=ms / 1000) for kind, ms in kinds),
        ProducerExpiry(
            env,
            PlainProducers(env, table, ttl_s=settings.log.producer_ttl_ms / 1000),
            pause_s=settings.log.producer_check_ms / 1000,
            first=end_hanging,
        ),
    )
