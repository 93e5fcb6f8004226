"""Where a broker can be reached, as users write it: ``host:port`` or ``ws://host:port/native``;
inside TLS ``tls://host:port`` or ``wss://host:port/native``. Behind a ``?`` may stand who the
client is, ``username=NAME&password_file=FILE`` (:class:`ClientLogin`), and inside TLS
``authority=FILE`` and the other fields of :class:`ClientTls`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self
from urllib.parse import parse_qsl, urlencode, urlsplit

from paceline.errors import ConfigurationError
from paceline.login import VARIABLES as LOGIN_FIELDS
from paceline.login import ClientLogin
from paceline.tls import ClientTls
from paceline.values import dataclass
from paceline.wire.native.data import BrokerInfo

DEFAULT_PORT = 7400
WEBSOCKET_PATH = "/native"
_DEFAULT_PORTS = {"tcp": DEFAULT_PORT, "tls": DEFAULT_PORT, "ws": 80, "wss": 443}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A native listener. ``path`` is None for plain TCP, the resource of a WebSocket otherwise;
    ``tls`` is how it is encrypted, None if it is not, as far as the address says; ``login`` who
    the client is."""

    host: str
    port: int
    path: str | None = None
    tls: ClientTls | None = None
    login: ClientLogin | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """From ``host``, ``host:port``, ``[v6]:port`` or ``ws://host:port/path``, or with the
        schemes ``tls`` and ``wss``.

        Raises ConfigurationError naming the text.
        """
        has_scheme = "://" in text
        try:
            parts = urlsplit(text if has_scheme else f"tcp://{text}")
            port = parts.port
        except ValueError as error:
            raise ConfigurationError(f"bootstrap address {text!r}: {error}") from None
        if parts.scheme not in _DEFAULT_PORTS:
            raise ConfigurationError(
                f"bootstrap address {text!r}: scheme {parts.scheme!r}, expected tcp, tls, ws or wss"
            )
        is_websocket = parts.scheme in ("ws", "wss")
        if not parts.hostname or (parts.path and not is_websocket):
            raise ConfigurationError(f"bootstrap address {text!r}: expected host:port")
        path = None
        if is_websocket:
            path = parts.path if parts.path not in ("", "/") else WEBSOCKET_PATH
        number = _DEFAULT_PORTS[parts.scheme] if port is None else port
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        login = ClientLogin.of({key: options.pop(key) for key in LOGIN_FIELDS if key in options})
        if parts.scheme in ("tls", "wss"):
            tls = ClientTls.from_query(urlencode(options))
            return cls(parts.hostname, number, path, tls, login)
        if options:
            raise ConfigurationError(
                f"bootstrap address {text!r}: options other than those of a log-in are of tls://"
            )
        return cls(parts.hostname, number, path, None, login)

    def for_broker(self, broker: BrokerInfo) -> Endpoint | None:
        """The endpoint of ``broker`` that is reached in the same way as this one, or None."""
        wanted = "native" if self.path is None else "http"
        for address in broker.addresses:
            if address.name == wanted:
                return Endpoint(address.host, address.port, self.path, self.tls, self.login)
        return None

    @property
    def url(self) -> str:
        """What :meth:`parse` makes this endpoint of, files of TLS and all."""
        options = {} if self.tls is None else self.tls.given()
        options |= {} if self.login is None else self.login.given()
        if not options:
            return str(self)
        scheme = "" if self.tls is not None or self.path is not None else "tcp://"
        return f"{scheme}{self}?{urlencode(options)}"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        if self.path is None:
            return f"tls://{host}:{self.port}" if self.tls else f"{host}:{self.port}"
        return f"{'wss' if self.tls else 'ws'}://{host}:{self.port}{self.path}"


def parse_bootstrap(bootstrap: str | Endpoint | Iterable[str | Endpoint]) -> tuple[Endpoint, ...]:
    """Endpoints of one address, a comma-separated list, or an iterable of addresses.

    Raises ConfigurationError for a bad or an empty one, and when TCP and WebSocket are mixed, or
    TLS and none: the first address decides how brokers found later are reached.
    """
    if isinstance(bootstrap, Endpoint):
        return (bootstrap,)
    items = bootstrap.split(",") if isinstance(bootstrap, str) else bootstrap
    endpoints = tuple(
        item if isinstance(item, Endpoint) else Endpoint.parse(item.strip()) for item in items
    )
    if not endpoints:
        raise ConfigurationError("bootstrap: no address given")
    if len({endpoint.path is None for endpoint in endpoints}) > 1:
        raise ConfigurationError("bootstrap: addresses mix tcp and ws")
    if len({endpoint.tls is None for endpoint in endpoints}) > 1:
        raise ConfigurationError("bootstrap: addresses mix TLS and none")
    return endpoints
