"""Links and server together, over memory streams and virtual time."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from paceline.errors import (
    AuthenticationFailed,
    AuthorizationFailed,
    ConnectionLost,
    InconsistentClusterId,
    InternalError,
    InvalidRequest,
    NotController,
    PacelineError,
    RequestTimedOut,
)
from paceline.types import NodeId
from paceline.wire.frame import Frame, Kind, encode_head
from paceline.wire.message import Message
from paceline.wire.peer.api import PeerApi
from paceline_node.peers.auth import Lane, Secret
from paceline_node.peers.dial import ask
from paceline_node.peers.framestream import Payload
from paceline_node.peers.link import LinkState, LinkTiming
from paceline_node.peers.links import PeerLinks
from paceline_node.peers.server import PeerServer, ServerLimits, Session
from tests.unit.peers.memory_network import CLUSTER, SECRET, MemoryNetwork, Task, identity

ONE, TWO = NodeId(1), NodeId(2)
ECHO, SLOW, FAIL, BUG, PARK = 200, 201, 202, 203, 204
PORT = 7002


@dataclass(frozen=True, slots=True)
class Text(Message):
    text: str


class Node2:
    """A peer server with test handlers, which can be started and killed."""

    def __init__(self, network: MemoryNetwork, nursery: trio.Nursery, **options: object) -> None:
        self.network = network
        self.nursery = nursery
        self.options = options
        self.heard: list[str] = []
        self.opened: list[tuple[int, Lane]] = []
        self.closed: list[tuple[int, Lane]] = []
        self.parked: list[tuple[Session, Frame]] = []
        self.task: Task | None = None
        self.server = self.make()

    def make(self) -> PeerServer:
        server = PeerServer(
            self.network.env(2),
            identity(2),
            self.options.get("secret", SECRET),  # type: ignore[arg-type]
            limits=self.options.get("limits"),  # type: ignore[arg-type]
            on_open=lambda s: self.opened.append((s.peer, s.lane)),
            on_close=lambda s: self.closed.append((s.peer, s.lane)),
        )
        server.register(ECHO, self.echo)
        server.register(SLOW, self.slow)
        server.register(FAIL, self.fail)
        server.register(BUG, self.bug)
        server.register_direct(PARK, lambda s, f: self.parked.append((s, f)))
        server.register_direct(
            PeerApi.RAFT, lambda s, f: self.heard.append(bytes(f.payload).decode())
        )
        return server

    async def start(self) -> None:
        listeners = await self.network.listen("h", PORT)
        self.task = Task(lambda task_status: self.server.run(listeners, task_status=task_status))
        await self.nursery.start(self.task)

    async def kill(self) -> None:
        """All connections end and the port refuses, as when a process dies."""
        assert self.task is not None
        await self.task.end()

    async def echo(self, session: Session, frame: Frame) -> tuple[Message, Payload]:
        await trio.lowlevel.checkpoint()
        return Text(f"{session.peer} said {Text.unpack(frame.body).text}"), bytes(frame.payload)

    async def slow(self, session: Session, frame: Frame) -> tuple[Message, Payload]:
        await trio.sleep(Text.unpack(frame.body).text.count("."))
        return Text("done"), b""

    async def fail(self, session: Session, frame: Frame) -> tuple[Message, Payload]:
        await trio.lowlevel.checkpoint()
        raise NotController("node 2 is not the controller")

    async def bug(self, session: Session, frame: Frame) -> tuple[Message, Payload]:
        await trio.lowlevel.checkpoint()
        raise ZeroDivisionError


@pytest.fixture
def network() -> MemoryNetwork:
    return MemoryNetwork()


@pytest.fixture
async def node2(network: MemoryNetwork, nursery: trio.Nursery) -> Node2:
    node = Node2(network, nursery)
    await node.start()
    return node


async def start_links(
    network: MemoryNetwork,
    nursery: trio.Nursery,
    *,
    secret: Secret = SECRET,
    who: int = 1,
    **more: object,
) -> tuple[PeerLinks, list[int]]:
    refused: list[int] = []
    links = PeerLinks(network.env(), identity(who), secret, on_refused=refused.append, **more)  # type: ignore[arg-type]
    links.set_addresses({TWO: ("h", PORT)})
    await nursery.start(links.run)
    return links, refused


async def say(
    links: PeerLinks, text: str, *, api: int = ECHO, lane: str = "control", timeout_s: float = 5.0
) -> str:
    frame = await links.call(TWO, api, Text(text), b"pay", lane=lane, timeout_s=timeout_s)
    return Text.unpack(frame.body).text


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
