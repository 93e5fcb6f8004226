"""What Tab offers of a cluster that runs."""

from __future__ import annotations

import functools

import pytest
import trio
from click.shell_completion import ShellComplete

from paceline.client import GroupSettings
from paceline_cluster.cli import complete, main
from paceline_cluster.testing import Paceline

pytestmark = pytest.mark.paceline(nodes=1)


def offered(*words: str) -> list[str]:
    *before, incomplete = words
    completion = ShellComplete(main.paceline, {}, "paceline", "_PACELINE_COMPLETE")
    return [item.value for item in completion.get_completions(list(before), incomplete)]


async def test_groups_and_the_users_own_topics(paceline: Paceline) -> None:
    await paceline.create_topic("orders", partitions=1)
    [address] = paceline.addresses("native")
    there = ("--bootstrap", address)
    async with paceline.connect() as client:
        async with client.producer() as producer:
            await producer.send("orders", b"a")
        async with client.consumer("orders", group="readers") as consumer:
            await anext(consumer)

    async def tab(*words: str) -> list[str]:
        return await trio.to_thread.run_sync(lambda: offered(*words))

    assert await tab("topic", "describe", *there, "") == ["orders"]
    assert "__groups" in await tab("topic", "describe", *there, "__")
    assert await tab("group", "describe", *there, "") == ["readers"]
    assert await tab("group", "offsets", "reset", *there, "read") == ["readers"]
    assert await tab("group", "describe", "--family", "v1", *there, "") == []
    assert await tab("role", "elect", "orders", "0", *there, "--node", "") == ["0"]
    assert await tab("role", "set", *there, "or") == ["orders"]
    assert await tab("role", "set", "orders/0", *there, "lea") == ["leader"]
    assert await tab("quorum", "add-voter", *there, "") == ["0"]


async def test_members_of_the_group_that_the_line_names(paceline: Paceline) -> None:
    await paceline.create_topic("orders", partitions=1)
    [address] = paceline.addresses("native")
    there = ("--bootstrap", address)
    membership = GroupSettings(instance_id="till-1")
    async with paceline.connect() as client:
        async with client.producer() as producer:
            await producer.send("orders", b"a")
        async with client.consumer("orders", group="tills", membership=membership) as consumer:
            await anext(consumer)
    tab = functools.partial(offered, "group", "evict", *there, "tills", "")
    assert await trio.to_thread.run_sync(tab) == ["till-1"]


def test_settings_of_topics_and_of_nodes() -> None:
    assert "retention.ms=" in offered("topic", "create", "orders", "--config", "")
    assert offered("topic", "alter", "orders", "--unset", "retention.m") == ["retention.ms"]
    assert "log.segment_bytes=" in offered("up", "--set", "log.seg")


def test_nothing_is_said_in_the_middle_of_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    async def interrupted(*about: object) -> None:
        asked.append(about)
        raise KeyboardInterrupt

    monkeypatch.setattr(complete, "_first_answer", interrupted)
    monkeypatch.setattr(complete, "_groups", interrupted)
    assert offered("topic", "describe", "--bootstrap", "127.0.0.1:1", "") == []
    assert offered("group", "describe", "--bootstrap", "127.0.0.1:1", "") == []
    assert len(asked) == 2
    assert capsys.readouterr() == ("", "")
