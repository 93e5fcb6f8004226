"""Who sees what of the API: as of the commands, and never what he may not know of."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import trio

from paceline.client import Client, ClientLogin, ClientSettings, connect
from paceline.wire.native.acls import AclOperation
from tests.integration.node.nodes import HANG_S, RunningNode, lone_node
from tests.integration.node.secured import CLUSTER, GROUP, ONE, acl
from tests.openapi import Described

PASSWORD = "wonderland"
MINE = ("mine-1", "mine-2", "mine-3")
HIDDEN = ("a-secret", "mine-1-secret", "z-secret")
ELSEWHERE = "elsewhere"
"""A group that she may see, and that reads the first of them."""
Get = Callable[..., Awaitable[tuple[int, Any]]]


def _get(url: str, headers: dict[str, str]) -> tuple[int, Any]:
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=HANG_S) as page:
            return page.status, json.load(page)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def reader_of(topic: str) -> str:
    """The group that reads a topic."""
    return ELSEWHERE if topic == HIDDEN[0] else f"of-{topic}"


GROUPS = (ELSEWHERE, *map(reader_of, MINE))


def asking(node: RunningNode) -> Get:
    """Asks the node's pages, and holds each answer against the description."""
    host, port = node.addresses["http"]
    described: list[Described] = []

    async def get(path: str, token: str = "", host_header: str = "") -> tuple[int, Any]:
        url = f"http://{host}:{port}"
        if not described:
            _, document = await trio.to_thread.run_sync(_get, f"{url}/api/openapi.json", {})
            described.append(Described(document))
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if host_header:
            headers["Host"] = host_header
        status, body = await trio.to_thread.run_sync(partial(_get, f"{url}{path}", headers))
        described[0].check(path, status, body)
        return status, body

    return get


async def closed(node: RunningNode, stack: AsyncExitStack, directory: Path) -> Client:
    """Close the cluster; a client of its super user."""
    file = directory / "password"
    file.write_text(PASSWORD)
    login = ClientLogin(username="root", password_file=str(file))
    async with connect(node.native) as anybody:
        await anybody.admin.users.create("root", PASSWORD, iterations=4096)
    return await stack.enter_async_context(connect(node.native, ClientSettings(login=login)))


@asynccontextmanager
async def closed_to_alice(directory: Path) -> AsyncIterator[tuple[Get, str, Client]]:
    """A closed cluster of which alice may see some: its pages, her token, a client of who may
    everything."""
    async with (
        lone_node(directory, {**ONE, "security.super_users": "root"}) as node,
        AsyncExitStack() as stack,
    ):
        root = await closed(node, stack, directory)
        for topic in (*MINE, *HIDDEN):
            await root.admin.create_topic(topic, partitions=2)
            async with root.producer() as producer:
                await producer.send(topic, b"x")
            async with root.consumer(topic, group=reader_of(topic)) as consumer:
                await anext(aiter(consumer))
                await consumer.commit()
        await root.admin.users.create("alice", None)
        token = await root.admin.users.make_token("alice")
        rights = [acl("alice", AclOperation.DESCRIBE, topic) for topic in MINE]
        rights += [acl("alice", AclOperation.DESCRIBE, group, GROUP) for group in GROUPS]
        await root.admin.acls.create(rights)
        yield asking(node), token, root


async def test_lists_hold_what_somebody_may_describe(tmp_path: Path) -> None:
    async with closed_to_alice(tmp_path) as (get, token, _):

        async def every(path: str, key: str, name: str) -> list[str]:
            """What she sees, page by page; no page ends with what she does not."""
            found: list[str] = []
            after = ""
            while True:
                status, page = await get(f"{path}?limit=1{after}", token)
                assert status == 200
                found += [each[name] for each in page[key]]
                if page["next"] is None:
                    return found
                assert "secret" not in page["next"]
                assert len(page[key]) == 1, "a page that is not the last is full"
                after = f"&after={quote(page['next'])}"

        assert await every("/api/topics", "topics", "name") == list(MINE)
        partitions = await every("/api/partitions", "partitions", "topic")
        assert partitions == [topic for topic in MINE for _ in range(2)]
        assert await every("/api/groups", "groups", "group") == list(GROUPS)

        # Of a group that reads what she may not know of, that is left out.
        status, group = await get(f"/api/groups/{ELSEWHERE}", token)
        assert (status, group["partitions"], group["next"]) == (200, [], None)
        _, group = await get(f"/api/groups/{reader_of(MINE[0])}", token)
        assert [each["topic"] for each in group["partitions"]] == [MINE[0]] * 2
        _, unseen = await get("/api/topics")
        assert (unseen["topics"], unseen["next"]) == ([], None)


async def test_what_is_set_for_a_topic_takes_its_own_right(tmp_path: Path) -> None:
    async with closed_to_alice(tmp_path) as (get, token, root):
        path = f"/api/topics/{MINE[0]}"
        status, found = await get(path, token)
        assert (status, found["configs"], found["settings"]) == (200, None, None)
        assert len(found["partitions"]) == 2
        await root.admin.acls.create([acl("alice", AclOperation.DESCRIBE_CONFIGS, MINE[0])])
        status, found = await get(path, token)
        assert status == 200
        assert found["configs"] == {}
        assert {each["name"] for each in found["settings"]} > {"retention.ms", "segment.bytes"}


async def test_lists_say_that_some_may_be_hidden(tmp_path: Path) -> None:
    """A stranger got an empty list, as if there were nothing."""
    paths = {"/api/topics": "topics", "/api/partitions": "topics", "/api/groups": "groups"}
    async with closed_to_alice(tmp_path) as (get, token, root):
        of_root = await root.admin.users.make_token("root")
        for path, kind in paths.items():
            hidden = (await get(path))[1]["hidden"]
            assert hidden == (
                f"{kind} that anonymous may not describe are left out: send 'Authorization: Bearer "
                "TOKEN'; an administrator makes a token by 'paceline user token NAME'"
            )
            told = (await get(path, token))[1]["hidden"]
            assert told.startswith(f"{kind} that alice may not describe are left out: ")
            assert f"--principal alice --operation describe --{kind[:-1]} NAME" in told
            assert (await get(path, of_root))[1]["hidden"] is None
        assert (await get(f"/api/partitions?topic={MINE[0]}", token))[1]["hidden"] is None
        await root.admin.acls.create([acl("alice", AclOperation.DESCRIBE, "*")])
        for path, kind in paths.items():
            assert ((await get(path, token))[1]["hidden"] is None) is (kind == "topics"), path


async def test_an_open_cluster_hides_nothing(tmp_path: Path) -> None:
    async with lone_node(tmp_path, ONE) as node:
        get = asking(node)
        for path in ("/api/topics", "/api/partitions", "/api/groups"):
            assert (await get(path))[1]["hidden"] is None


async def test_who_may_not_describe_something_is_told_what_allows_it(tmp_path: Path) -> None:
    async with closed_to_alice(tmp_path) as (get, token, root):
        of_cluster = [f"/api/{path}" for path in ("nodes", "quorum", "connections", "tasks")]
        refused = (
            *of_cluster,
            *(f"/api/topics/{name}" for name in (HIDDEN[0], "nothing")),
            f"/api/topics/{HIDDEN[0]}/partitions/0",
            f"/api/partitions?topic={HIDDEN[0]}",
            f"/api/groups/{reader_of(HIDDEN[1])}",
            "/api/groups/nothing",
        )
        for path in refused:
            status, body = await get(path, token)
            assert (status, body["error"]["code"]) == (403, "AUTHORIZATION_FAILED"), path
            assert "paceline acl create --principal alice" in body["error"]["hint"], path
            status, body = await get(path)
            assert (status, body["error"]["code"]) == (403, "AUTHORIZATION_FAILED"), path
            assert "Authorization: Bearer" in body["error"]["hint"], path
            status, body = await get(path, "nonsense")
            assert (status, body["error"]["code"]) == (401, "AUTHENTICATION_FAILED"), path
        await root.admin.acls.create([acl("alice", AclOperation.DESCRIBE, resource=CLUSTER)])
        for path in of_cluster:
            status, _ = await get(path, token)
            assert status == 200, path
        _, found = await get("/api/connections", token)
        assert found["connections"][-1]["principal"] == "alice"
        assert {"root", "alice"} <= {each["principal"] for each in found["connections"]}


async def test_a_listener_that_wants_a_log_in_tells_strangers_nothing(tmp_path: Path) -> None:
    async with lone_node(tmp_path, ONE, options={"http": "login=required"}) as node:
        get = asking(node)
        for path in ("/api/topics", "/api/groups", "/api/nodes", "/api/connections"):
            status, body = await get(path)
            assert (status, body["error"]["code"]) == (401, "AUTHENTICATION_FAILED"), path


async def test_pages_of_other_sites_learn_nothing(tmp_path: Path) -> None:
    async with lone_node(tmp_path, ONE) as node:
        get = asking(node)
        status, body = await get("/api/topics", host_header="evil.example")
        assert (status, body["error"]["code"]) == (421, "MISDIRECTED_REQUEST")
        assert "http.allowed_hosts" in body["error"]["hint"]
        assert (await get("/api/topics"))[0] == 200
