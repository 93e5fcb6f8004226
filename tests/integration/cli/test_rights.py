"""Commands that take several rights name all of them when the first one is missing."""

from __future__ import annotations

import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from paceline_cluster.errors import Exit
from tests.integration.cli.test_interrupting import HANG_S
from tests.integration.node.nodes import lone_node
from tests.integration.node.secured import ONE

pytestmark = pytest.mark.timeout(HANG_S)
READING = ("consume", "orders", "--group", "g", "--exit-at-end")


class Users:
    """An administrator, and alice, who may do nothing yet."""

    def __init__(self, address: str, secret: Path) -> None:
        self._address = address
        self._secret = secret

    async def run(self, who: str, *words: str, stdin: bytes = b"") -> tuple[bytes, str]:
        login = f"?username={who}&password_file={self._secret}" if who else ""
        done = await trio.run_process(
            [
                *(sys.executable, "-m", "paceline_cluster.cli.main", *words),
                *("--bootstrap", f"tcp://{self._address}{login}"),
            ],
            stdin=stdin,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
        allowed = (Exit.OK, Exit.NO_PERMISSION) if who == "alice" else (Exit.OK,)
        assert done.returncode in allowed, done.stderr.decode()
        return done.stdout, done.stderr.decode()

    async def allow(self, *words: str) -> None:
        await self.run("root", "acl", "create", "--principal", "alice", *words)

    async def obey(self, said: str) -> None:
        """Do what a refusal tells an administrator to."""
        command = said.partition("allows it: paceline ")[2].partition(";")[0].partition(" (")[0]
        assert command.startswith("acl create --principal alice"), said
        await self.run("root", *shlex.split(command))


@asynccontextmanager
async def guarded(folder: Path) -> AsyncIterator[Users]:
    secret = folder / "password"
    secret.write_text("wonder land\n")
    async with lone_node(folder, {**ONE, "security.super_users": "root"}) as node:
        users = Users(node.native, secret)
        await users.run("", "user", "create", "root", "--password-file", str(secret))
        await users.run("root", "user", "create", "alice", "--password-file", str(secret))
        yield users


async def test_who_reads_in_a_group_is_told_both_rights_at_once(tmp_path: Path) -> None:
    async with guarded(tmp_path) as users:
        await users.run("root", "produce", "orders", stdin=b"a\n")
        _, said = await users.run("alice", *READING)
        assert "--operation read --group g --topic orders" in said
        await users.obey(said)
        assert (await users.run("alice", *READING))[0] == b"a\n"


async def test_who_describes_a_group_is_told_the_topics_too(tmp_path: Path) -> None:
    describing = ("group", "describe", "g")
    async with guarded(tmp_path) as users:
        await users.run("root", "produce", "orders", stdin=b"a\n")
        await users.run("root", *READING)
        _, said = await users.run("alice", *describing)
        assert "--operation read --group g --topic TOPIC (all that this takes)" in said
        await users.obey(said.replace("TOPIC", "orders"))
        assert b"orders" in (await users.run("alice", *describing))[0]


async def test_who_may_write_a_topic_that_is_missing_is_told_that_he_may_not_make_it(
    tmp_path: Path,
) -> None:
    """It named the right to write, which he had."""
    async with guarded(tmp_path) as users:
        await users.allow("--operation", "write", "--topic", "new")
        _, said = await users.run("alice", "produce", "new", stdin=b"a\n")
        assert "alice may not create topic new" in said
        await users.obey(said)
        _, said = await users.run("alice", "produce", "new", stdin=b"a\n")
        assert "1 record acknowledged" in said


async def test_who_may_do_nothing_is_told_what_writing_takes(tmp_path: Path) -> None:
    async with guarded(tmp_path) as users:
        _, said = await users.run("alice", "produce", "new", stdin=b"a\n")
        assert "--operation write --operation create --topic new" in said
        await users.obey(said)
        _, said = await users.run("alice", "produce", "new", stdin=b"a\n")
        assert "1 record acknowledged" in said
