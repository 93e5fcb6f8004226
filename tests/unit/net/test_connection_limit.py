"""Who gives up its place for a newcomer, where nobody is silent."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from trio.testing import memory_stream_pair

from paceline_node.net.connection_limit import ConnectionLimit


def limit_of(*addresses: str) -> ConnectionLimit:
    limit = ConnectionLimit(idle_s=60)
    for address in addresses:
        limit.enter(memory_stream_pair()[0], address)
    return limit


@pytest.mark.parametrize("address", ["10.0.0.9", "2001:db8:1:2::{:x}", "::ffff:10.0.0.9"])
def test_who_has_nearly_all_gives_one_up(address: str) -> None:
    """Whoever has an IPv6 network has as many addresses as he likes."""
    make: Callable[[int], str] = address.format
    limit = limit_of(*map(make, range(1, 101)))
    assert not limit.displace(make(101)), "one that is used is not ended for another of its own"
    assert limit.displace("198.51.100.7")
    assert limit.displaced == 1


def test_nobody_of_many_gives_one_up() -> None:
    limit = limit_of(*(f"10.0.0.{number}" for number in range(1, 101)))
    assert not limit.displace("198.51.100.7")
