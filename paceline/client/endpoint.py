"""Where a broker can be reached, as users write it: ``host:port`` or ``ws://host:port/native``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self
from urllib.parse import urlsplit

from paceline.errors import ConfigurationError
from paceline.values import dataclass
from paceline.wire.native.data import BrokerInfo

DEFAULT_PORT = 7400
WEBSOCKET_PATH = "/native"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A native listener. ``path`` is None for plain TCP, the resource of a WebSocket otherwise."""

    host: str
    port: int
    path: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """From ``host``, ``host:port``, ``[v6]:port`` or ``ws://host:port/path``.

        Raises ConfigurationError naming the text.
        """
        has_scheme = "://" in text
        try:
            parts = urlsplit(text if has_scheme else f"tcp://{text}")
            port = parts.port
        except ValueError as error:
            raise ConfigurationError(f"bootstrap address {text!r}: {error}") from None
        if parts.scheme not in ("tcp", "ws"):
            raise ConfigurationError(
                f"bootstrap address {text!r}: scheme {parts.scheme!r}, expected tcp or ws"
            )
        if not parts.hostname or (parts.scheme == "tcp" and parts.path):
            raise ConfigurationError(f"bootstrap address {text!r}: expected host:port")
        if parts.scheme == "ws":
            path = parts.path if parts.path not in ("", "/") else WEBSOCKET_PATH
            return cls(parts.hostname, 80 if port is None else port, path)
        return cls(parts.hostname, DEFAULT_PORT if port is None else port)

    def for_broker(self, broker: BrokerInfo) -> Endpoint | None:
        """The endpoint of ``broker`` that is reached in the same way as this one, or None."""
        wanted = "native" if self.path is None else "http"
        for address in broker.addresses:
            if address.name == wanted:
                return Endpoint(address.host, address.port, self.path)
        return None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        if self.path is None:
            return f"{host}:{self.port}"
        return f"ws://{host}:{self.port}{self.path}"


def parse_bootstrap(bootstrap: str | Endpoint | Iterable[str | Endpoint]) -> tuple[Endpoint, ...]:
    """Endpoints of one address, a comma-separated list, or an iterable of addresses.

    Raises ConfigurationError for a bad or an empty one, and when TCP and WebSocket are mixed: the
    first address decides how brokers found later are reached.
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
    return endpoints
