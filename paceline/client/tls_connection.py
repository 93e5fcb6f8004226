"""Connections inside TLS."""

from __future__ import annotations

import ssl

import trio

from paceline.client.endpoint import Endpoint
from paceline.client.transport import Dial, refusal_of
from paceline.errors import AuthenticationFailed, RemoteProtocolError
from paceline.tls import ClientTls

_NO_TLS = frozenset(
    {"HTTP_REQUEST", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL", "WRONG_VERSION_NUMBER"}
)


def over_tls(dial: Dial, tls: ClientTls) -> Dial:
    """``dial``, and TLS inside what it opens, which raises, beside OSError, AuthenticationFailed
    where the node is not trusted and RemoteProtocolError where it does not speak TLS. Raises
    ConfigurationError."""
    context = tls.context()

    async def encrypted(endpoint: Endpoint) -> trio.abc.Stream:
        plain = await dial(endpoint)
        stream = trio.SSLStream(
            plain,
            context,
            server_hostname=tls.server_name or endpoint.host,
            https_compatible=True,
        )
        try:
            await stream.do_handshake()
        except trio.BrokenResourceError as error:
            await trio.aclose_forcefully(plain)
            raise _failure(endpoint, error.__cause__) from error
        except BaseException:
            await trio.aclose_forcefully(plain)
            raise
        return stream

    return encrypted


def dial_for(endpoint: Endpoint, tls: ClientTls | None, dial: Dial) -> Dial:
    """How the nodes of a cluster are reached whose first address is ``endpoint``. Raises
    ConfigurationError."""
    named = None if endpoint.tls == ClientTls() else endpoint.tls
    wanted = tls or named or ClientTls.from_environ() or endpoint.tls
    return dial if wanted is None else over_tls(dial, wanted)


def _failure(endpoint: Endpoint, cause: BaseException | None) -> Exception:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return AuthenticationFailed(
            f"{endpoint}: the node's certificate is not trusted: {cause.verify_message}"
        )
    if isinstance(cause, ssl.SSLError) and cause.reason in _NO_TLS:
        return RemoteProtocolError(f"{endpoint}: what listens there does not speak TLS")
    refusal = refusal_of(cause)
    if refusal is not None:
        return AuthenticationFailed(f"{endpoint}: {refusal}")
    if isinstance(cause, ssl.SSLError):
        return ConnectionAbortedError(f"the TLS handshake failed: {cause.reason or cause}")
    return ConnectionAbortedError("closed within the TLS handshake: it may not speak TLS")
