"""TLS of the client: which files it goes by. What is done with them:
``client/tls_connection.py``."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlencode

from paceline.errors import ConfigurationError
from paceline.given_fields import lacking
from paceline.values import dataclass

VARIABLES = {
    "authority": "PACELINE_CLIENT_TLS_AUTHORITY",
    "certificate": "PACELINE_CLIENT_TLS_CERTIFICATE",
    "key": "PACELINE_CLIENT_TLS_KEY",
    "server_name": "PACELINE_CLIENT_TLS_SERVER_NAME",
}
"""Field -> the environment variable that says the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """Files in PEM form. ``authority`` signs the certificates of nodes; empty: whom this machine
    trusts. ``certificate`` and ``key`` are what the client shows; empty: nothing. ``server_name``
    is what certificates of nodes name; empty: the host of each address."""

    authority: str = ""
    certificate: str = ""
    key: str = ""
    server_name: str = ""

    def __post_init__(self) -> None:
        if bool(self.certificate) is not bool(self.key):
            pair = ("key", "certificate") if self.certificate else ("certificate", "key")
            raise ConfigurationError(lacking("TLS", *pair, "ClientTls", VARIABLES))

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None) -> ClientTls | None:
        """What the variables of :data:`VARIABLES` say; None where none is set. Raises
        ConfigurationError."""
        env = os.environ if environ is None else environ
        given = {field: env[name] for field, name in VARIABLES.items() if env.get(name)}
        return cls(**given) if given else None

    @classmethod
    def from_query(cls, query: str) -> ClientTls:
        """From what stands behind the ``?`` of an address, ``authority=FILE&server_name=NAME``.
        Raises ConfigurationError."""
        given = dict(parse_qsl(query, keep_blank_values=True))
        unknown = given.keys() - VARIABLES.keys()
        if unknown:
            raise ConfigurationError(f"TLS: {min(unknown)!r} is not one of {', '.join(VARIABLES)}")
        return cls(**given)

    def query(self) -> str:
        """What :meth:`from_query` reads."""
        return urlencode(self.given())

    def given(self) -> dict[str, str]:
        """The fields that are not empty."""
        fields = {field: str(getattr(self, field)) for field in VARIABLES}
        return {field: value for field, value in fields.items() if value}

    def context(self) -> ssl.SSLContext:
        """For connections to nodes. Raises ConfigurationError naming the file."""
        try:
            context = ssl.create_default_context(cafile=self.authority or None)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(f"TLS: authority {self.authority}: {error}") from error
        if self.certificate:
            try:
                context.load_cert_chain(self.certificate, self.key, password=_no_passphrase)
            except (OSError, ssl.SSLError) as error:
                raise ConfigurationError(
                    f"TLS: certificate {self.certificate}, key {self.key}: {error}"
                ) from error
        return context


def _no_passphrase() -> str:
    raise ssl.SSLError("the key has a passphrase")  # OpenSSL would ask for it at the terminal
