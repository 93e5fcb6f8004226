"""A small HTTP/1.1 server: GET of a few pages, and WebSocket upgrades on a few paths.

h11 judges the bytes; this file moves them. Requests have no bodies here: one that announces a body
is refused. Hosts and origins are checked as ``security/origins.py`` says.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from ipaddress import ip_address
from urllib.parse import urlsplit

import h11
import structlog
import trio

from paceline.errors import AuthenticationFailed, PacelineError
from paceline.values import dataclass
from paceline_node.client_addresses import host_of, source_of
from paceline_node.client_connections import Connection, Connections
from paceline_node.client_memory import FREE_BYTES, ClientMemory, Holding
from paceline_node.http.lazy_imports import load
from paceline_node.http.page import Asked, Branch, Page, PageMaker
from paceline_node.http.problems import problem, problem_of
from paceline_node.http.talk import Caller, Talk
from paceline_node.loop_turns import Turns
from paceline_node.net.accepting import AcceptGate, OpenConnections, contained, serve
from paceline_node.net.connection_limit import address_of, name_of
from paceline_node.net.tls_acceptor import ClearText, TlsAcceptor
from paceline_node.observe.rate_limited_log import RateLimitedLog
from paceline_node.security.origins import BrowserCheck
from paceline_node.security.principals import ANONYMOUS, Principal
from paceline_node.security.sessions import Login
from paceline_node.settings.limits import LimitSettings

_READ_BYTES = 16 * 1024
_UNBOUNDED = 1 << 62
_CLOSE_S = 1.0
_REQUEST_UNITS = 20
"""What it costs to answer a request with a page that is small, or not to be had."""
_GONE = (trio.BrokenResourceError, trio.ClosedResourceError)


CredentialsCheck = Callable[[str, str], Awaitable[Login]]
"""Whose credentials an Authorization header is, shown by an address that the second text stands
for. Raises AuthenticationFailed."""
Count = Callable[[str, HTTPStatus, float], None]
"""Told of each answer: the path asked for (clients choose it freely), the status, seconds."""
StreamHandler = Callable[[trio.abc.Stream, str, Login, Holding], Awaitable[None]]
"""Serves one WebSocket's frames as a byte stream, which it closes; the text names the client, the
log-in is who it is, and the holding what it is charged with."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """``head_s``: seconds for a request's head, also the idle time between requests.
    ``idle_s``: silence after which a connection is closed for a new one, if all places are
    taken. ``stall_s``: seconds for the rest of a WebSocket's message."""

    connections: int = 1024
    head_bytes: int = 16 * 1024
    head_s: float = 10.0
    send_s: float = 30.0
    message_bytes: int = LimitSettings().frame_bytes
    idle_s: float = float("inf")
    stall_s: float = LimitSettings().stall_ms / 1000


def _uncounted(path: str, status: HTTPStatus, seconds: float) -> None:
    """Nobody counts."""


class HttpServer:
    """``pages`` maps paths to what makes their answer, ``branches`` have those that begin alike,
    ``sockets`` and ``talks`` map paths to what serves a WebSocket there. A page raises the error
    that it is answered with, AuthorizationFailed for whom it is not (403); ``who`` says whose
    credentials are shown, and raises AuthenticationFailed (401)."""

    def __init__(
        self,
        pages: Mapping[str, PageMaker],
        *,
        sockets: Mapping[str, StreamHandler] | None = None,
        talks: Mapping[str, Talk] | None = None,
        browsers: BrowserCheck | None = None,
        limits: HttpLimits | None = None,
        count: Count = _uncounted,
        memory: ClientMemory | None = None,
        who: CredentialsCheck | None = None,
        branches: Sequence[Branch] = (),
        connections: Connections | None = None,
        turns: Turns | None = None,
    ) -> None:
        self._turns = turns or Turns()
        self._branches = tuple(branches)
        self._connections = connections or Connections()
        self._who = who
        self._memory = memory or ClientMemory(_UNBOUNDED)
        self._count = count
        self._pages = dict(pages)
        self._sockets = dict(sockets or {})
        self._talks = dict(talks or {})
        self._browsers = browsers or BrowserCheck()
        self._limits = limits or HttpLimits()
        self._log = structlog.get_logger(component="http")
        self._strangers = RateLimitedLog()

    async def run(
        self,
        listeners: Sequence[trio.abc.Listener[trio.abc.Stream]],
        *,
        gate: AcceptGate | None = None,
        opened: OpenConnections | None = None,
        door: TlsAcceptor | None = None,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve those whom the door lets in until cancelled; closes the listeners and all
        connections."""
        handle = self.handle if door is None else partial(self._enter, door)
        async with trio.open_nursery() as nursery:
            await nursery.start(
                partial(
                    serve,
                    listeners,
                    handle,
                    max_connections=self._limits.connections,
                    gate=gate,
                    opened=opened,
                    idle_s=self._limits.idle_s,
                    look=ClearText("http").look if door is None else None,
                )
            )
            task_status.started()

    async def _enter(self, door: TlsAcceptor, stream: trio.abc.Stream) -> None:
        entered: tuple[trio.abc.Stream, Principal] | None = None
        async with contained("http", "browser or program", self._strangers):
            entered = await door.enter(stream)
        if entered is not None:
            inner, principal = entered
            await self.handle(inner, principal, is_encrypted=inner is not stream)

    async def handle(
        self,
        stream: trio.abc.Stream,
        principal: Principal = ANONYMOUS,
        *,
        is_encrypted: bool = False,
    ) -> None:
        """Serve one connection to its end and close it. Never raises for what a client does."""
        connection = _Connection(
            stream, self._limits, principal, self._turns, is_encrypted=is_encrypted
        )
        async with contained("http", "browser or program", self._strangers):
            with self._connections.entered("http", name_of(stream)) as seen:
                seen.is_encrypted = is_encrypted
                connection.seen = seen
                await self._converse(stream, connection)

    async def _converse(self, stream: trio.abc.Stream, connection: _Connection) -> None:
        try:
            while await self._serve_one(connection):
                pass
        except _GONE:
            return
        except h11.RemoteProtocolError as error:
            status = HTTPStatus(error.error_status_hint)
            # A method of the error raised it, and its frame has it: a cycle with all that was read.
            error.__traceback__ = None
            await connection.say_last_word(problem(status, "not a valid HTTP request"))
        finally:
            with trio.move_on_after(_CLOSE_S, shield=True):
                await trio.aclose_forcefully(stream)

    async def _serve_one(self, connection: _Connection) -> bool:
        """Serve one request; False when the connection is over."""
        request = await connection.next_request()
        if request is None:
            return False
        arrived = trio.current_time()
        await self._turns.small(_REQUEST_UNITS)
        head = _Head.of(request)
        refusal = self._refusal(head)
        if refusal is not None:
            self._tell(head.path, refusal.status, arrived)
            await connection.say_last_word(refusal)
            return False
        if head.wants_websocket:
            await self._upgrade(connection, head)
            return False
        try:
            page = await self._page(head, await self._asker(head, connection))
        except AuthenticationFailed as error:
            page = problem_of(error)
        if page.etag and page.etag in head.has_etags:
            page = replace(page, body=b"", status=HTTPStatus.NOT_MODIFIED)
        self._tell(head.path, page.status, arrived)
        return await self._answer(connection, page, head.method)

    async def _asker(self, head: _Head, connection: _Connection) -> Principal:
        """Who asks for a page: whose token it is, else whom the certificate names. Raises
        AuthenticationFailed."""
        scheme = (head.authorization or "bearer").partition(" ")[0]
        if scheme.lower() != "bearer" and self._who is not None:
            raise AuthenticationFailed("expected Authorization: Bearer and a token of a user")
        login = await self._logged_in(head, connection)
        connection.is_of(login.principal)
        return replace(login.principal, host=host_of(connection.address))

    async def _logged_in(self, head: _Head, connection: _Connection) -> Login:
        """Whose credentials a request shows, else whom the certificate names. Raises
        AuthenticationFailed."""
        if head.authorization is None:
            return Login(connection.principal)
        return await self._shown(connection, head.authorization)

    async def _shown(self, connection: _Connection, authorization: str) -> Login:
        """Whose credentials they are. Raises AuthenticationFailed."""
        if self._who is None:
            return Login(connection.principal)
        host = host_of(connection.address)
        if not (connection.is_encrypted or _is_of_this_machine(host)):
            raise AuthenticationFailed("others would see the credentials: it needs TLS")
        return await self._who(authorization, source_of(host))

    async def _answer(self, connection: _Connection, page: Page, method: str) -> bool:
        """Send a page; it is charged to the client until it is taken. False when the connection is
        over."""
        if len(page.body) <= FREE_BYTES:
            return await connection.answer(page, method)
        with (
            trio.CancelScope() as scope,
            self._memory.holding("http", connection.address, scope.cancel) as held,
        ):
            held.change(len(page.body))
            return await connection.answer(page, method)
        return False

    def _refusal(self, head: _Head) -> Page | None:
        if not self._browsers.allows_host(head.host):
            text = f"host {head.host!r} is not this node"
            hint = "http.allowed_hosts names others that are"
            return problem(HTTPStatus.MISDIRECTED_REQUEST, text, hint)
        if not self._browsers.allows_origin(head.origin, host=head.host):
            text = f"origin {head.origin!r} is not allowed here"
            hint = "http.allowed_origins names others that are"
            return problem(HTTPStatus.FORBIDDEN, text, hint)
        if head.has_body:
            return problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "requests have no body here")
        if head.wants_websocket and not head.is_ascii:
            return problem(HTTPStatus.BAD_REQUEST, "the headers of an upgrade must be ASCII")
        return None

    async def _page(self, head: _Head, principal: Principal) -> Page:
        if head.path in self._sockets or head.path in self._talks:
            return problem(HTTPStatus.UPGRADE_REQUIRED, "this path speaks WebSocket")
        make = self._maker(head)
        if make is None:
            return problem(HTTPStatus.NOT_FOUND, f"no page {head.path}")
        if head.method not in ("GET", "HEAD"):
            return problem(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are served")
        try:
            return await make(principal)
        except PacelineError as error:
            return problem_of(error)
        except Exception as error:  # noqa: BLE001  a page's bug must not end the server
            self._log.error("page failed", path=head.path, exc_info=error)
            text = f"this is a bug in paceline ({type(error).__name__})"
            return problem(HTTPStatus.INTERNAL_SERVER_ERROR, text, "the node's log says more")

    def _maker(self, head: _Head) -> PageMaker | None:
        branch = self._branch(head.path)
        if branch is None:
            return self._pages.get(head.path)
        return partial(branch.page, Asked(head.path, head.query))

    def _branch(self, path: str) -> Branch | None:
        # Who leaves the last slash out is told which pages there are, too.
        return next((each for each in self._branches if f"{path}/".startswith(each.prefix)), None)

    def _tell(self, path: str, status: HTTPStatus, arrived: float) -> None:
        """Have an answer counted."""
        branch = self._branch(path)
        counted = path if branch is None else branch.counted_as(path)
        self._count(counted, status, trio.current_time() - arrived)

    async def _upgrade(self, connection: _Connection, head: _Head) -> None:
        handler, talk = self._sockets.get(head.path), self._talks.get(head.path)
        if (handler is None and talk is None) or head.method != "GET":
            page = problem(HTTPStatus.NOT_FOUND, f"no WebSocket at {head.path}")
            await connection.say_last_word(page)
            return
        try:
            login = await self._logged_in(head, connection)
        except AuthenticationFailed as error:
            await connection.say_last_word(problem_of(error))
            return
        connection.is_of(login.principal)
        # Here, not above: a node without WebSocket clients does without trio-websocket.
        await load("paceline_node.http.upgrade")
        from paceline_node.http.upgrade import ReplayStream, framed, serve_websocket, spoken

        address = connection.address
        name = f"{address}:websocket {head.path}"
        with (
            trio.CancelScope() as scope,
            self._memory.holding("http", address, scope.cancel) as held,
        ):
            if connection.seen is not None:
                connection.seen.memory = held
            if talk is not None:
                caller = Caller(login, host_of(address), partial(self._shown, connection), held)
                converse = spoken(talk, caller, self._limits.send_s)
            else:
                assert handler is not None
                converse = framed(handler, name, login, held)
            await serve_websocket(
                ReplayStream(*connection.from_request_on()),
                converse,
                held,
                max_message_bytes=self._limits.message_bytes,
                handshake_s=self._limits.head_s,
                stall_s=self._limits.stall_s,
            )


@dataclass(frozen=True, slots=True)
class _Head:
    """What matters of a request's head."""

    method: str
    path: str
    query: str
    host: str
    origin: str | None
    authorization: str | None
    has_body: bool
    wants_websocket: bool
    is_ascii: bool
    has_etags: frozenset[str]
    """Of what the client has kept of the page."""

    @classmethod
    def of(cls, request: h11.Request) -> _Head:
        headers: dict[bytes, bytes] = {}
        for name, value in request.headers:
            headers.setdefault(name, value)
        origin = headers.get(b"origin")
        authorization = headers.get(b"authorization")
        target = _target(request.target.decode("latin-1"))
        return cls(
            method=request.method.decode("ascii"),
            path=target.path,
            query=target.query,
            host=headers.get(b"host", b"").decode("latin-1"),
            origin=None if origin is None else origin.decode("latin-1"),
            authorization=None if authorization is None else authorization.decode("latin-1"),
            has_body=b"transfer-encoding" in headers
            or headers.get(b"content-length", b"0").strip() != b"0",
            wants_websocket=headers.get(b"upgrade", b"").lower() == b"websocket",
            is_ascii=all(value.isascii() for _, value in request.headers),
            has_etags=frozenset(
                each.strip().removeprefix("W/")
                for each in headers.get(b"if-none-match", b"").decode("latin-1").split(",")
            ),
        )


def _is_of_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _target(target: str) -> Asked:
    """What a request asks for; a target that is no URL is one that no page has."""
    try:
        found = urlsplit(target)
    except ValueError:
        return Asked(target, "")
    return Asked(found.path, found.query)


def _of_body(page: Page) -> list[tuple[str, str]]:
    """Headers of what is sent; of what the browser has already there is nothing to say."""
    if page.status is HTTPStatus.NOT_MODIFIED:
        return []
    return [("content-type", page.content_type), ("content-length", str(len(page.body)))]


class _Connection:
    """h11 over a stream, remembering the bytes of the current request for an upgrade."""

    def __init__(
        self,
        stream: trio.abc.Stream,
        limits: HttpLimits,
        principal: Principal,
        turns: Turns,
        *,
        is_encrypted: bool,
    ) -> None:
        self.principal = principal
        self.seen: Connection | None = None
        self.is_encrypted = is_encrypted
        self._stream = stream
        self._limits = limits
        self._turns = turns
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head_bytes)
        self._raw = bytearray()

    def is_of(self, principal: Principal) -> None:
        """Operators see it as this one's."""
        if self.seen is not None:
            self.seen.principal = str(principal)

    async def next_request(self) -> h11.Request | None:
        """The next request's head; None when the client went or was too slow."""
        with trio.move_on_after(self._limits.head_s):
            while True:
                event = self._http.next_event()
                if isinstance(event, h11.Request):
                    return event
                if event is not h11.NEED_DATA:
                    return None
                data = await self._stream.receive_some(_READ_BYTES)
                await self._turns.small()
                self._raw += data
                self._http.receive_data(bytes(data))
        return None

    async def answer(self, page: Page, method: str) -> bool:
        """Send a page; False when the connection cannot be used for another request."""
        self._http.next_event()  # the end of the bodiless request
        await self._send(page, method, more=True)
        if self._http.our_state is h11.MUST_CLOSE or self._http.their_state is not h11.DONE:
            return False
        rest, _ = self._http.trailing_data
        self._raw = bytearray(rest)
        self._http.start_next_cycle()
        return True

    async def say_last_word(self, page: Page) -> None:
        """Send a page if the protocol still allows one, and the client is there; the connection is
        to be closed then."""
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            with suppress(*_GONE):
                await self._send(page, "GET", more=False)

    @property
    def address(self) -> str:
        """Whose connection it is."""
        return address_of(self._stream)

    def from_request_on(self) -> tuple[bytes, trio.abc.Stream]:
        """What has been read from the current request's first byte on, and the stream behind it."""
        return bytes(self._raw), self._stream

    async def _send(self, page: Page, method: str, *, more: bool) -> None:
        headers = [
            *_of_body(page),
            *([("etag", page.etag)] if page.etag else []),
            ("cache-control", "no-cache" if page.etag else "no-store"),
            ("x-content-type-options", "nosniff"),
            *page.headers,
            *([("allow", "GET, HEAD")] if page.status is HTTPStatus.METHOD_NOT_ALLOWED else []),
        ]
        if not more:
            headers.append(("connection", "close"))
        if page.status is HTTPStatus.UNAUTHORIZED:
            headers.append(("www-authenticate", "Bearer"))
        if page.status is HTTPStatus.UPGRADE_REQUIRED:
            headers.append(("upgrade", "websocket"))
        response = h11.Response(
            status_code=page.status, headers=headers, reason=page.status.phrase.encode()
        )
        # A large body is not copied: it is the same for all who asked at a time.
        parts = [self._http.send(response) or b""]
        if method != "HEAD":
            parts.append(self._http.send(h11.Data(data=page.body)) or b"")
        parts.append(self._http.send(h11.EndOfMessage()) or b"")
        if len(page.body) <= FREE_BYTES:
            parts = [b"".join(parts)]
        with trio.move_on_after(self._limits.send_s) as scope:
            for part in parts:
                if part:
                    await self._stream.send_all(part)
        if scope.cancelled_caught:
            raise trio.BrokenResourceError("the client does not read")
