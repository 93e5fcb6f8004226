"""A network whose connections can hang without breaking."""

from __future__ import annotations

import trio

from paceline_node.env import Network


class StallingNetwork:
    """A network, until some ports hang: what is sent to them stays on the way, as with a frozen
    process or a cable pulled out. Only connections that this side opens are concerned."""

    def __init__(self, network: Network) -> None:
        self.listen = network.listen
        self.bound_port = network.bound_port
        self._network = network
        self._stalled: set[int] = set()
        self._change = trio.Event()

    def stall(self, *ports: int) -> None:
        """Let these ports hang, and no others."""
        self._stalled = set(ports)
        self._change.set()
        self._change = trio.Event()

    async def pass_to(self, port: int) -> None:
        """Wait while ``port`` hangs."""
        while port in self._stalled:
            await self._change.wait()

    async def connect(self, host: str, port: int) -> trio.abc.Stream:
        await self.pass_to(port)
        return _StallingStream(await self._network.connect(host, port), self, port)


class _StallingStream(trio.abc.Stream):
    def __init__(self, stream: trio.abc.Stream, network: StallingNetwork, port: int) -> None:
        self._stream = stream
        self._network = network
        self._port = port

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._network.pass_to(self._port)
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._network.pass_to(self._port)

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        data = await self._stream.receive_some(max_bytes)
        await self._network.pass_to(self._port)
        return data

    async def aclose(self) -> None:
        await self._stream.aclose()
