"""The real network, with the other nodes behind the links of a fault proxy.

A node learns its peers' addresses from the cluster; each it dials is looked up in a table, and what
stands in it is dialled in its place. So every ordered pair of nodes has a link of its own, although
a node has one advertised address.
"""

from __future__ import annotations

from collections.abc import Mapping

import trio

from paceline_node.net.network import RealNetwork

Address = tuple[str, int]


class RoutedNetwork(RealNetwork):
    """Connects to ``routes[address]`` instead of ``address``, where there is one."""

    def __init__(self, routes: Mapping[Address, Address]) -> None:
        self._routes = routes

    async def connect(self, host: str, port: int) -> trio.abc.Stream:
        """As :meth:`RealNetwork.connect`."""
        return await super().connect(*self._routes.get((host, port), (host, port)))
