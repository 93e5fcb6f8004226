"""Links that break or fall silent: when that proves a death, and when they are tried again."""

from __future__ import annotations

import itertools

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from paceline.errors import ConnectionLost, PacelineError
from paceline.wire.peer.api import PeerApi
from paceline_node.peers.auth import Lane
from paceline_node.peers.link import LinkState, LinkTiming
from paceline_node.peers.links import PeerLinks
from paceline_node.peers.server import ServerLimits
from tests.unit.peers.memory_network import MemoryNetwork
from tests.unit.peers.two_nodes import PORT, SLOW, TWO, Node2, say, start_links


async def test_death_is_proved_once_by_a_lost_link_and_a_refusal(
    network: MemoryNetwork, nursery: trio.Nursery, node2: Node2, autojump_clock: MockClock
) -> None:
    links, refused = await start_links(network, nursery)
    for lane in ("control", "raft", "fetch"):
        await say(links, "up", lane=lane)
    await trio.sleep(5)
    at = trio.current_time()
    await node2.kill()
    await trio.testing.wait_all_tasks_blocked()
    assert refused == [2]
    assert trio.current_time() == at, "a steady link is retried at once"
    await trio.sleep(10)
    assert refused == [2], "later refusals add nothing"
    await node2.start()
    await trio.sleep(1.1)
    assert await say(links, "back") == "1 said back"
    await trio.sleep(5)
    await node2.kill()
    await trio.sleep(0.1)
    assert refused == [2, 2], "the next death is a new one"


async def test_a_reset_is_no_proof_while_the_node_still_listens(
    network: MemoryNetwork, nursery: trio.Nursery, node2: Node2, autojump_clock: MockClock
) -> None:
    links, refused = await start_links(network, nursery)
    await say(links, "up")
    await trio.sleep(2)
    await network.cut(PORT)
    await trio.sleep(0.01)
    assert await say(links, "again") == "1 said again"
    assert refused == []
    assert node2.closed == [(1, Lane.CONTROL)]


async def test_a_closed_listener_is_no_proof_while_another_link_is_open(
    network: MemoryNetwork, nursery: trio.Nursery, node2: Node2, autojump_clock: MockClock
) -> None:
    links, refused = await start_links(network, nursery)
    await say(links, "up", lane="raft")
    await say(links, "up", lane="control")
    await trio.sleep(2)
    listener = network.listeners.pop(PORT)
    await trio.aclose_forcefully(network.connections[PORT][1])
    await trio.sleep(3)
    assert refused == []
    await trio.aclose_forcefully(network.connections[PORT][0])
    await trio.sleep(0.1)
    assert refused == [2]
    await listener.aclose()


async def test_a_node_never_reached_is_not_reported(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    links, refused = await start_links(network, nursery)
    with pytest.raises(ConnectionLost, match="connection refused") as caught:
        await say(links, "hello?")
    assert not caught.value.was_sent
    await trio.sleep(5)
    assert refused == []


async def test_a_session_that_ended_makes_its_node_suspect(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A controller to which a broker connected, but which has no link of its own to it."""
    links, refused = await start_links(network, nursery)
    links.heard(TWO)
    links.suspect(TWO)
    await trio.sleep(0.1)
    assert refused == [2]
    links.suspect(TWO)
    await trio.sleep(0.1)
    assert refused == [2]


async def test_nodes_may_be_spoken_to_while_the_links_end(network: MemoryNetwork) -> None:
    """Sessions end at the same time, in any order, and each makes its node suspect."""

    async def to_the_last(links: PeerLinks) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                for lane in Lane:
                    links.post(TWO, PeerApi.RAFT, payload=b"x", lane=lane)
                    await trio.lowlevel.checkpoint()

    for _ in range(20):  # who is first, is drawn
        async with trio.open_nursery() as ending:
            links, _ = await start_links(network, ending)
            ending.start_soon(to_the_last, links)
            await trio.testing.wait_all_tasks_blocked()
            ending.cancel_scope.cancel()


async def test_pauses_grow_with_jitter_and_calls_fail_at_once_in_them(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    links, _ = await start_links(network, nursery)
    links.post(TWO, PeerApi.RAFT, payload=b"x", lane="raft")
    await trio.sleep(6)
    times = [at for at, _ in network.attempts]
    gaps = [b - a for a, b in itertools.pairwise(times)]
    for gap, full in zip(gaps, [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0], strict=False):
        assert full / 2 <= gap <= full
    before = trio.current_time()
    with pytest.raises(ConnectionLost, match="refused"):
        await say(links, "x", lane="raft")
    assert trio.current_time() == before


async def test_a_node_heard_during_an_attempt_is_tried_again_at_once(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    links, _ = await start_links(network, nursery)
    network.latency_s = 0.2  # an attempt is refused by what was there when it began
    links.post(TWO, PeerApi.RAFT, payload=b"x", lane="raft")
    await trio.sleep(5)
    while links.states()[0].state is not LinkState.CONNECTING:  # noqa: ASYNC110  virtual time
        await trio.sleep(0.01)
    await Node2(network, nursery).start()
    links.heard(TWO)
    await trio.sleep(0.41)
    assert links.states()[0].state is LinkState.OPEN


async def test_an_unused_link_is_left_alone_until_it_is_used_again(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    links, _ = await start_links(network, nursery)
    links.post(TWO, PeerApi.RAFT, payload=b"x", lane="raft")
    await trio.sleep(60)
    count = len(network.attempts)
    await trio.sleep(600)
    assert len(network.attempts) == count
    node = Node2(network, nursery)
    await node.start()
    assert await say(links, "hi", lane="raft") == "1 said hi"


async def test_a_call_waits_for_the_connection_under_way(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network.black_holes.add(PORT)
    links, refused = await start_links(network, nursery)
    with pytest.raises(ConnectionLost, match="not connected within 1 s") as caught:
        await say(links, "x", timeout_s=1)
    assert not caught.value.was_sent
    with pytest.raises(ConnectionLost, match="no connection in time"):
        await say(links, "x", timeout_s=9)
    assert refused == []


async def test_a_new_address_is_used_and_a_removed_node_is_forgotten(
    network: MemoryNetwork, nursery: trio.Nursery, node2: Node2, autojump_clock: MockClock
) -> None:
    links, _ = await start_links(network, nursery)
    links.set_addresses({TWO: ("h", 1)})
    with pytest.raises(ConnectionLost, match="refused"):
        await say(links, "x")
    links.set_addresses({TWO: ("h", PORT)})
    assert await say(links, "moved") == "1 said moved"
    links.set_addresses({})
    with pytest.raises(ConnectionLost, match="no known address"):
        await say(links, "x")
    await trio.sleep(0.1)
    assert node2.closed == [(1, Lane.CONTROL)]
    assert links.states() == []


async def test_calls_under_way_learn_that_the_link_broke(
    network: MemoryNetwork, nursery: trio.Nursery, node2: Node2, autojump_clock: MockClock
) -> None:
    links, _ = await start_links(network, nursery)
    await say(links, "up")
    caught: list[PacelineError] = []

    async def doomed() -> None:
        try:
            await say(links, ".....", api=SLOW)
        except ConnectionLost as error:
            caught.append(error)

    nursery.start_soon(doomed)
    await trio.sleep(1)
    await node2.kill()
    await trio.sleep(0.1)
    (error,) = caught
    assert isinstance(error, ConnectionLost)
    assert error.was_sent


async def test_a_silent_peer_is_pinged_and_given_up(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    node = Node2(network, nursery)
    await node.start()
    links, refused = await start_links(network, nursery, timing=LinkTiming(ping_s=1))
    await say(links, "up")
    await trio.sleep(100)
    assert len(network.attempts) == 1, "an idle but living link stays"
    assert node.closed == []
    # From now on nothing comes back, though the stream stays open.
    (far,) = network.connections[PORT]

    async def swallow() -> None:
        await trio.sleep_forever()

    far.send_stream.send_all_hook = swallow  # type: ignore[attr-defined]
    listener = network.listeners.pop(PORT)
    await trio.sleep(10)
    assert refused == [2]
    await listener.aclose()


async def test_the_server_ends_silent_sessions(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    node = Node2(network, nursery, limits=ServerLimits(silent_s=5))
    await node.start()
    links, _ = await start_links(network, nursery, timing=LinkTiming(ping_s=1000))
    await say(links, "up")
    await trio.sleep(4)
    assert node.closed == []
    await trio.sleep(8)
    assert node.closed == [(1, Lane.CONTROL)]
