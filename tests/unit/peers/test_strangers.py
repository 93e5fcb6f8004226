"""Who is ended when too many have not proved yet to be nodes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest

from paceline_node.peers.strangers import Strangers

MOST = 64


class Connection:
    def __init__(self) -> None:
        self.is_ended = False

    def abort(self, reason: str) -> None:
        self.is_ended = True


def is_kept_out(strangers: Strangers, node: str, *crowd: str) -> bool:
    """Whether a node that comes first is ended for the crowd."""
    with ExitStack() as stack:
        waiting = Connection()
        for address, each in [(node, waiting), *((address, Connection()) for address in crowd)]:
            stack.enter_context(strangers.entered(each, address))
        return waiting.is_ended


V4 = [f"10.1.{number}.7" for number in range(2 * MOST)]
V6 = [f"2001:db8:1:{number:x}::7" for number in range(2 * MOST)]
NODES = ["10.0.99.99", "2001:db8:7::9"]


@pytest.mark.parametrize("crowd", [V4, V6])
@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize(
    "learn",
    [
        lambda it, node: it.expect(["broker-3.example", node]),
        lambda it, node: it.met(node),
        lambda it, node: it.expect([node.replace("2001:db8:7::9", "2001:0DB8:7:0:0::9")]),
    ],
)
def test_nodes_that_are_known_stay(
    crowd: list[str], node: str, learn: Callable[[Strangers, str], None]
) -> None:
    assert is_kept_out(Strangers(MOST), node, *crowd)
    strangers = Strangers(MOST)
    learn(strangers, node)
    assert not is_kept_out(strangers, node, *crowd)


def test_a_node_that_left_is_a_stranger() -> None:
    strangers = Strangers(MOST)
    strangers.expect(NODES)
    strangers.expect(NODES[:1])
    assert is_kept_out(strangers, NODES[1], *V4)


def test_one_network_of_strangers_keeps_out_none() -> None:
    """However many addresses it has. A node in it is not counted as one of them."""
    network = [f"2001:db8:1:2::{number:x}" for number in range(1, 3 * MOST)]
    assert not is_kept_out(Strangers(MOST), "2001:db8:7::9", *network)
    strangers = Strangers(MOST)
    strangers.expect(network[:1])
    assert not is_kept_out(strangers, *network)


def test_a_crowd_at_nodes_addresses_ends_its_own() -> None:
    strangers = Strangers(MOST)
    strangers.expect(NODES)
    assert not is_kept_out(strangers, NODES[0], *NODES[1:] * (2 * MOST))
