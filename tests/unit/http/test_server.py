from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest
import trio
import trio.testing
import trio_websocket
from structlog.testing import capture_logs
from trio.testing import MockClock

from paceline.health import Check, Level
from paceline.wire.frame import Kind, encode_head
from paceline_node.client_memory import ClientMemory, Holding, unlimited
from paceline_node.http.api.pages import ApiOfStarting
from paceline_node.http.page import Page
from paceline_node.http.pages import Scrapes, standard_pages
from paceline_node.http.server import HttpLimits, HttpServer
from paceline_node.http.upgrade import framed, serve_websocket
from paceline_node.loop_turns import Turns
from paceline_node.net.framestream import FrameStream
from paceline_node.observe.metrics import Metrics
from paceline_node.security.origins import BrowserCheck
from paceline_node.security.principals import ANONYMOUS, CLUSTER, Operation, Principal, refuse
from paceline_node.security.sessions import Login

HEAD = "Host: localhost\r\n"
LIMIT_BYTES = 1_000_000
STARTS = Check("state", Level.CRITICAL, "broker is starting", "wait", 3)
NO_ROOM = Check("disk-space", Level.CRITICAL, "the disk is full")
EXPIRES = Check("certificates", Level.WARNING, "it expires soon")
PASSED = Check("session")
NOTHING = {"held_bytes": 0, "limit_bytes": LIMIT_BYTES, "is_short": False}


class Client:
    """A connection to a server, with the whole of what it answers."""

    def __init__(self, server: HttpServer, nursery: trio.Nursery) -> None:
        self.stream, far = trio.testing.memory_stream_pair()
        nursery.start_soon(server.handle, far)

    async def send(self, text: str) -> None:
        await self.stream.send_all(text.encode("latin-1"))

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """One answer with its body; status 0 when the server closed without one."""
        data = b""
        while b"\r\n\r\n" not in data:
            more = await self.stream.receive_some(1)
            if not more:
                return 0, {}, data
            data += more
        status, *lines = data.decode().removesuffix("\r\n\r\n").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        assert len(headers) == len(lines), f"a header is there twice: {lines}"
        body = b""
        while len(body) < int(headers.get("content-length", 0)):
            body += await self.stream.receive_some(1)
        return int(status.split()[1]), headers, body

    async def closed(self) -> bool:
        return await self.stream.receive_some(1) == b""


def allow(_principal: Principal) -> None:
    """Everybody may see everything."""


def server(
    failed: Sequence[Check] = (),
    permit: Callable[[Principal], None] = allow,
    memory: ClientMemory | None = None,
    **options: object,
) -> HttpServer:
    memory = memory or ClientMemory(LIMIT_BYTES)
    scrapes = Scrapes(Metrics(version="7.1").collect, Turns(), trio.to_thread.run_sync)
    pages = standard_pages(scrapes, lambda: failed, permit, memory)

    async def bug(_principal: Principal) -> Page:
        return Page(str(1 // 0).encode())

    pages["/bug"] = bug
    return HttpServer(pages, memory=memory, **options)  # type: ignore[arg-type]


@pytest.fixture
def client(nursery: trio.Nursery) -> Client:
    return Client(server([STARTS, EXPIRES, NO_ROOM, PASSED]), nursery)


async def get(client: Client, path: str, *, method: str = "GET", more: str = HEAD) -> int:
    await client.send(f"{method} {path} HTTP/1.1\r\n{more}\r\n")
    return (await client.answer())[0]


async def test_live_says_nothing_about_readiness(client: Client) -> None:
    assert await get(client, "/live") == 200


async def test_ready_names_what_fails(client: Client, nursery: trio.Nursery) -> None:
    await client.send(f"GET /ready HTTP/1.1\r\n{HEAD}\r\n")
    status, _, body = await client.answer()
    assert status == 503
    assert json.loads(body) == {
        "ready": False,
        "failed": ["broker is starting", "the disk is full"],
        "checks": [
            {
                "name": "state",
                "level": "critical",
                "reason": "broker is starting",
                "what_to_do": "wait",
                "node": 3,
            },
            {
                "name": "certificates",
                "level": "warning",
                "reason": "it expires soon",
                "what_to_do": "",
                "node": None,
            },
            {
                "name": "disk-space",
                "level": "critical",
                "reason": "the disk is full",
                "what_to_do": "",
                "node": None,
            },
            {"name": "session", "level": "ok", "reason": "", "what_to_do": "", "node": None},
        ],
        "client_memory": NOTHING,
    }
    healthy = Client(server(), nursery)
    await healthy.send(f"GET /ready?x=1 HTTP/1.1\r\n{HEAD}\r\n")
    status, _, body = await healthy.answer()
    told = {"ready": True, "failed": [], "checks": [], "client_memory": NOTHING}
    assert (status, json.loads(body)) == (200, told)


async def test_what_is_to_be_mended_elsewhere_keeps_no_node_from_serving(
    nursery: trio.Nursery,
) -> None:
    """A load balancer would send everybody away from every node of the cluster."""
    leaderless = Check("leaders", Level.CRITICAL, "1 of 9 partitions without leader")
    client = Client(server([leaderless, EXPIRES, PASSED]), nursery)
    await client.send(f"GET /ready HTTP/1.1\r\n{HEAD}\r\n")
    status, _, body = await client.answer()
    told = json.loads(body)
    assert (status, told["ready"], told["failed"]) == (200, True, [])
    assert [each["name"] for each in told["checks"]] == ["leaders", "certificates", "session"]


async def test_live_has_the_names_that_probes_are_set_to(client: Client) -> None:
    for path in ("/live", "/health", "/healthz"):
        await client.send(f"GET {path} HTTP/1.1\r\n{HEAD}\r\n")
        status, _, body = await client.answer()
        assert (status, body) == (200, b"live\n"), path


async def test_who_is_sent_away_is_told_which_setting_lets_him_in(nursery: trio.Nursery) -> None:
    for more, status, setting in (
        ("Host: broker.example\r\n", 421, "http.allowed_hosts"),
        (f"{HEAD}Origin: http://evil.example\r\n", 403, "http.allowed_origins"),
    ):
        client = Client(server(), nursery)
        await client.send(f"GET /live HTTP/1.1\r\n{more}\r\n")
        said, _, body = await client.answer()
        assert said == status
        assert setting in json.loads(body)["error"]["hint"]


async def test_ready_shows_what_clients_hold(nursery: trio.Nursery) -> None:
    """It is no reason not to be ready: who holds most waits or is ended."""
    memory = ClientMemory(LIMIT_BYTES)
    client = Client(server(memory=memory), nursery)
    with memory.holding("v1", "192.0.2.1", lambda _: None) as held:
        held.change(600_000)
        await client.send(f"GET /ready HTTP/1.1\r\n{HEAD}\r\n")
        status, _, body = await client.answer()
    told = {"held_bytes": 600_000, "limit_bytes": LIMIT_BYTES, "is_short": True}
    assert (status, json.loads(body)["client_memory"]) == (200, told)


async def test_metrics_in_text(client: Client) -> None:
    await client.send(f"GET /metrics HTTP/1.1\r\n{HEAD}\r\n")
    status, headers, body = await client.answer()
    assert status == 200
    assert headers["content-type"].startswith("text/plain")
    assert b'paceline_build_info{version="7.1"} 1.0' in body


async def test_pages_that_tell_something_are_put_to_the_policy(nursery: trio.Nursery) -> None:
    def shut(principal: Principal) -> None:
        refuse(principal, Operation.DESCRIBE, CLUSTER)

    client = Client(server(permit=shut), nursery)
    for path in ("/ready", "/metrics"):
        await client.send(f"GET {path} HTTP/1.1\r\n{HEAD}\r\n")
        status, _, body = await client.answer()
        error = json.loads(body)["error"]
        assert status == 403
        assert error["code"] == "AUTHORIZATION_FAILED"
        assert error["message"] == "anonymous may not describe cluster"
        assert "Authorization: Bearer" in error["hint"]
    assert await get(client, "/live") == 200


async def test_the_api_of_a_node_that_starts_says_what_it_waits_for(
    nursery: trio.Nursery,
) -> None:
    client = Client(server(branches=[ApiOfStarting(lambda: ["it reads its logs"])]), nursery)
    await client.send(f"GET /api/topics HTTP/1.1\r\n{HEAD}\r\n")
    status, _, body = await client.answer()
    error = json.loads(body)["error"]
    assert (status, error["code"]) == (503, "SERVICE_UNAVAILABLE")
    assert error["message"] == "this node is starting: it reads its logs"
    assert await get(client, "/api/topics", method="POST") == 405
    assert await get(client, "/apis") == 404


async def test_every_answer_is_counted(nursery: trio.Nursery) -> None:
    counted: list[tuple[str, int]] = []
    client = Client(server(count=lambda path, status, _: counted.append((path, status))), nursery)
    for path in ("/live", "/nothing", "/bug"):
        await get(client, path)
    await get(client, "/ready", more="Host: evil.example\r\n")
    assert counted == [("/live", 200), ("/nothing", 404), ("/bug", 500), ("/ready", 421)]


async def test_a_connection_serves_many_requests_also_pipelined(client: Client) -> None:
    await client.send(f"GET /live HTTP/1.1\r\n{HEAD}\r\n" * 3)
    for _ in range(3):
        assert (await client.answer())[0] == 200
    await client.send(f"GET /live HTTP/1.1\r\n{HEAD}Connection: close\r\n\r\n")
    assert (await client.answer())[0] == 200
    assert await client.closed()


async def test_byte_by_byte(client: Client) -> None:
    for char in f"GET /live HTTP/1.1\r\n{HEAD}\r\n":
        await client.send(char)
        await trio.lowlevel.checkpoint()
    assert (await client.answer())[0] == 200


async def test_a_page_that_fails_answers_500_and_the_next_is_served(client: Client) -> None:
    assert await get(client, "/bug") == 500
    assert await get(client, "/live") == 200


async def test_refusals_of_requests_that_are_valid(client: Client) -> None:
    assert await get(client, "/nothing") == 404
    await client.send(f"POST /live HTTP/1.1\r\n{HEAD}\r\n")
    status, headers, _ = await client.answer()
    assert (status, headers["allow"]) == (405, "get, head")
    await client.send(f"HEAD /live HTTP/1.1\r\n{HEAD}\r\n")
    headers_only = b""
    while not headers_only.endswith(b"\r\n\r\n"):
        headers_only += await client.stream.receive_some(1)
    assert b"content-length: 5" in headers_only.lower()
    assert await get(client, "/live") == 200


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        ("nonsense\r\n\r\n", 400),
        ("GET /live HTTP/1.1\r\n\r\n", 400),  # no Host
        ("GET /live HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("GET /live HTTP/1.0\r\n\r\n", 421),  # 1.0 may lack it, but not here
        ("GET /live HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
        ("GET /live HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n", 403),
        (f"GET /live HTTP/1.1\r\n{HEAD}Content-Length: 5\r\n\r\nhello", 413),
        (f"POST /live HTTP/1.1\r\n{HEAD}Transfer-Encoding: chunked\r\n\r\n", 413),
        (f"GET /{'x' * 40_000} HTTP/1.1\r\n{HEAD}\r\n", 431),
        (f"GET /live HTTP/1.1\r\n{HEAD}X: {'x' * 40_000}\r\n\r\n", 431),
        (f"GET /nothing HTTP/1.1\r\n{HEAD}Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n", 404),
        (f"GET /native HTTP/1.1\r\n{HEAD}Upgrade: websocket\r\nConnection: \xc0\r\n\r\n", 400),
    ],
)
async def test_what_ends_the_connection(client: Client, request_text: str, status: int) -> None:
    await client.send(request_text)
    assert (await client.answer())[0] == status
    assert await client.closed()


async def test_a_truncated_request_is_no_request(client: Client) -> None:
    whole = f"GET /live HTTP/1.1\r\n{HEAD}\r\n"
    await client.send(whole[:-1])
    await client.stream.send_eof()
    status, _, rest = await client.answer()
    assert (status, rest) in ((0, b""), (400, rest))
    assert await client.closed()


async def test_slow_heads_and_idle_connections_are_closed(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    client = Client(server(limits=HttpLimits(head_s=5)), nursery)
    started = trio.current_time()
    assert await get(client, "/live") == 200
    await client.send("GET /live")
    assert await client.closed()
    assert trio.current_time() - started == pytest.approx(5, abs=0.1)


async def test_a_client_that_does_not_read_is_dropped(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    near, far = trio.testing.lockstep_stream_pair()
    nursery.start_soon(server(limits=HttpLimits(send_s=3)).handle, far)
    await near.send_all(f"GET /live HTTP/1.1\r\n{HEAD}\r\n".encode())
    await trio.sleep(4)
    with pytest.raises(trio.BrokenResourceError):
        await near.send_all(b"x")


# --- WebSocket ---


async def echo(stream: trio.abc.Stream, name: str, login: Login, memory: Holding) -> None:
    """A session as the native listener's: frames in, frames out."""
    frames = FrameStream(stream, name=name)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(frames.run_writer)
        while True:
            try:
                frame = await frames.receive()
            except Exception:  # noqa: BLE001  the test looks at what the client sees
                break
            if frame is None:
                break
            for _ in range(2):
                frames.send_frame(Kind.RESPONSE, frame.api, frame.correlation, None, frame.payload)
        frames.finish()


def socket_server(**options: object) -> HttpServer:
    return server(sockets={"/native": echo}, **options)


async def open_socket(
    nursery: trio.Nursery, path: str = "/native", origin: str | None = None, **options: object
) -> trio_websocket.WebSocketConnection:
    near, far = trio.testing.memory_stream_pair()
    nursery.start_soon(socket_server(**options).handle, far)
    headers = [] if origin is None else [(b"Origin", origin.encode())]
    return await trio_websocket.wrap_client_stream(
        nursery, near, "localhost:7480", path, extra_headers=headers
    )


def frame_bytes(number: int, payload: bytes) -> bytes:
    return encode_head(Kind.REQUEST, 1, number, [], len(payload)) + payload


async def test_frames_over_websocket_one_per_message(nursery: trio.Nursery) -> None:
    socket = await open_socket(nursery, origin="http://localhost:7480")
    for number, payload in enumerate([b"", b"abc", bytes(100_000)]):
        await socket.send_message(frame_bytes(number, payload))
        for _ in range(2):
            message = await socket.get_message()
            assert isinstance(message, bytes)
            assert int.from_bytes(message[:4], "big") == len(message) - 4
            assert message.endswith(payload)
    await socket.aclose()


@pytest.mark.parametrize(
    "message", ["text", b"", b"\0\0", frame_bytes(1, b"x")[:-1], frame_bytes(1, b"x") * 2]
)
async def test_a_message_that_is_not_one_frame_ends_the_socket(
    nursery: trio.Nursery, message: str | bytes
) -> None:
    socket = await open_socket(nursery)
    await socket.send_message(message)
    with pytest.raises(trio_websocket.ConnectionClosed):
        await socket.get_message()


UPGRADE = (
    f"{HEAD}Upgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n"
)


async def test_a_foreign_page_may_not_open_a_socket(nursery: trio.Nursery) -> None:
    evil = f"{UPGRADE}Origin: https://evil.example\r\n"
    assert await get(Client(socket_server(), nursery), "/native", more=evil) == 403
    check = BrowserCheck(origins=["https://ops.example"])
    socket = await open_socket(nursery, origin="https://ops.example", browsers=check)
    await socket.aclose()


async def test_other_paths_are_no_sockets(nursery: trio.Nursery) -> None:
    assert await get(Client(socket_server(), nursery), "/live", more=UPGRADE) == 404
    assert await get(Client(socket_server(), nursery), "/native") == 426


async def test_a_broken_handshake_ends_the_connection(nursery: trio.Nursery) -> None:
    client = Client(socket_server(), nursery)
    await client.send(
        f"GET /native HTTP/1.1\r\n{HEAD}Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
    )
    with trio.fail_after(5):
        while not await client.closed():
            pass


async def test_a_client_that_is_gone_before_the_handshake_ends_harms_nothing() -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    await theirs.send_all(f"GET /native HTTP/1.1\r\n{UPGRADE}\r\n".encode())
    await trio.aclose_forcefully(theirs)
    limits = {"max_message_bytes": 1000, "handshake_s": 5, "stall_s": 5}
    held = unlimited()
    converse = framed(echo, "gone", Login(ANONYMOUS), held)
    await serve_websocket(ours, converse, held, **limits)


async def test_targets_that_are_no_urls_are_no_pages(client: Client) -> None:
    for target in ("//[", "http://[::1", "*", "//]/live"):
        await client.send(f"GET {target} HTTP/1.1\r\n{HEAD}\r\n")
        assert (await client.answer())[0] == 404, target


async def test_a_message_above_the_limit_ends_the_socket(nursery: trio.Nursery) -> None:
    socket = await open_socket(nursery, limits=HttpLimits(message_bytes=1000))
    await socket.send_message(frame_bytes(1, bytes(2000)))
    with pytest.raises(trio_websocket.ConnectionClosed):
        await socket.get_message()


async def test_a_client_that_is_gone_when_it_is_refused_is_no_failure() -> None:
    """Each left a traceback in the log."""
    ours, theirs = trio.testing.memory_stream_pair()
    await ours.send_all(b"no request\r\n\r\n")
    await ours.aclose()
    with capture_logs() as logged:
        await server().handle(theirs)
    assert logged == []
