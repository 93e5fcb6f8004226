"""A consumer that follows a script: frames of the coordinator protocol over a real socket."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from paceline.wire.coordinator.codec import (
    Ask,
    Header,
    Response,
    read_header,
    read_request,
    read_response,
    request_frame,
    response_frame,
)
from paceline.wire.coordinator.messages import (
    ConsultRequest,
    Position,
    PositionsResponse,
    RegisterRequest,
    StartRequest,
    TopicCount,
)
from paceline.wire.kafka.layout import Struct
from tests.integration.node.kafka_client import KafkaClient


def registration(name: str, *topics: str, group: str = "g", **more: Any) -> RegisterRequest:
    wanted: dict[str, Any] = {"heartbeat_interval_ms": 300, "auto_commit": 1, "generation": -1}
    wanted |= {"auto_offset_rest": "smallest"} | more
    return RegisterRequest(
        group_id=group,
        consumer_id=name,
        topic_count=tuple(TopicCount(topic=topic, streams=1) for topic in topics),
        **wanted,
    )


class ScriptedConsumer(KafkaClient):
    """One connection, in one version and layout of the protocol."""

    def __init__(
        self, address: tuple[str, int], version: int = 1, *, is_layout_7: bool = False
    ) -> None:
        super().__init__(address)
        self.version = version
        self.is_layout_7 = is_layout_7
        self.commits = True
        self.positions: dict[tuple[str, int], int] = {}
        self.generation = -1

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        await super().__aexit__(kind, error, where)

    def header(self, ask: Ask, version: int | None = None) -> Header:
        if self.is_layout_7:
            return Header(ask, is_layout_7=True)
        number = next(self._numbers)
        return Header(ask, False, self.version if version is None else version, number, "c1")

    async def put(self, header: Header, body: Struct) -> None:
        await self.stream.send_all(request_frame(header, body))

    async def consult(self, group: str | None = None, version: int | None = None) -> Response:
        header = self.header(Ask.CONSULT, version)
        await self.put(header, ConsultRequest(group_id=group))
        frame = await self.read_frame()
        assert frame is not None
        return read_response(header, memoryview(frame))

    async def register(self, request: RegisterRequest) -> Response | None:
        """The answer; None where there is none, or the node closed."""
        header = self.header(Ask.REGISTER)
        self.commits = request.auto_commit == 1
        await self.put(header, request)
        if self.version == 0 or self.is_layout_7:
            return None
        frame = await self.read_frame()
        return None if frame is None else read_response(header, memoryview(frame))

    async def asked(self) -> tuple[Header, Any]:
        """The next request of the coordinator."""
        frame = await self.read_frame()
        assert frame is not None, "the coordinator closed the channel"
        header, start = read_header(memoryview(frame))
        return header, read_request(header, memoryview(frame), start)

    async def answer(self, header: Header, body: Any, error: int = 0) -> None:
        """Do as asked, and say so."""
        said: Struct | None = None
        if isinstance(body, StartRequest):
            self.positions = {(each.topic, each.partition): each.offset for each in body.partitions}
            self.generation = body.generation
        elif not error and (self.commits or header.version):
            said = PositionsResponse(
                generation=self.generation,
                positions=tuple(
                    Position(topic=topic, partition=number, offset=offset)
                    for (topic, number), offset in sorted(self.positions.items())
                ),
            )
            if header.ask is Ask.STOP:
                self.positions = {}
        await self.stream.send_all(response_frame(header, error, said))

    async def until(self, ask: Ask) -> Any:
        """Answer everything up to and including the next request of this kind, which is given."""
        while True:
            header, body = await self.asked()
            await self.answer(header, body)
            if header.ask is ask:
                return body

    async def closed(self) -> None:
        """Return once the coordinator has closed; it may ask before."""
        while await self.read_frame() is not None:
            pass
