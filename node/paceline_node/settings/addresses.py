"""Addresses in settings: listeners as URLs, bootstrap peers.

A listener is where this node accepts one protocol::

    scheme[+tls]://HOST:PORT[?advertised=HOST[:PORT]][&tls=optional][&client_auth=CHOICE]
        [&login=CHOICE]

The bind address and the advertised one (what other nodes and clients are told) are separate
(DESIGN 3.3). Port 0 takes a free port; the advertised port then follows it. Behind
``+tls``, ``tls=optional`` lets clients choose: some of Cursus's never encrypt. ``client_auth`` is
``tls.client_auth`` of this listener alone: none, optional or required. ``login``: optional or
required.
"""

from __future__ import annotations

import enum
import ipaddress
from importlib.util import find_spec
from urllib.parse import parse_qsl, urlsplit

from paceline.types import KAFKA_ENDPOINT
from paceline.values import dataclass

PORT_STEP = 1000
"""Node i's default ports are node 0's plus this times i (DESIGN 3.3)."""


class ListenerKind(enum.Enum):
    """Protocols that this version serves; the value is the URL's scheme."""

    V1 = "v1"
    NATIVE = "native"
    PEER = "peer"
    HTTP = "http"
    SEGMENT = "segment"
    CURSUS = "cursus"
    CURSUS_HEALTH = "cursus-health"
    CURSUS_METRICS = "cursus-metrics"
    KAFKA = "kafka"
    PRAVEGA = "pravega"

    @property
    def default_port(self) -> int:
        """Node 0's port when nothing is configured."""
        return _DEFAULT_PORTS[self]

    @property
    def endpoint(self) -> str:
        """What nodes register its address as (DESIGN 3.3)."""
        return _ENDPOINTS.get(self.value, self.value)


_DEFAULT_PORTS = {
    ListenerKind.V1: 9092,
    ListenerKind.NATIVE: 7400,
    ListenerKind.PEER: 7401,
    ListenerKind.HTTP: 7480,
    ListenerKind.SEGMENT: 12345,
    ListenerKind.CURSUS: 9000,
    ListenerKind.CURSUS_HEALTH: 9080,
    ListenerKind.CURSUS_METRICS: 9100,
    ListenerKind.KAFKA: 9192,
    ListenerKind.PRAVEGA: 9090,
}


class ClientAuth(enum.Enum):
    """Whether clients of an encrypted listener are asked for a certificate."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRED = "required"


class Login(enum.Enum):
    """Whether clients of a listener have to prove who they are; a certificate does it, too."""

    OPTIONAL = "optional"
    REQUIRED = "required"


LOGIN_KINDS = (
    ListenerKind.KAFKA,
    ListenerKind.NATIVE,
    ListenerKind.CURSUS,
    ListenerKind.HTTP,
    ListenerKind.SEGMENT,
    ListenerKind.PRAVEGA,
)
"""Whose protocol lets clients log in; of http it is the native one over WebSocket, of segment that
of Pravega."""


def has_http2() -> bool:
    """Whether the package is there that the pravega listener needs (extra ``segment``)."""
    return find_spec("h2") is not None


DEFAULT_KINDS = (
    ListenerKind.V1,
    ListenerKind.NATIVE,
    ListenerKind.PEER,
    ListenerKind.HTTP,
    ListenerKind.SEGMENT,
    ListenerKind.CURSUS,
    ListenerKind.KAFKA,
    *((ListenerKind.PRAVEGA,) if has_http2() else ()),
)
"""What a node serves when nothing is configured."""

_OPTIONS = frozenset({"advertised", "tls", "client_auth", "login"})
_ALIASES = {"coordinator": "kafka"}
"""Older schemes, which files of settings may still have."""
_ENDPOINTS = {"kafka": KAFKA_ENDPOINT}
_EVERYWHERE = frozenset({"0.0.0.0", "::", ""})  # noqa: S104  recognised, not bound


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    if host.casefold() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def kind_of_endpoint(endpoint: str) -> str:
    """What people call the listener whose address is registered as ``endpoint``."""
    return _ALIASES.get(endpoint, endpoint)


@dataclass(frozen=True, slots=True)
class Listener:
    """One accepted protocol. ``advertised_port`` None means the port that was bound; ``tls`` that
    its connections are encrypted with the certificate of ``tls.certificate``, those that are not
    excepted where ``plain_too``; ``client_auth`` None that ``tls.client_auth`` holds; ``login``
    whether clients have to prove who they are."""

    kind: ListenerKind
    host: str
    port: int
    advertised_host: str
    advertised_port: int | None
    tls: bool = False
    plain_too: bool = False
    client_auth: ClientAuth | None = None
    login: Login = Login.OPTIONAL

    @classmethod
    def parse(cls, url: str) -> Listener:
        """Read a listener URL. Raises ValueError saying what is wrong with it."""
        parts = urlsplit(url)
        kind, tls = _kind(url, parts.scheme)
        if parts.path not in ("", "/") or parts.fragment or parts.username is not None:
            raise ValueError(f"{url!r}: expected {kind.value}://HOST:PORT[?advertised=HOST:PORT]")
        host, port = _host_port(url, parts.netloc)
        options = _options(url, parts.query)
        plain_too, auth = _tls_options(url, kind, options, tls=tls)
        login = _login(url, kind, options)
        advertised = _advertised(url, options)
        if advertised is None:
            if host in _EVERYWHERE:
                raise ValueError(
                    f"{url!r} listens on every address: say which one to tell others, "
                    "with ?advertised=HOST:PORT"
                )
            advertised = host, None
        return cls(
            kind,
            host,
            port,
            *advertised,
            tls=tls,
            plain_too=plain_too,
            client_auth=auth,
            login=login,
        )

    @classmethod
    def default(cls, kind: ListenerKind, node_id: int) -> Listener:
        """The loopback listener of a node without configuration."""
        return cls(kind, "127.0.0.1", kind.default_port + PORT_STEP * node_id, "127.0.0.1", None)

    def __str__(self) -> str:
        scheme = f"{self.kind.value}+tls" if self.tls else self.kind.value
        url = f"{scheme}://{_joined(self.host, self.port)}"
        options = []
        if (self.advertised_host, self.advertised_port) != (self.host, None):
            host, port = self.advertised_host, self.advertised_port
            options.append(f"advertised={host if port is None else _joined(host, port)}")
        if self.plain_too:
            options.append("tls=optional")
        if self.client_auth is not None:
            options.append(f"client_auth={self.client_auth.value}")
        if self.login is not Login.OPTIONAL:
            options.append(f"login={self.login.value}")
        return f"{url}?{'&'.join(options)}" if options else url

    def advertised(self, bound_port: int) -> tuple[str, int]:
        """What to tell others, given the port that was bound."""
        return self.advertised_host, self.advertised_port or bound_port


@dataclass(frozen=True, slots=True)
class BootstrapPeer:
    """A node to ask for the cluster; its id is checked when it is given (``0@host:7401``)."""

    host: str
    port: int
    node_id: int | None = None

    @classmethod
    def parse(cls, text: str) -> BootstrapPeer:
        """Read ``[ID@]HOST:PORT``. Raises ValueError."""
        node, at, address = text.rpartition("@")
        if at and not (node.isdecimal() and node.isascii()):
            raise ValueError(f"{text!r}: expected [ID@]HOST:PORT")
        host, port = _host_port(text, address)
        if not host or port == 0:
            raise ValueError(f"{text!r}: expected [ID@]HOST:PORT")
        return cls(host, port, int(node) if at else None)

    def __str__(self) -> str:
        prefix = "" if self.node_id is None else f"{self.node_id}@"
        return prefix + _joined(self.host, self.port)


def _kind(url: str, scheme: str) -> tuple[ListenerKind, bool]:
    """The protocol, and whether it is spoken over TLS."""
    plain, plus, extra = scheme.partition("+")
    plain = _ALIASES.get(plain, plain)
    known = {kind.value for kind in ListenerKind}
    tls = extra == "tls"
    if plain not in known or (plus and not tls):
        raise ValueError(f"{url!r}: unknown scheme, expected {', '.join(sorted(known))}")
    return ListenerKind(plain), tls


def _host_port(text: str, address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not (port.isdecimal() and port.isascii()) or int(port) > 65535:
        raise ValueError(f"{text!r}: expected HOST:PORT with a port of 0 to 65535")
    if host.startswith("[") and host.endswith("]"):
        return host[1:-1], int(port)
    if ":" in host:
        raise ValueError(f"{text!r}: write an IPv6 address in brackets")
    return host, int(port)


def _options(url: str, query: str) -> dict[str, str]:
    found = parse_qsl(query, keep_blank_values=True)
    options = dict(found)
    if len(options) < len(found) or not options.keys() <= _OPTIONS or not all(options.values()):
        raise ValueError(
            f"{url!r}: the options are advertised=HOST[:PORT], tls=optional, client_auth=CHOICE "
            "and login=CHOICE"
        )
    return options


def _tls_options(
    url: str, kind: ListenerKind, options: dict[str, str], *, tls: bool
) -> tuple[bool, ClientAuth | None]:
    """Whether clients may do without TLS, and whether they are asked for certificates."""
    plain_too = "tls" in options
    if plain_too and (options["tls"] != "optional" or not tls):
        raise ValueError(f"{url!r}: expected tls=optional, behind a scheme that ends in +tls")
    asked = options.get("client_auth")
    choices = {each.value: each for each in ClientAuth}
    if asked is not None and (asked not in choices or not tls):
        raise ValueError(
            f"{url!r}: expected client_auth={'|'.join(choices)}, behind a scheme that ends in +tls"
        )
    auth = None if asked is None else choices[asked]
    if kind is ListenerKind.PEER and (plain_too or auth is not None):
        raise ValueError(f"{url!r}: behind peer+tls nodes all encrypt, and all show certificates")
    if plain_too and auth is ClientAuth.REQUIRED:
        raise ValueError(f"{url!r}: who need not encrypt shows no certificate")
    return plain_too, auth


def _login(url: str, kind: ListenerKind, options: dict[str, str]) -> Login:
    """Whether clients have to log in."""
    asked = options.get("login")
    if asked is None:
        return Login.OPTIONAL
    choices = {each.value: each for each in Login}
    if asked not in choices or kind not in LOGIN_KINDS:
        kinds = " or ".join(each.value for each in LOGIN_KINDS)
        raise ValueError(f"{url!r}: expected login={'|'.join(choices)}, for {kinds}")
    return choices[asked]


def _advertised(url: str, options: dict[str, str]) -> tuple[str, int | None] | None:
    value = options.get("advertised")
    if value is None:
        return None
    if ":" not in value:
        return value, None
    host, port = _host_port(url, value)
    if not host or port == 0 or host in _EVERYWHERE:
        raise ValueError(f"{url!r}: nobody can connect to the advertised address {value!r}")
    return host, port


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
