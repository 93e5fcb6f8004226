"""A client of the controller's calls as thin as can be: HTTP/2 in clear text or inside TLS."""

from __future__ import annotations

import ssl
from typing import TypeVar

import trio
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived, StreamEnded, TrailersReceived

from paceline.wire.pravega.controller import SERVICE
from paceline.wire.pravega.protobuf import ProtoMessage
from tests.integration.node.machines import open_stream
from tests.integration.node.nodes import HANG_S

M = TypeVar("M", bound=ProtoMessage)


class CallRefused(Exception):
    """``status`` as gRPC numbers it."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


class ControllerClient:
    """One connection, one call after the other; for ``async with``."""

    def __init__(
        self,
        address: tuple[str, int],
        context: ssl.SSLContext | None = None,
        authorization: str = "",
    ) -> None:
        self._authorization = authorization
        self._address = address
        self._context = context

    async def __aenter__(self) -> ControllerClient:
        self._stream: trio.abc.Stream = await open_stream(self._address)
        self.protocol: str | None = None
        if self._context is not None:
            encrypted = trio.SSLStream(self._stream, self._context, server_hostname="localhost")
            await encrypted.do_handshake()
            self.protocol = encrypted.selected_alpn_protocol()
            self._stream = encrypted
        self._http = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self._http.initiate_connection()
        return self

    async def __aexit__(self, *_: object) -> None:
        await trio.aclose_forcefully(self._stream)

    async def call(self, name: str, request: ProtoMessage, answer: type[M]) -> M:
        """Raises CallRefused."""
        stream = self._http.get_next_available_stream_id()
        headers = {
            ":method": "POST", ":scheme": "http", ":path": SERVICE + name, ":authority": "x",
            "content-type": "application/grpc", "te": "trailers",
        }  # fmt: skip
        if self._authorization:
            headers["authorization"] = self._authorization
        message = request.encode()
        self._http.send_headers(stream, list(headers.items()))
        framed = b"\0" + len(message).to_bytes(4, "big") + message
        self._http.send_data(stream, framed, end_stream=True)
        body, said = await self._answer(stream)
        if said["grpc-status"] != "0":
            raise CallRefused(int(said["grpc-status"]), said.get("grpc-message", ""))
        return answer.decode(body[5:])

    async def _answer(self, stream: int) -> tuple[bytes, dict[str, str]]:
        body, said, ended = b"", {}, False
        with trio.fail_after(HANG_S):
            while not ended:
                await self._stream.send_all(self._http.data_to_send())
                data = await self._stream.receive_some(65536)
                assert data, "the node closed the connection"
                for event in self._http.receive_data(data):
                    match event:
                        case DataReceived(stream_id=number) if number == stream:
                            body += event.data or b""
                        case ResponseReceived() | TrailersReceived() if event.stream_id == stream:
                            said |= dict(event.headers or ())
                        case StreamEnded(stream_id=number) if number == stream:
                            ended = True
        return body, said
