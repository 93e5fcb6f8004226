"""This node's certificates: what listeners and links offer now, and until when it is good."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import structlog

from paceline.errors import ConfigurationError
from paceline.health import date_of
from paceline.values import dataclass
from paceline_node.env import Env
from paceline_node.net.tls_acceptor import TlsAcceptor
from paceline_node.net.tls_handshake import Handshakes
from paceline_node.peers.channel import PeerTls
from paceline_node.security.names import Rule, parse_rules, principal_of
from paceline_node.security.principals import Principal
from paceline_node.security.tls import (
    KeyFiles,
    PeerContexts,
    ask_for_certificates,
    expiry,
    peer_contexts,
    server_context,
)
from paceline_node.settings import ClientAuth, Listener, ListenerKind, LiveSettings, Settings

_ALPN = {ListenerKind.PRAVEGA: ("h2",)}
"""What listeners agree on inside the TLS handshake; clients of gRPC go away without it."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """All that was read from files at one time. ``expiries``: seconds since 1970, by the setting
    that names the file."""

    contexts: Mapping[tuple[Sequence[str], ClientAuth], ssl.SSLContext]
    peers: PeerContexts | None
    rules: tuple[Rule, ...]
    expiries: Mapping[str, int]


class NodeTls:
    """Raises ConfigurationError for files that cannot be used: when it is made, not when a client
    comes."""

    def __init__(self, live: LiveSettings) -> None:
        self._live = live
        self._loaded = _load(live.current)
        self._refused = ""
        self._handshakes = Handshakes(timeout_s=live.current.tls.handshake_ms / 1000)
        self.peers = None if self._loaded.peers is None else PeerTls(self._peer_contexts)
        """How this node and others reach each other; None where they do not encrypt."""

    def door(self, listener: Listener) -> TlsAcceptor | None:
        """What connections of a client listener go through; None where they are not encrypted."""
        if not listener.tls:
            return None
        auth = self._live.current.client_auth(listener)
        key = (_ALPN.get(listener.kind, ()), auth)
        return TlsAcceptor(
            listener.kind.value,
            lambda: self._loaded.contexts[key],
            self._handshakes,
            self._principal,
            plain_too=listener.plain_too,
        )

    @property
    def is_used(self) -> bool:
        """Whether any listener is encrypted."""
        return bool(self._loaded.expiries)

    @property
    def expiries(self) -> Mapping[str, int]:
        """Until when what is in force is good: seconds since 1970, by setting."""
        return self._loaded.expiries

    @property
    def refused(self) -> str:
        """Why the files that the settings name now are not in force; empty where they are."""
        return self._refused

    async def reload(self, env: Env) -> None:
        """Read the files again, and show the next connections what they hold. Where they cannot be
        used, all that was in force stays."""
        if not self.is_used:
            return
        log = structlog.get_logger(component="tls")
        settings = self._live.current
        try:
            loaded = await env.host.run_blocking(partial(_load, settings))
            _require_valid(loaded, env.host.wall_ms() / 1000)
        except ConfigurationError as error:
            self._refused = str(error)
            log.error("certificates not reloaded, the former ones stay", reason=str(error))
            return
        self._loaded, self._refused = loaded, ""
        told = {setting: date_of(ends) for setting, ends in loaded.expiries.items()}
        log.info("certificates reloaded", until=told)

    def _peer_contexts(self) -> PeerContexts:
        assert self._loaded.peers is not None, "listeners do not change while a node runs"
        return self._loaded.peers

    def _principal(self, certificate: Mapping[str, Any]) -> Principal:
        return principal_of(certificate, self._loaded.rules)


def _require_valid(loaded: Loaded, now: float) -> None:
    for setting, ends in loaded.expiries.items():
        if ends <= now:
            raise ConfigurationError(f"{setting} has expired on {date_of(ends)}")


def _load(settings: Settings) -> Loaded:
    """Read every file that ``settings`` names and needs. Raises ConfigurationError."""
    tls = settings.tls
    expiries: dict[str, int] = {}
    contexts: dict[tuple[Sequence[str], ClientAuth], ssl.SSLContext] = {}
    files = KeyFiles(tls.certificate, tls.key)
    for listener in settings.listeners:
        if listener.tls and listener.kind is not ListenerKind.PEER:
            auth = settings.client_auth(listener)
            key = (_ALPN.get(listener.kind, ()), auth)
            if key not in contexts:
                contexts[key] = _context(settings, files, *key)
            expiries["tls.certificate"] = expiry(tls.certificate)
            if auth is not ClientAuth.NONE:
                expiries["tls.client_authorities"] = expiry(tls.client_authorities)
    return Loaded(contexts, _peers(settings, expiries), parse_rules(tls.principal_rules), expiries)


def _peers(settings: Settings, expiries: dict[str, int]) -> PeerContexts | None:
    if not any(each.tls and each.kind is ListenerKind.PEER for each in settings.listeners):
        return None
    tls = settings.tls
    files = KeyFiles(tls.certificate, tls.key)
    shown = "tls.certificate"
    if tls.peer_certificate:
        files = KeyFiles(tls.peer_certificate, tls.peer_key, "peer_")
        shown = "tls.peer_certificate"
    made = peer_contexts(files, tls.peer_authority)
    expiries[shown] = expiry(files.certificate)
    expiries["tls.peer_authority"] = expiry(tls.peer_authority)
    return made


def _context(
    settings: Settings, files: KeyFiles, protocols: Sequence[str], auth: ClientAuth
) -> ssl.SSLContext:
    context = server_context(files, protocols)
    if auth is not ClientAuth.NONE:
        ask_for_certificates(
            context,
            settings.tls.client_authorities,
            "tls.client_authorities",
            required=auth is ClientAuth.REQUIRED,
        )
    return context
