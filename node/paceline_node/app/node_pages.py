"""The pages of a broker: which listener of HTTP shows what."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from paceline_node.http.api.pages import ApiPages, Route
from paceline_node.http.cursus_pages import health_pages
from paceline_node.http.page import PageMaker
from paceline_node.http.pages import Scrapes, metrics_page, standard_pages
from paceline_node.http.server import HttpLimits, HttpServer, StreamHandler
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
                return self._server(kind, health_pages(self._cursus_checks))
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
                client = Client(
                    name,
                    is_loopback=False,
                    principal=login.principal,
                    memory=memory,
                    is_encrypted=is_encrypted,
                    must_log_in=must_log_in,
                    end=soon(scope),
                )
                try:
                    session = self._session(login, client)
                except AuthenticationFailed:
                    return  # what it showed was taken away meanwhile
                try:
                    await self._native.serve(stream, client)
                finally:
                    self._authenticator.sessions.leave(session)

        scrapes = self._scrapes(self._metrics.collect)
        status = self._services.status
        pages = standard_pages(
            scrapes, status.checks, status.permit, self._memory, self._certificates
        )
        api = ApiPages(self._api, self._services.turns, self._run_blocking, must_log_in=must_log_in)
        return self._server(ListenerKind.HTTP, pages, {NATIVE_PATH: native_over_websocket}, api)

    def _session(self, login: Login, client: Client) -> Session | None:
        """Of a client whose upgrade showed credentials. Raises AuthenticationFailed."""
        if login.principal.proof not in (Proof.PASSWORD, Proof.TOKEN, Proof.JWT):
            return None
        return self._authenticator.sessions.enter(login, client.end)

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
        api: ApiPages | None = None,
    ) -> HttpServer:
        """A server of a few pages, all counted."""
        paths = (*pages, *(sockets or {}), *(api.templates if api else ()))
        names = {path: path.removeprefix("/") or "root" for path in paths}
        meters = self._metrics.requests_by(kind.value, names)

        def count(path: str, status: HTTPStatus, seconds: float) -> None:
            code = OK if status < HTTPStatus.BAD_REQUEST else status.name.lower()
            meters[path].done(code, seconds)

        return HttpServer(
            pages,
            sockets=sockets,
            browsers=browsers_of(self._settings),
            limits=self._limits(),
            count=count,
            memory=self._memory,
            who=self._authenticator.header,
            branches=() if api is None else (api,),
            connections=self._connections,
        )

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
