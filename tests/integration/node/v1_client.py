"""A raw V1 connection."""

from __future__ import annotations

import re
import socket
import struct

import trio

from tests.integration.node.machines import Address, open_stream

ANSWER_S = 30.0
"""The protocol promises an answer within 4 s; this bounds a hang."""


class V1Client:
    """One raw V1 connection."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._buffer = b""
        self._stream: trio.abc.HalfCloseableStream | None = None

    async def __aenter__(self) -> V1Client:
        self._stream = await open_stream(self._address)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._stream is not None
        await self._stream.aclose()

    async def send(self, data: bytes) -> None:
        assert self._stream is not None
        await self._stream.send_all(data)

    async def finish_sending(self) -> None:
        assert self._stream is not None
        await self._stream.send_eof()

    async def reset(self) -> None:
        """Close with a reset: what was not read is refused, not just ignored."""
        assert isinstance(self._stream, trio.SocketStream)
        self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await trio.aclose_forcefully(self._stream)

    async def read_line(self) -> str | None:
        """The next reply without its LF; None at the end of the stream."""
        assert self._stream is not None
        with trio.fail_after(ANSWER_S):
            while b"\n" not in self._buffer:
                data = await self._stream.receive_some()
                if not data:
                    return None
                self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    async def ask(self, line: str) -> str:
        """The whole reply to a whole request line."""
        await self.send(line.encode() + b"\n")
        reply = await self.read_line()
        assert reply is not None, f"{line}: the connection was closed"
        return reply

    async def call(self, command: str, args: str = "") -> str:
        """The reply to a command without ``V1|<id>|``: ``OK|...`` or ``ERR|code|message``."""
        reply = await self.ask(f"V1|7|{command}|{args}")
        assert reply.startswith("V1|7|"), reply
        return reply.removeprefix("V1|7|")

    async def ok(self, command: str, args: str = "") -> dict[str, str]:
        """The fields of an OK reply. As SDKs do, asks again where nobody leads or coordinates yet,
        and so nothing was done: a slow machine may need longer than a node waits."""
        reply = await self.call(command, args)
        with trio.move_on_after(ANSWER_S):
            while reply.startswith(("ERR|NOT_LEADER", "ERR|UNAVAILABLE")):
                await trio.sleep(0.1)
                reply = await self.call(command, args)
        assert reply.startswith("OK"), f"{command} {args}: {reply}"
        return fields(reply.removeprefix("OK|"))

    @classmethod
    async def ask_once(cls, address: Address, data: bytes) -> str:
        """Send bytes over a connection of its own; an unterminated line ends with our side."""
        async with cls(address) as client:
            await client.send(data)
            if not data.endswith(b"\n"):
                await client.finish_sending()
            reply = await client.read_line()
            assert reply is not None, f"{data!r}: the connection was closed"
            return reply


def fields(payload: str) -> dict[str, str]:
    """``name=value`` pairs of a payload; a list in brackets is one value."""
    return dict(re.findall(r"(\w+)=(\[[^\]]*\]|\S*)", payload))
