"""Which names a browser may reach this node by, and which pages may use it
(paceline_node/DESIGN 4.3).

A web page on any site can make its visitor's browser talk to a port on that visitor's machine or
network. Two checks stop it: the Host header must name this node (a page cannot choose it, but can
point its own host name at our address, so unknown names are refused), and a WebSocket's Origin
must be this node itself or a listed one. Programs that send no Origin are not browsers and pass.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit


class BrowserCheck:
    """``hosts`` are this node's names beside IP addresses and localhost; ``origins`` further
    web origins (``https://console.example:8443``)."""

    def __init__(self, *, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> None:
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)

    def allows_host(self, header: str) -> bool:
        """Whether a Host header names this node. IP addresses do: DNS cannot change them."""
        host = _host_of(header)
        if host is None:
            return False
        return host == "localhost" or host in self._hosts or _is_address(host)

    def allows_origin(self, origin: str | None, *, host: str) -> bool:
        """Whether a page from ``origin`` may use a port reached under the Host header ``host``."""
        if origin is None:
            return True
        origin = origin.lower()
        return origin in self._origins or origin in (
            f"http://{host.lower()}",
            f"https://{host.lower()}",
        )


def _host_of(header: str) -> str | None:
    """The host in a Host header, in lower case; None when it is malformed."""
    try:
        parts = urlsplit(f"//{header}")
        _ = parts.port  # raises for a port that is none
    except ValueError:
        return None
    if parts.netloc != header or parts.username is not None or not parts.hostname:
        return None
    return parts.hostname


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
