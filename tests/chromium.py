"""Debian's Chromium without a window, and what its pages hold, by the protocol of its own tools."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

import trio
import trio_websocket

BROWSER = next(
    (
        found
        for name in ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome")
        if (found := shutil.which(name)) is not None
    ),
    None,
)
WHY_NOT = "no Chromium here: apt-get install chromium"
HANG_S = 240.0
"""Bounds a hang: a browser takes a minute to start where many others want the processor."""
_TOOLS = b"DevTools listening on ws://"
_LOADED = "Page.loadEventFired"
_MESSAGE_BYTES = 64 * 1024 * 1024


@asynccontextmanager
async def browsing(url: str, profile: Path) -> AsyncIterator[str]:
    """A browser that looks at ``url`` while the block runs; ``host:port`` of its tools."""
    assert BROWSER is not None
    process = await trio.lowlevel.open_process(
        [
            *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--no-first-run", "--disable-background-networking", "--disable-extensions"),
            *("--hide-scrollbars", "--remote-debugging-port=0", f"--user-data-dir={profile}", url),
        ],
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=PIPE,
        start_new_session=True,
    )
    assert process.stderr is not None
    try:
        async with trio.open_nursery() as nursery:
            with trio.fail_after(HANG_S):
                tools = await _tools(process.stderr)
            nursery.start_soon(_drain, process.stderr)
            yield tools
            nursery.cancel_scope.cancel("the test is over")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        with trio.CancelScope(shield=True):
            await process.wait()
            await process.stderr.aclose()


async def _tools(said: trio.abc.ReceiveStream) -> str:
    data = b""
    while _TOOLS not in data or b"\n" not in data.partition(_TOOLS)[2]:
        more = await said.receive_some()
        assert more, f"the browser has ended: {data.decode(errors='replace')}"
        data += more
    return data.partition(_TOOLS)[2].partition(b"/")[0].decode()


async def _drain(said: trio.abc.ReceiveStream) -> None:
    async for _ in said:
        pass


class Tab:
    """The page of a browser."""

    def __init__(self, socket: trio_websocket.WebSocketConnection) -> None:
        self._socket = socket
        self._number = 0
        self.complaints: list[str] = []
        """What the page wrote to its console, refusals of the policy among it."""

    async def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the tools, and its answer."""
        self._number += 1
        asked = {"id": self._number, "method": method, "params": parameters}
        with trio.fail_after(HANG_S):
            await self._socket.send_message(json.dumps(asked))
            while True:
                answer = json.loads(await self._socket.get_message())
                if answer.get("id") == self._number:
                    assert "error" not in answer, answer
                    result: dict[str, Any] = answer["result"]
                    return result
                self._hear(answer)

    def _hear(self, event: dict[str, Any]) -> None:
        told = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(told["exceptionDetails"])[:2000])
            case "Log.entryAdded" if told["entry"]["level"] == "error":
                self.complaints.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
            case _:
                pass

    async def open(self, url: str) -> None:
        """Another page, once it has all its files."""
        await self.ask("Page.navigate", url=url)
        with trio.fail_after(HANG_S):
            while (event := json.loads(await self._socket.get_message()))["method"] != _LOADED:
                self._hear(event)

    async def value(self, expression: str) -> Any:
        """What an expression is in the page, a promise's result too."""
        found = await self.ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, expression: str, *, patience_s: float = HANG_S / 2) -> Any:
        """The value of an expression once that is true. The page itself looks, each time that it
        draws."""
        looking = f"""new Promise((found) => {{
          const end = performance.now() + {patience_s * 1000};
          const look = () => {{
            let value;
            try {{ value = {expression}; }} catch (error) {{ value = null; }}
            if (value || performance.now() > end) found(value instanceof Node || value);
            else setTimeout(look, 50);
          }};
          look();
        }})"""
        value = await self.value(looking)
        if not value:
            shown = await self.value("document.body.innerText")
            raise AssertionError(f"never true: {expression}\nthe page shows:\n{shown}")
        return value

    async def look_as(self, *, width: int, height: int, theme: str) -> None:
        """How large the window is, and which colours its owner prefers."""
        await self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        await self.ask(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": theme}],
        )

    async def picture(self) -> bytes:
        """What the window shows, as PNG."""
        found = await self.ask("Page.captureScreenshot", format="png")
        return base64.b64decode(found["data"])


@asynccontextmanager
async def open_tab(url: str, profile: Path) -> AsyncIterator[Tab]:
    """A page of its own browser."""
    async with browsing("about:blank", profile) as tools:
        socket_url = await trio.to_thread.run_sync(_socket_of, tools)
        async with trio_websocket.open_websocket_url(
            socket_url, max_message_size=_MESSAGE_BYTES, message_queue_size=64
        ) as socket:
            tab = Tab(socket)
            for domain in ("Page", "Runtime", "Log"):
                await tab.ask(f"{domain}.enable")
            await tab.open(url)
            yield tab


def _socket_of(tools: str) -> str:
    with urllib.request.urlopen(f"http://{tools}/json/list", timeout=HANG_S) as listed:
        pages = [each for each in json.load(listed) if each["type"] == "page"]
    url: str = pages[0]["webSocketDebuggerUrl"]
    return url
