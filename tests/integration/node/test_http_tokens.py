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
from tests.integration.node.nodes import HANG_S, lone_node
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
