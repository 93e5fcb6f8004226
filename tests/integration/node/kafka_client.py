"""A Kafka client of a few lines: requests and responses of the codec over a real socket."""

from __future__ import annotations

from itertools import count
from types import TracebackType
from typing import Any, Self, TypeVar

import trio

from paceline.errors import ErrorCode
from paceline.wire.kafka import apis, groups
from paceline.wire.kafka.apis import APIS, RequestHeader
from paceline.wire.kafka.layout import Struct
from tests.integration.node.machines import open_stream

HANG_S = 60.0
NO_COORDINATOR = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""What clients ask again for. Each partition of ``__groups`` and of ``__transactions`` has its
coordinator at a time of its own: the answer about one group says nothing of another."""
R = TypeVar("R", bound=Struct)


class KafkaClient:
    """One connection; ``ask`` sends a request and reads its response."""

    def __init__(self, address: tuple[str, int], client_id: str = "c1") -> None:
        self._address = address
        self._client_id = client_id
        self._numbers = count(1)
        self._buffer = bytearray()

    async def __aenter__(self) -> Self:
        self.stream = await open_stream(self._address)
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _where: TracebackType | None,
    ) -> None:
        await trio.aclose_forcefully(self.stream)

    async def ask(self, request: Struct, version: int) -> Any:
        """The response to ``request``."""
        return await self.read(*await self.send(request, version))

    async def send(self, request: Struct, version: int) -> tuple[int, int, int]:
        """Send without reading; what :meth:`read` wants for the response."""
        [key] = [key for key, api in APIS.items() if api.request is type(request)]
        number = next(self._numbers)
        header = RequestHeader(key, version, number, self._client_id)
        await self.stream.send_all(apis.request_frame(header, request))
        return key, version, number

    async def read(self, key: int, version: int, number: int) -> Any:
        """The next response, which must be of that request."""
        frame = await self.read_frame()
        assert frame is not None, "the node closed the connection"
        assert int.from_bytes(frame[:4], "big") == number
        return apis.read_response(memoryview(frame), 4, APIS[key], version)

    async def read_frame(self) -> bytes | None:
        """The next frame without its size; None when the node has closed the connection."""
        with trio.fail_after(HANG_S):
            while True:
                size = int.from_bytes(self._buffer[:4], "big") if len(self._buffer) >= 4 else None
                if size is not None and len(self._buffer) >= 4 + size:
                    frame = bytes(self._buffer[4 : 4 + size])
                    del self._buffer[: 4 + size]
                    return frame
                try:
                    data = await self.stream.receive_some()
                except trio.BrokenResourceError:
                    return None
                if not data:
                    return None
                self._buffer += data


async def coordinated(address: tuple[str, int], *names: str) -> None:
    """Wait until the node coordinates these groups of Kafka's clients. Nothing is written."""
    async with KafkaClient(address) as client:
        for name in names:
            beat = groups.HeartbeatRequest(group_id=name, generation_id=1, member_id="nobody")
            with trio.fail_after(HANG_S):  # a coordinator that is loading answers 0
                while (await client.ask(beat, 3)).error_code != ErrorCode.UNKNOWN_MEMBER_ID:  # noqa: ASYNC110
                    await trio.sleep(0.02)
