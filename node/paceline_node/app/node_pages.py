"""The pages of a broker: which listener of HTTP shows what."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus

import trio

from paceline.errors import AuthenticationFailed
from paceline.health import date_of
from paceline_node.app.cursus import health_checks
from paceline_node.app.cursus_metric_sources import collect_for_cursus
from paceline_node.app.tls import NodeTls
from paceline_node.client_connections import Connections
from paceline_node.client_memory import ClientMemory, Holding
from paceline_node.env import Host
from paceline_node.fair_line import ASKER
from paceline_node.http.api.pages import ApiPages, Route
from paceline_node.http.console.files import ConsoleFiles
from paceline_node.http.cursus_pages import health_pages
from paceline_node.http.page import PageMaker
from paceline_node.http.pages import Scrapes, metrics_page, standard_pages
from paceline_node.http.server import HttpLimits, HttpServer, StreamHandler
from paceline_node.http.stream.conversation import PATH as STREAM_PATH
from paceline_node.http.stream.conversation import Stream
from paceline_node.http.stream.feeds import Feeds
from paceline_node.http.talk import Talk
from paceline_node.listeners.cursus.listener import CursusListener
from paceline_node.listeners.native.listener import NativeService
from paceline_node.listeners.serving import Client, soon
from paceline_node.observe.metric_types import Family
from paceline_node.observe.metrics import OK, Metrics
from paceline_node.security.authentication import Authenticator
from paceline_node.security.origins import BrowserCheck
from paceline_node.security.principals import Principal, Proof
from paceline_node.security.sessions import Login, Session
from paceline_node.services.broker_services import BrokerServices
from paceline_node.settings import ListenerKind, Settings
from paceline_node.settings import Login as LoginRule

NATIVE_PATH = "/native"


def browsers_of(settings: Settings) -> BrowserCheck:
    """Which hosts and origins browsers may name."""
    http = settings.http
    # A browser may use the names that this node tells others.
    advertised = [item.advertised_host for item in settings.effective_listeners]
    return BrowserCheck(hosts=[*http.allowed_hosts, *advertised], origins=http.allowed_origins)


class NodePages:
    """Makes the servers."""

    def __init__(
        self,
        settings: Settings,
        host: Host,
        services: BrokerServices,
        metrics: Metrics,
        memory: ClientMemory,
        *,
        native: NativeService,
        cursus: CursusListener,
        tls: NodeTls,
        authenticator: Authenticator,
        connections: Connections,
        api: Sequence[Route],
    ) -> None:
        self._authenticator = authenticator
        self._connections = connections
        self._api = api
        self._tls = tls
        self._settings = settings
        self._run_blocking = host.run_blocking
        self._services = services
        self._metrics = metrics
        self._memory = memory
        self._native = native
        self._cursus = cursus
        self._http = self._make_http()

    def server(self, kind: ListenerKind) -> HttpServer | None:
        """The server of a listener's pages; None where it has none."""
        match kind:
            case ListenerKind.HTTP:
                return self._http
            case ListenerKind.CURSUS_HEALTH:
                return self._server(kind, health_pages(self._cursus_checks, self._serves()))
            case ListenerKind.CURSUS_METRICS:
                scrapes = self._scrapes(self._collect_for_cursus)
                pages = {"/metrics": metrics_page(scrapes, self._services.status.permit)}
                return self._server(kind, pages)
            case _:
                return None

    def _make_http(self) -> HttpServer:
        found = [each for each in self._settings.listeners if each.kind is ListenerKind.HTTP]
        is_encrypted = any(each.tls and not each.plain_too for each in found)
        must_log_in = any(each.login is LoginRule.REQUIRED for each in found)

        async def native_over_websocket(
            stream: trio.abc.Stream, name: str, login: Login, memory: Holding
        ) -> None:
            with trio.move_on_after(login.lifetime_ms / 1000 or float("inf")) as scope:
                end = soon(scope)
                connection = self._connections.find(ASKER.get().connection)
                client = Client(
                    name,
                    is_loopback=False,
                    principal=login.principal,
                    memory=memory,
                    is_encrypted=is_encrypted if connection is None else connection.is_encrypted,
                    connection=connection,
                    must_log_in=must_log_in,
                    end=end,
                    quotas=self._services.client_quotas,
                    turns=self._services.turns,
                )
                try:
                    session = self._session(login, end)
                except AuthenticationFailed:
                    return  # what it showed was taken away meanwhile
                try:
                    await self._native.serve(stream, client)
                finally:
                    self._authenticator.sessions.leave(session)

        scrapes = self._scrapes(self._metrics.collect)
        status = self._services.status
        wanted = self._settings.http

        def permit(principal: Principal) -> None:
            """An open cluster has no rules to ask: there a log-in is what there is."""
            is_known = principal.proof is not Proof.NONE
            if must_log_in and not is_known and not self._services.acls.is_guarded:
                raise AuthenticationFailed("log in: show a token, or a certificate")
            status.permit(principal)

        pages = standard_pages(
            scrapes,
            status.checks,
            permit,
            self._memory,
            self._certificates,
            serves=self._serves(),
            open_metrics=wanted.open_metrics,
        )
        api = ApiPages(self._api, self._services.turns, self._run_blocking, must_log_in=must_log_in)
        console = ConsoleFiles(self._run_blocking)
        stream = Stream(Feeds(api.document, self._services.turns), self._serving, self._about)
        return self._server(
            ListenerKind.HTTP,
            {"/": console.index, **pages},
            {NATIVE_PATH: native_over_websocket},
            {STREAM_PATH: stream.serve},
            (api, console),
        )

    @contextmanager
    def _serving(self, login: Login) -> Iterator[None]:
        """Around what is served to somebody. Raises AuthenticationFailed."""
        with trio.move_on_after(login.lifetime_ms / 1000 or float("inf")) as scope:
            session = self._session(login, soon(scope))
            try:
                yield
            finally:
                self._authenticator.sessions.leave(session)

    def _about(self) -> dict[str, object]:
        """What the console shows of this node at its head."""
        return {"node": self._services.status.node_id, "software": self._services.status.software}

    def _session(self, login: Login, end: Callable[[], None]) -> Session | None:
        """Of a client whose upgrade showed credentials. Raises AuthenticationFailed."""
        if login.principal.proof not in (Proof.PASSWORD, Proof.TOKEN, Proof.JWT):
            return None
        return self._authenticator.sessions.enter(login, end)

    def _certificates(self) -> dict[str, object]:
        """What /ready says of them; nothing where none is used."""
        if not self._tls.is_used:
            return {}
        until = {setting: date_of(ends) for setting, ends in self._tls.expiries.items()}
        return {"tls": {"until": until, "refused": self._tls.refused}}

    def _scrapes(self, collect: Callable[[], Iterable[Family]]) -> Scrapes:
        return Scrapes(collect, self._services.turns, self._run_blocking)

    def _server(
        self,
        kind: ListenerKind,
        pages: Mapping[str, PageMaker],
        sockets: Mapping[str, StreamHandler] | None = None,
        talks: Mapping[str, Talk] | None = None,
        branches: Sequence[ApiPages | ConsoleFiles] = (),
    ) -> HttpServer:
        """A server of a few pages, all counted."""
        known = (name for branch in branches for name in branch.templates)
        paths = (*pages, *(sockets or {}), *(talks or {}), *known)
        names = {path: path.removeprefix("/") or "root" for path in paths}
        meters = self._metrics.requests_by(kind.value, names)

        def count(path: str, status: HTTPStatus, seconds: float) -> None:
            code = OK if status < HTTPStatus.BAD_REQUEST else status.name.lower()
            meters[path].done(code, seconds)

        return HttpServer(
            pages,
            sockets=sockets,
            talks=talks,
            browsers=browsers_of(self._settings),
            limits=self._limits(),
            count=count,
            memory=self._memory,
            who=self._authenticator.header,
            branches=branches,
            connections=self._connections,
            turns=self._services.turns,
        )

    def _serves(self) -> Callable[[], bool] | None:
        """Whether this node is ready, for those who may not see why; None: it is not for them."""
        status = self._services.status
        return (lambda: not status.reasons()) if self._settings.http.open_ready else None

    def _limits(self) -> HttpLimits:
        return HttpLimits(
            connections=self._settings.limits.connections,
            head_s=self._settings.http.request_timeout_ms / 1000,
            message_bytes=self._settings.limits.frame_bytes,
            idle_s=self._settings.limits.idle_ms / 1000,
            stall_s=self._settings.limits.stall_ms / 1000,
        )

    def _cursus_checks(self, principal: Principal) -> Mapping[str, str]:
        self._services.status.permit(principal)
        return health_checks(self._services)

    def _collect_for_cursus(self) -> Iterator[Family]:
        return collect_for_cursus(self._metrics, self._services, lambda: self._cursus.stream_count)
