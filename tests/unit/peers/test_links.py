"""Links and server together, over memory streams and virtual time."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from paceline.errors import (
    AuthenticationFailed,
    AuthorizationFailed,
    ConnectionLost,
    InconsistentClusterId,
    InternalError,
    InvalidRequest,
    NotController,
    NotLeader,
    PacelineError,
    RequestTimedOut,
)
from paceline.types import NodeId
from paceline.wire.frame import Frame, Kind, encode_head
from paceline.wire.message import Message
from paceline.wire.peer.api import PeerApi
from paceline_node.net.framestream import Payload
from paceline_node.peers.auth import Lane, Secret
from paceline_node.peers.dial import ask
from paceline_node.peers.link import LinkState
from paceline_node.peers.links import PeerLinks
from paceline_node.peers.server import Session
from tests.unit.peers.memory_network import CLUSTER, SECRET, MemoryNetwork, Task, identity
from tests.unit.peers.two_nodes import (
    BUG,
    ECHO,
    FAIL,
    PARK,
    PORT,
    SLOW,
    TWO,
    Node2,
    Text,
    say,
    start_links,
)


async def test_a_call_is_answered_with_the_senders_proven_id(
    network: MemoryNetwork, nursery: trio.Nursery, node2: Node2, autojump_clock: MockClock
) -> None:
    links, _ = await start_links(network, nursery)
    frame = await links.call(TWO, ECHO, Text("hi"), b"payload", lane="control", timeout_s=5)
    assert Text.unpack(frame.body).text == "1 said hi"
    assert bytes(frame.payload) == b"payload"
    assert node2.opened == [(1, Lane.CONTROL)]


async def test_each_lane_has_its_own_connection_and_calls_overlap(
    network: MemoryNetwork, nursery: trio.Nursery, node2: Node2, autojump_clock: MockClock
) -> None:
    links, _ = await start_links(network, nursery)
    order: list[str] = []

    async def one(text: str, api: int, lane: str) -> None:
        order.append(f"{text}{await say(links, text, api=api, lane=lane)}")

    async with trio.open_nursery() as calls:
        calls.start_soon(one, "...", SLOW, "control")
        calls.start_soon(one, ".", SLOW, "control")
        calls.start_soon(one, "x", ECHO, "forward")
    assert order == ["x1 said x", ".done", "...done"]
    assert len(network.attempts) == 2
    assert [(s.lane, s.state) for s in links.states()] == [
        (Lane.CONTROL, LinkState.OPEN),
        (Lane.FORWARD, LinkState.OPEN),
    ]


async def test_errors_arrive_typed(
    network: MemoryNetwork, nursery: trio.Nursery, node2: Node2, autojump_clock: MockClock
) -> None:
    links, _ = await start_links(network, nursery)
    with pytest.raises(NotController, match="node 2 is not the controller"):
        await say(links, "x", api=FAIL)
    with pytest.raises(InternalError, match="ZeroDivisionError"):
        await say(links, "x", api=BUG)
    with pytest.raises(NotLeader, match="node 2 is starting"):
        await say(links, "x", api=999)
    node2.server.complete()
    with pytest.raises(InvalidRequest, match="api 999 is not served"):
        await say(links, "x", api=999)
    assert await say(links, "still here") == "1 said still here"


async def test_a_timeout_leaves_the_link_and_the_late_answer_is_dropped(
    network: MemoryNetwork, nursery: trio.Nursery, node2: Node2, autojump_clock: MockClock
) -> None:
    links, _ = await start_links(network, nursery)
    started = trio.current_time()
    with pytest.raises(RequestTimedOut, match="no answer within 1 s"):
        await say(links, "...", api=SLOW, timeout_s=1)
    assert trio.current_time() - started == pytest.approx(1)
    await trio.sleep(3)
    assert await say(links, "next") == "1 said next"
    assert len(network.attempts) == 1


async def test_cancelling_a_call_forgets_it(
    network: MemoryNetwork, nursery: trio.Nursery, node2: Node2, autojump_clock: MockClock
) -> None:
    links, _ = await start_links(network, nursery)
    with trio.move_on_after(0.5):
        await say(links, "..", api=SLOW)
    await trio.sleep(3)
    assert await say(links, "next") == "1 said next"


async def test_one_way_frames_and_answers_given_later(
    network: MemoryNetwork, nursery: trio.Nursery, node2: Node2, autojump_clock: MockClock
) -> None:
    links, _ = await start_links(network, nursery)
    assert not links.post(TWO, PeerApi.RAFT, payload=b"lost", lane="raft")  # no link yet
    await trio.sleep(0.1)
    assert links.post(TWO, PeerApi.RAFT, payload=b"a", lane="raft")
    assert links.post(TWO, PeerApi.RAFT, payload=b"b", lane="raft")
    assert not links.post(NodeId(9), PeerApi.RAFT, payload=b"?", lane="raft")
    got: list[Frame | PacelineError] = []
    links.submit(TWO, PARK, Text("x"), lane="fetch", timeout_s=5, done=got.append)
    await trio.sleep(1)
    assert node2.heard == ["a", "b"]
    assert got == []
    ((session, frame),) = node2.parked
    session.respond(frame, Text("at last"), (b"one", b"two"))
    await trio.sleep(0.1)
    (answer,) = got
    assert isinstance(answer, Frame)
    assert bytes(answer.payload) == b"onetwo"


async def test_wrong_secret_and_wrong_cluster_are_told_to_the_caller(
    network: MemoryNetwork, nursery: trio.Nursery, node2: Node2, autojump_clock: MockClock
) -> None:
    links, refused = await start_links(network, nursery, secret=Secret(b"not the secret at all"))
    with pytest.raises(AuthenticationFailed, match="node 1 and node 2 hold different"):
        await say(links, "hi")
    stranger = PeerLinks(network.env(), identity(3, cluster=identity(99).directory_id), SECRET)
    stranger.set_addresses({TWO: ("h", PORT)})
    await nursery.start(stranger.run)
    with pytest.raises(InconsistentClusterId, match=str(CLUSTER)):
        await say(stranger, "hi")
    assert node2.opened == []
    assert refused == []


async def test_a_joining_node_may_only_ask_to_join(
    network: MemoryNetwork, nursery: trio.Nursery, node2: Node2, autojump_clock: MockClock
) -> None:
    async def join(session: Session, frame: Frame) -> tuple[Message, Payload]:
        await trio.lowlevel.checkpoint()
        return Text(f"welcome {session.peer}"), b""

    node2.server.register(PeerApi.JOIN_CLUSTER, join)
    newcomer = identity(7, cluster=None)
    peer, frame = await ask(
        network.env(),
        ("h", PORT),
        newcomer,
        SECRET,
        api=PeerApi.JOIN_CLUSTER,
        body=Text("me"),
        timeout_s=5,
    )
    assert (peer.node_id, peer.cluster_id) == (2, CLUSTER)
    assert Text.unpack(frame.body).text == "welcome 7"
    with pytest.raises(AuthorizationFailed):
        await ask(
            network.env(), ("h", PORT), newcomer, SECRET, api=ECHO, body=Text("x"), timeout_s=5
        )
    with pytest.raises(AuthorizationFailed):
        await ask(
            network.env(), ("h", PORT), newcomer, SECRET, api=PARK, body=Text("x"), timeout_s=5
        )
    assert node2.parked == []
    with pytest.raises(ConnectionLost) as caught:
        await ask(network.env(), ("h", 9), newcomer, SECRET, api=ECHO, body=Text("x"), timeout_s=5)
    assert not caught.value.was_sent


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\0\0\0\5\0\0\0\1\xc1",
        (5000).to_bytes(4, "big") + bytes(5000),
        encode_head(Kind.REQUEST, ECHO, 1, ["no hello"], 0),
        encode_head(Kind.REQUEST, PeerApi.PROVE, 1, [b"p" * 32], 0),
        encode_head(Kind.REQUEST, PeerApi.HELLO, 1, ["?"], 0),
        encode_head(Kind.RESPONSE, PeerApi.HELLO, 1, [], 0),
    ],
)
async def test_what_is_no_handshake_gets_no_session(
    network: MemoryNetwork,
    nursery: trio.Nursery,
    node2: Node2,
    data: bytes,
    autojump_clock: MockClock,
) -> None:
    stream = await network.connect("h", PORT)
    await stream.send_all(data)
    with trio.fail_after(10):
        while await stream.receive_some(1000):
            pass
    assert node2.opened == []
    await stream.aclose()
    links, _ = await start_links(network, nursery)
    assert await say(links, "others are served") == "1 said others are served"


async def test_stopping_leaves_nothing_behind(
    network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    caught: list[PacelineError] = []
    async with trio.open_nursery() as nursery:
        node = Node2(network, nursery)
        await node.start()
        links = PeerLinks(network.env(), identity(1), SECRET)
        links.set_addresses({TWO: ("h", PORT)})
        task = Task(links.run)
        await nursery.start(task)
        await say(links, "up")

        async def doomed() -> None:
            try:
                await say(links, ".....", api=SLOW)
            except PacelineError as error:
                caught.append(error)

        nursery.start_soon(doomed)
        await trio.sleep(1)
        await task.end()
        await trio.sleep(0.1)
        assert len(caught) == 1
        assert node.closed == [(1, Lane.CONTROL)]
        assert node.server.sessions == ()
        nursery.cancel_scope.cancel()
