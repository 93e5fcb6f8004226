"""The transaction coordinator of a node: its settings, its machine, its tasks."""

from __future__ import annotations

import trio

from paceline.types import NodeId
from paceline_node.app.groups import GroupMachines
from paceline_node.app.metadata import Metadata
from paceline_node.app.peering import Peering
from paceline_node.env import Env
from paceline_node.replication.manager import ReplicaManager
from paceline_node.services.transactions.ending_signal import EndingSignal
from paceline_node.services.transactions.transaction_endings import TransactionEndings
from paceline_node.services.transactions.transaction_rpc import TransactionRpc
from paceline_node.services.transactions.transactional_produce import TransactionalProduce
from paceline_node.settings import Settings
from paceline_node.state_machines.topic import StateTopic
from paceline_node.transactions.engine import TransactionEngine
from paceline_node.transactions.keys import TRANSACTIONS_TOPIC
from paceline_node.transactions.limits import TransactionLimits


def transaction_limits(settings: Settings) -> TransactionLimits:
    """What of the node's settings concerns transactions."""
    transactions = settings.transactions
    return TransactionLimits(
        timeout_max_s=transactions.timeout_max_ms / 1000,
        ids_max=transactions.ids_max,
        unused_ids_kept_s=transactions.unused_ids_kept_ms / 1000,
        partitions_max=transactions.partitions_max,
        open_partitions_max=transactions.open_partitions_max,
        staged_bytes_max=transactions.staged_bytes_max,
        staged_total_bytes_max=transactions.staged_total_bytes_max,
        ids_kept_s=transactions.ids_kept_ms / 1000,
        sinks_kept_s=transactions.sinks_kept_ms / 1000,
        expiry_check_s=transactions.expiry_check_ms / 1000,
    )


class TransactionMachines:
    """Owns the machine of ``__transactions`` on this node, and what carries its decisions out; it
    answers other nodes from the beginning."""

    def __init__(
        self,
        env: Env,
        settings: Settings,
        node_id: NodeId,
        metadata: Metadata,
        peering: Peering,
        replicas: ReplicaManager,
        groups: GroupMachines,
    ) -> None:
        store = metadata.image_store
        limits = transaction_limits(settings)
        self.commit_s = settings.transactions.commit_timeout_ms / 1000
        news = EndingSignal()
        self.machines: StateTopic[TransactionEngine] = StateTopic(
            env,
            TRANSACTIONS_TOPIC,
            replicas,
            lambda number: TransactionEngine(limits, news.tell),
        )
        self.rpc = TransactionRpc(
            env, node_id, store, peering.links, replicas.table, self.machines, groups.machines
        )
        self.rpc.register(peering.server)
        self.endings = TransactionEndings(env, store, self.machines, self.rpc, news)
        self.produce = TransactionalProduce(self.rpc)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.machines.run)
            await nursery.start(self.endings.run)
            await nursery.start(self.produce.run)
            task_status.started()
