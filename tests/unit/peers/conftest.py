"""Fixtures of the tests of links: node 2 and the way there."""

from __future__ import annotations

import pytest
import trio

from tests.unit.peers.memory_network import MemoryNetwork
from tests.unit.peers.two_nodes import Node2


@pytest.fixture
def network() -> MemoryNetwork:
    return MemoryNetwork()


@pytest.fixture
async def node2(network: MemoryNetwork, nursery: trio.Nursery) -> Node2:
    node = Node2(network, nursery)
    await node.start()
    return node
