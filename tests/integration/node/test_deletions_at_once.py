"""Several administrators at once neither open a closed cluster nor leave nobody who may."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from paceline.errors import AuthorizationFailed, PacelineError
from paceline.wire.native.acls import AclFilter
from tests.integration.node.nodes import lone_node
from tests.integration.node.secured import CLUSTER, ONE, acl
from tests.integration.node.test_first_user import ALTER, PASSWORD, Site


async def refused(*calls: Callable[[], Awaitable[object]]) -> int:
    """How many of them were, where all are called at once."""
    count = 0

    async def one(call: Callable[[], Awaitable[object]]) -> None:
        nonlocal count
        try:
            await call()
        except PacelineError:
            count += 1

    async with trio.open_nursery() as nursery:
        for call in calls:
            nursery.start_soon(one, call)
    return count


@pytest.mark.parametrize("has_alice", [False, True])
async def test_two_administrators_delete_each_other(tmp_path: Path, has_alice: bool) -> None:
    flags = {**ONE, "security.super_users": "root,ops"}
    async with lone_node(tmp_path, flags, options={"http": "login=required"}) as node:
        it = Site(node, tmp_path)
        await it.make_root()
        async with it.client("root") as root:
            await root.admin.users.create("ops", PASSWORD, iterations=4096)
            if has_alice:
                await root.admin.users.create("alice", PASSWORD, iterations=4096)
        async with it.client("root") as root, it.client("ops") as ops:
            count = await refused(
                lambda: root.admin.users.delete("ops"), lambda: ops.admin.users.delete("root")
            )
        assert count == 1
        with pytest.raises(AuthorizationFailed):
            await it.writes(None)


async def test_the_last_user_and_the_last_acl(tmp_path: Path) -> None:
    flags = {**ONE, "security.super_users": "root"}
    async with lone_node(tmp_path, flags, options={"http": "login=required"}) as node:
        it = Site(node, tmp_path)
        await it.make_root()
        async with it.client("root") as root, it.client(None) as anybody:
            await root.admin.acls.create([acl("anonymous", ALTER, resource=CLUSTER)])
            count = await refused(
                lambda: anybody.admin.users.delete("root"),
                lambda: root.admin.acls.delete(AclFilter()),
            )
        assert count == 1
        with pytest.raises(AuthorizationFailed):
            await it.writes(None)
