"""A cluster of scripted brokers: real protocol peers over in-memory streams, with a real log each.

Requests are decoded by the same codec as everywhere, batches are validated and kept as bytes,
idempotent producers are recognised by the rules of replication/DESIGN 4.4. All nodes see one
metadata state and one log per partition, as if replication were instantaneous; what a test wants to
go wrong it asks for: nodes that die, leaders that move, connections cut before or after a request
took effect, delays, error codes.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from functools import partial
from typing import Any

import trio
import trio.testing
import trio_websocket

from paceline.client import Endpoint
from paceline.errors import ErrorCode, PacelineError
from paceline.wire.frame import Frame, FrameReader, Kind, encode_error, encode_head
from paceline.wire.message import Message
from paceline.wire.native import data
from paceline.wire.native.api import NativeApi
from tests.unit.client.answers import HANDLERS, PORT, REQUESTS, Answers, Node
from tests.unit.client.partition_log import PartitionLog


@dataclass
class Fault:
    """What to do with the next ``count`` requests of ``api``: see :meth:`Cluster.fault`."""

    api: NativeApi
    count: int
    error: ErrorCode | None
    cut_before: bool
    cut_after: bool
    delay_s: float
    silent: bool
    node: int | None
    skip: int
    corrupt: bool
    hits: int = 0


class WebSocketBytes(trio.abc.Stream):
    """A WebSocket as a byte stream: one message a frame each way."""

    def __init__(self, socket: trio_websocket.WebSocketConnection, stream: trio.abc.Stream) -> None:
        self._socket = socket
        self._stream = stream

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._socket.send_message(bytes(data))

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        try:
            message = await self._socket.get_message()
        except trio_websocket.ConnectionClosed:
            return b""
        assert isinstance(message, bytes)
        return message

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self._stream)


class Cut(Exception):
    """Close the connection."""


class Cluster(Answers):
    """Use as a factory of :attr:`dial`; ``nursery`` holds the connections' server sides."""

    def __init__(self, nursery: trio.Nursery, nodes: int = 3) -> None:
        super().__init__(nodes)
        self.nursery = nursery
        self.faults: list[Fault] = []
        self.dials: list[int] = []

    # --- what tests do ----------------------------------------------------------------------------

    def kill(self, node: int) -> None:
        """Refuse and cut all connections of a node; its leaderships stay where they are."""
        self.nodes[node].is_up = False
        for scope in list(self.nodes[node].scopes):
            scope.cancel()

    def start(self, node: int) -> None:
        self.nodes[node].is_up = True

    def fault(
        self,
        api: NativeApi,
        *,
        count: int = 1,
        error: ErrorCode | None = None,
        cut_before: bool = False,
        cut_after: bool = False,
        delay_s: float = 0.0,
        silent: bool = False,
        node: int | None = None,
        skip: int = 0,
        corrupt: bool = False,
    ) -> Fault:
        """Spoil the next ``count`` requests after ``skip``: answer ``error`` without effect, cut
        the connection before or after the effect, delay the answer, never answer, or damage the
        answer's payload."""
        fault = Fault(
            api, count, error, cut_before, cut_after, delay_s, silent, node, skip, corrupt
        )
        self.faults.append(fault)
        return fault

    def endpoint(self, node: int = 0) -> Endpoint:
        return Endpoint(f"node-{node}", PORT)

    def bootstrap(self) -> list[Endpoint]:
        return [self.endpoint(node) for node in self.nodes]

    def requests(self, kind: type[Message]) -> list[Any]:
        return [
            message
            for node in self.nodes.values()
            for _, message in node.requests
            if isinstance(message, kind)
        ]

    # --- the network ------------------------------------------------------------------------------

    async def dial(self, endpoint: Endpoint) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        number = int(endpoint.host.removeprefix("node-"))
        node = self.nodes[number]
        if not node.is_up:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"{endpoint} refused")
        self.dials.append(number)
        ours, theirs = trio.testing.memory_stream_pair()
        if endpoint.path is None:
            self.nursery.start_soon(self._serve, node, theirs)
        else:
            self.nursery.start_soon(self._serve_websocket, node, theirs)
        return ours

    async def listen(self, node: int) -> None:
        """Serve a node on a real loopback port; it is advertised from then on."""
        listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
        port = listener.socket.getsockname()[1]
        self.nodes[node].address = ("127.0.0.1", port)
        handler = partial(self._serve, self.nodes[node])
        self.nursery.start_soon(trio.serve_listeners, handler, [listener])

    async def _serve_websocket(self, node: Node, stream: trio.abc.Stream) -> None:
        async with trio.open_nursery() as nursery:
            request = await trio_websocket.wrap_server_stream(nursery, stream)  # type: ignore[arg-type]
            socket = await request.accept()
            await self._serve(node, WebSocketBytes(socket, stream))
            nursery.cancel_scope.cancel()

    async def _serve(self, node: Node, stream: trio.abc.Stream) -> None:
        reader = FrameReader()
        with trio.CancelScope() as scope:
            node.scopes.add(scope)
            try:
                async with trio.open_nursery() as nursery:
                    lock = trio.Lock()
                    while not node.is_deaf:
                        chunk = await stream.receive_some(65536)
                        if not chunk:
                            break
                        reader.feed(chunk)
                        while (frame := reader.next_frame()) is not None:
                            await self._take(node, frame, stream, nursery, lock)
                    if node.is_deaf:
                        await trio.sleep_forever()
                    nursery.cancel_scope.cancel()
            except* (Cut, trio.BrokenResourceError, trio.ClosedResourceError):
                pass
            finally:
                node.scopes.discard(scope)
                await trio.aclose_forcefully(stream)
        await trio.aclose_forcefully(stream)

    def _fault_for(self, node: Node, api: int) -> Fault | None:
        for fault in self.faults:
            if fault.api != api or fault.count == 0 or fault.node not in (None, node.node_id):
                continue
            if fault.skip:
                fault.skip -= 1
                continue
            fault.count -= 1
            fault.hits += 1
            return fault
        return None

    async def _take(
        self,
        node: Node,
        frame: Frame,
        stream: trio.abc.Stream,
        nursery: trio.Nursery,
        lock: trio.Lock,
    ) -> None:
        """The effect of a request happens here, in order of arrival; its answer may come later."""
        api = NativeApi(frame.api)
        fault = self._fault_for(node, api)
        if fault is not None and fault.cut_before:
            raise Cut
        request = REQUESTS[api].unpack(frame.body)
        node.requests.append((api, request))
        try:
            if fault is not None and fault.error is not None:
                reply, payload = self.refuse(request, fault.error)
            elif isinstance(request, data.Fetch):
                nursery.start_soon(self._long_poll, node, frame, request, stream, lock, fault)
                return
            else:
                reply, payload = HANDLERS[api](self, node, request, frame.payload), b""
        except PacelineError as error:
            answer = encode_error(frame.api, frame.correlation, error)
        else:
            head = encode_head(
                Kind.RESPONSE, frame.api, frame.correlation, reply.pack(), len(payload)
            )
            answer = head + payload
        if fault is not None and fault.cut_after:
            raise Cut
        if fault is not None and fault.silent:
            return
        nursery.start_soon(self._answer, stream, lock, answer, fault.delay_s if fault else 0.0)

    async def _answer(
        self, stream: trio.abc.Stream, lock: trio.Lock, answer: bytes, delay_s: float
    ) -> None:
        if delay_s:
            await trio.sleep(delay_s)
        async with lock:
            await stream.send_all(answer)

    async def _long_poll(
        self,
        node: Node,
        frame: Frame,
        request: data.Fetch,
        stream: trio.abc.Stream,
        lock: trio.Lock,
        fault: Fault | None,
    ) -> None:
        deadline = trio.current_time() + request.max_wait_ms / 1000
        while True:
            reply, payload = self.fetch(node, request)
            if payload or trio.current_time() >= deadline or any(r.error for r in reply.partitions):
                break
            logs = [self.find(each.topic, each.partition) for each in request.partitions]
            with trio.move_on_at(deadline):
                async with trio.open_nursery() as nursery:
                    for log in logs:
                        nursery.start_soon(_first_of, log, nursery)
        if fault is not None and fault.corrupt and payload:
            payload = payload[:-2] + bytes([payload[-2] ^ 1]) + payload[-1:]
        head = encode_head(Kind.RESPONSE, frame.api, frame.correlation, reply.pack(), len(payload))
        await self._answer(stream, lock, head + payload, fault.delay_s if fault else 0.0)


async def _first_of(log: PartitionLog, nursery: trio.Nursery) -> None:
    await log.grown.wait()
    nursery.cancel_scope.cancel()
