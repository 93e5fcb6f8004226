"""What a web page in a real browser can make its visitor's browser say to a node.

Needs Chromium (Debian: ``apt-get install chromium``); skipped with the reason where there is none.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio

from tests.chromium import BROWSER, HANG_S, WHY_NOT, browsing
from tests.integration.hostile.test_v1 import ONE
from tests.integration.node.nodes import V1Client, lone_node
from tests.integration.node.test_metrics import scrape

POSTS = 40
PAGE = """<!doctype html><meta charset="utf-8"><script>
const lines = (from) =>
  `V1|1|PRODUCE|orders k:evil-${from}\\nV1|2|ADMIN_CREATE_TOPIC|evil-${from} 1\\n`;
const post = (port) =>
  fetch(`http://127.0.0.1:${port}/`, {method: "POST", mode: "no-cors", body: lines("fetch")})
    .then(() => "answered", () => "failed");
const posted = async (port) =>
  [...new Set(await Promise.all(Array.from({length: POSTS}, () => post(port))))].join();
const sent = (port) => new Promise((resolve) => {
  const frame = document.createElement("iframe");
  frame.name = "f" + port;
  document.body.append(frame);
  const form = document.createElement("form");
  Object.assign(form, {method: "post", enctype: "text/plain", target: frame.name,
                       action: `http://127.0.0.1:${port}/`});
  const field = document.createElement("textarea");
  field.name = "x";
  field.value = "\\n" + lines("form");
  form.append(field);
  document.body.append(form);
  frame.onload = () => resolve("loaded");
  form.submit();
});
const opened = (url) => new Promise((resolve) => {
  const socket = new WebSocket(url);
  socket.onopen = () => resolve("open");
  socket.onerror = () => resolve("refused");
});
onload = async () => {
  const told = {};
  for (const [name, port] of Object.entries(PORTS)) {
    told[name] = [await posted(port), await sent(port)];
  }
  told.websocket = await opened("ws://127.0.0.1:HTTP/native");
  await fetch("/told", {method: "POST", body: JSON.stringify(told)});
};
</script><body></body>"""


class Site:
    """The page, what it told, and a port that takes whatever is posted to it, as V1's did."""

    def __init__(self) -> None:
        self.page = ""
        self.told: dict[str, object] = {}
        self.is_done = trio.Event()
        self.posted: list[bytes] = []

    async def serve(self, stream: trio.SocketStream) -> None:
        """One request, of the page or of what it tells."""
        head, body = await _request(stream)
        if head.startswith(b"POST /told "):
            self.told = json.loads(body)
        await _answer(stream, self.page if head.startswith(b"GET / ") else "")
        if self.told:
            self.is_done.set()

    async def witness(self, stream: trio.SocketStream) -> None:
        """One request, kept as it came."""
        _, body = await _request(stream)
        self.posted.append(body)
        await _answer(stream, "")


async def _request(stream: trio.SocketStream) -> tuple[bytes, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        more = await stream.receive_some()
        if not more:
            return b"", b""  # a connection that the browser opened in advance
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        (
            int(line.partition(b":")[2])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        ),
        0,
    )
    while len(body) < length:
        body += await stream.receive_some()
    return head, body


async def _answer(stream: trio.SocketStream, page: str) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(page)}\r\n"
    await stream.send_all(f"{head}Connection: close\r\n\r\n{page}".encode())
    await stream.aclose()


@pytest.mark.skipif(BROWSER is None, reason=WHY_NOT)
@pytest.mark.timeout(2 * HANG_S)
async def test_a_page_in_a_browser_cannot_post_lines(tmp_path: Path) -> None:
    site = Site()
    async with lone_node(tmp_path, ONE) as node, V1Client(node.v1) as client:
        await client.ok("PRODUCE", "orders k:0")
        [pages] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        [witness] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        ports = {"witness": witness.socket.getsockname()[1], "v1": node.v1[1]}
        page = PAGE.replace("PORTS", json.dumps(ports)).replace("POSTS", str(POSTS))
        site.page = page.replace("HTTP", str(node.addresses["http"][1]))
        url = f"http://127.0.0.1:{pages.socket.getsockname()[1]}/"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, site.serve, [pages])
            nursery.start_soon(trio.serve_listeners, site.witness, [witness])
            async with browsing(url, tmp_path / "profile"):
                with trio.fail_after(HANG_S):
                    await site.is_done.wait()
            nursery.cancel_scope.cancel("the page has told all")
        # The browser did post lines, each at the begin of one, as a port without defence gets them.
        lines = [line for body in site.posted for line in body.splitlines()]
        assert lines.count(b"V1|1|PRODUCE|orders k:evil-fetch") == POSTS
        assert lines.count(b"V1|1|PRODUCE|orders k:evil-form") == 1
        assert site.told == {
            "witness": ["answered", "loaded"],
            "v1": ["failed", "loaded"],
            "websocket": "refused",
        }
        # One line of each post was read, whenever the browser hung up: none that follows counts.
        shown = await scrape(node.addresses["http"])
        refused = shown.total("requests_total", protocol="v1", code="bad_request")
        accepted = shown.one("connections_accepted_total", protocol="v1")
        assert POSTS < refused <= accepted
        assert (await client.ok("PRODUCE", "orders k:1"))["offset"] == "1"
        assert "evil" not in str(await client.ok("ADMIN_GET_METADATA", ""))
