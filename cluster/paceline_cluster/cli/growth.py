"""What ``up --nodes`` and ``node add`` have in common: before new nodes are made, and after they
serve."""

from __future__ import annotations

import contextlib
from pathlib import Path

from paceline.errors import AuthenticationFailed, AuthorizationFailed
from paceline.types import NodeId
from paceline_cluster import create, growing, launch, state, voting
from paceline_cluster.cli.find_cluster import ClusterRef
from paceline_cluster.cli.session import client_of
from paceline_cluster.growing import Growth

HINT = (
    "new partitions are placed on all nodes; those that are there stay where they are until you "
    "move some: 'paceline partition move plan --file plan.json', then 'paceline partition move "
    "execute plan.json'"
)
CLOSED = (AuthenticationFailed, AuthorizationFailed)
"""Where nodes do not tell whoever asks, what the files say has to do."""


async def numbers_taken(directory: Path) -> frozenset[int]:
    """Of nodes that the running cluster knows, and ``cluster.json`` need not."""
    if launch.is_stopped(state.load(directory)):
        return frozenset()
    with contextlib.suppress(*CLOSED):
        async with client_of(ClusterRef(directory)) as client:
            cluster = await client.admin.describe_cluster()
            return frozenset(int(each.node_id) for each in cluster.brokers)
    return frozenset()


async def settled(
    directory: Path, growth: Growth, *, by_hand: bool, timeout_s: float
) -> list[NodeId]:
    """All nodes serve: have those before read what has changed, and wait for the quorum. Returns
    who votes; nobody where that is not told."""
    current = state.load(directory)
    growing.have_read(current, growth)
    wanted = create.voters_of(current)
    with contextlib.suppress(*CLOSED):
        async with client_of(ClusterRef(directory)) as client:
            return await voting.settle(client, wanted, by_hand=by_hand, timeout_s=timeout_s)
    return []
