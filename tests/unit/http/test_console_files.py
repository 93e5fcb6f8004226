"""The console's files: what there is, what browsers may do with it, and that no more is served."""

from __future__ import annotations

import re
from http import HTTPStatus
from pathlib import Path

import pytest
import trio

from paceline_node.env import RealHost
from paceline_node.http.console import files
from paceline_node.http.console.files import PREFIX, ConsoleFiles
from paceline_node.http.page import Asked, Page
from paceline_node.http.server import HttpServer
from paceline_node.security.principals import ANONYMOUS
from tests.unit.http.test_server import HEAD, Client

STATIC = Path(files.__file__).parent / "static"
TEXTS = sorted(each for each in STATIC.rglob("*") if each.is_file())
IMPORTED = re.compile(r'^import (?:.* from )?"(\./|\.\./)([^"]+)";$', re.M)
ELSEWHERE = re.compile(r"(?:https?:)?//(?!www\.w3\.org/)[a-z]", re.I)


@pytest.fixture
def console() -> ConsoleFiles:
    return ConsoleFiles(RealHost().run_blocking)


async def served(console: ConsoleFiles, name: str) -> Page:
    return await console.page(Asked(f"{PREFIX}{name}", ""), ANONYMOUS)


async def test_every_file_is_served_as_what_it_is(console: ConsoleFiles) -> None:
    types = {
        ".js": "text/javascript",
        ".css": "text/css",
        ".svg": "image/svg",
        ".html": "text/html",
    }
    for file in TEXTS:
        page = await served(console, str(file.relative_to(STATIC)))
        assert page.status is HTTPStatus.OK
        assert page.body == file.read_bytes()
        assert page.content_type.startswith(types[file.suffix]), file
        assert dict(page.headers)["content-security-policy"].startswith("default-src 'none'")
    assert (await console.index(ANONYMOUS)).body == (STATIC / "index.html").read_bytes()


@pytest.mark.parametrize(
    "name", ["", "x.js", "../files.py", "%2e%2e/files.py", "pages", "pages/", "/etc/passwd"]
)
async def test_nothing_else_is_served(console: ConsoleFiles, name: str) -> None:
    assert (await served(console, name)).status is HTTPStatus.NOT_FOUND


def test_the_policy_lets_pages_do_nothing_but_what_they_need() -> None:
    assert "unsafe" not in files.POLICY
    assert "http" not in files.POLICY
    assert "*" not in files.POLICY


@pytest.mark.parametrize("file", TEXTS, ids=lambda each: each.name)
def test_a_file_needs_no_other_site_and_no_exception_to_the_policy(file: Path) -> None:
    text = file.read_text()
    assert not ELSEWHERE.search(re.sub(r"^\s*//.*$", "", text, flags=re.M)), file
    assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|\beval\(", text), file
    if file.suffix == ".html":
        assert not re.search(r"<style|<script(?![^>]*src=)|\son\w+=|\sstyle=", text)
    for up, name in IMPORTED.findall(text):
        assert (file.parent / f"{up}{name}").is_file(), f"{file.name} imports {name}"


async def test_what_a_browser_has_is_not_sent_again(
    nursery: trio.Nursery, console: ConsoleFiles
) -> None:
    server = HttpServer({"/": console.index}, branches=[console])
    client = Client(server, nursery)
    await client.send(f"GET /console/main.js HTTP/1.1\r\n{HEAD}\r\n")
    status, headers, body = await client.answer()
    assert (status, headers["cache-control"]) == (200, "no-cache")
    assert headers["x-content-type-options"] == "nosniff"
    assert body == (STATIC / "main.js").read_bytes()
    etag = headers["etag"]
    for asked in (etag, f"W/{etag}", f'"other", {etag}'):
        await client.send(f"GET /console/main.js HTTP/1.1\r\n{HEAD}If-None-Match: {asked}\r\n\r\n")
        status, headers, body = await client.answer()
        assert (status, headers["etag"], body) == (304, etag, b"")
        assert "content-length" not in headers
    await client.send(f'GET /console/main.js HTTP/1.1\r\n{HEAD}If-None-Match: "other"\r\n\r\n')
    assert (await client.answer())[0] == 200
    await client.send(f"GET / HTTP/1.1\r\n{HEAD}\r\n")
    assert (await client.answer())[2] == (STATIC / "index.html").read_bytes()
