"""Pages of a closed cluster, for programs that show a token, as Prometheus does."""

from __future__ import annotations

import os
import ssl
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path

import pytest
import trio

from paceline.client import ClientLogin, ClientSettings, connect
from paceline.tokens import RANDOM_BYTES, make_token
from paceline.wire.native.acls import AclOperation
from tests.integration.node.certificates import Certificates
from tests.integration.node.nodes import HANG_S, RunningNode, lone_node
from tests.integration.node.secured import CLUSTER, ONE, acl

PASSWORD = "wonderland"


def get(url: str, authorization: str, trusted: ssl.SSLContext | None) -> tuple[int, str]:
    """The status, and what is asked for where that is 401."""
    headers = {"Authorization": authorization} if authorization else {}
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=HANG_S, context=trusted) as page:
            page.read()
            return page.status, ""
    except urllib.error.HTTPError as error:
        return error.code, error.headers.get("www-authenticate", "")


async def told(node: RunningNode, path: str, token: str = "") -> tuple[int, bytes]:
    host, port = node.addresses["http"]
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"http://{host}:{port}{path}", headers=headers)

    def ask() -> tuple[int, bytes]:
        try:
            with urllib.request.urlopen(request, timeout=HANG_S) as page:
                return page.status, page.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    return await trio.to_thread.run_sync(ask)


BIT = b'{"ready": true}\n'


@pytest.mark.parametrize("rule", ["optional", "required"])
async def test_probes_of_who_shows_nothing(tmp_path: Path, rule: str) -> None:
    """A load balancer has no token: it was refused, and so took the node for one that does not
    serve, or, in the image's health check, for one that does."""
    flags = {**ONE, "security.super_users": "root"}
    async with lone_node(tmp_path, flags, options={"http": f"login={rule}"}) as node:
        status, body = await told(node, "/ready")
        assert (status, body == BIT) == (200, rule == "required")
        assert (await told(node, "/metrics"))[0] == (401 if rule == "required" else 200)
        async with connect(node.native) as anybody:
            await anybody.admin.users.create("root", PASSWORD, iterations=4096)
        file = tmp_path / "password"
        file.write_text(PASSWORD)
        login = ClientLogin(username="root", password_file=str(file))
        async with connect(node.native, ClientSettings(login=login)) as root:
            token = await root.admin.users.make_token("root")
        assert await told(node, "/ready") == (200, BIT)
        assert (await told(node, "/metrics"))[0] == 403
        assert (await told(node, "/ready", "anything"))[0] == 401
        status, body = await told(node, "/ready", token)
        assert status == 200
        assert b'"checks"' in body
        assert (await told(node, "/metrics", token))[0] == 200
        assert await told(node, "/live") == (200, b"live\n")


async def test_which_pages_are_for_anybody_is_a_setting(tmp_path: Path) -> None:
    flags = {"http.open_ready": "false", "http.open_metrics": "true"}
    flags |= {**ONE, "security.super_users": "root"}
    async with lone_node(tmp_path, flags, options={"http": "login=required"}) as node:
        assert (await told(node, "/ready"))[0] == 401
        async with connect(node.native) as anybody:
            await anybody.admin.users.create("root", PASSWORD, iterations=4096)
        assert (await told(node, "/ready"))[0] == 403
        status, body = await told(node, "/metrics")
        assert status == 200
        assert b"paceline_ready" in body
        assert (await told(node, "/api/health"))[0] == 401


@pytest.mark.parametrize("is_encrypted", [False, True])
async def test_metrics_for_who_shows_a_token(tmp_path: Path, is_encrypted: bool) -> None:
    certificates = Certificates(tmp_path)
    flags = {**ONE, **certificates.settings, "security.super_users": "root"}
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    login = ClientLogin(username="root", password_file=str(file))
    async with lone_node(tmp_path, flags, tls=("http",) if is_encrypted else ()) as node:
        host, port = node.addresses["http"]
        url = f"http{'s' if is_encrypted else ''}://{host}:{port}/metrics"
        trusted = (
            ssl.create_default_context(cafile=certificates.authority) if is_encrypted else None
        )

        async def answered(authorization: str = "") -> tuple[int, str]:
            return await trio.to_thread.run_sync(partial(get, url, authorization, trusted))

        assert await answered() == (200, "")
        async with connect(node.native) as anybody:
            await anybody.admin.users.create("root", PASSWORD, iterations=4096)
        assert await answered() == (403, "")
        async with connect(node.native, ClientSettings(login=login)) as root:
            await root.admin.users.create("prometheus", None)
            token = await root.admin.users.make_token("prometheus")
            assert await answered(f"Bearer {token}") == (403, ""), "known, and may not yet"
            right = acl("prometheus", AclOperation.DESCRIBE, resource=CLUSTER, host="127.0.0.1")
            await root.admin.acls.create([right])
            assert await answered(f"Bearer {token}") == (200, "")
            assert await answered() == (403, "")
            others, _ = make_token("prometheus", os.urandom(RANDOM_BYTES))
            for wrong in ("Bearer anything", f"Bearer {others}", f"Basic {token}"):
                assert await answered(wrong) == (401, "Bearer")
            await root.admin.users.revoke("prometheus", [token.split(".")[1]])
            assert await answered(f"Bearer {token}") == (401, "Bearer")
