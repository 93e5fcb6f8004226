"""Users by the command line: secrets from files, never seen again."""

from __future__ import annotations

import io
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from paceline_cluster.cli import main as cli
from paceline_cluster.errors import Exit
from paceline_cluster.testing import BlockingPaceline

pytestmark = pytest.mark.paceline(nodes=1, settings={"security.super_users": "alice"})


@pytest.fixture(autouse=True)
def _nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())


def test_life_of_a_user(
    paceline: BlockingPaceline, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    [address] = paceline.addresses("native")
    secret = tmp_path / "password"
    secret.write_text("wonder land\n")

    login = f"username=alice&password_file={secret}"

    def run(*words: str, code: Exit = Exit.OK) -> str:
        assert cli.main(["user", *words, "--bootstrap", address]) == code
        said = capsys.readouterr()
        return said.out if code is Exit.OK else said.err

    def data(*words: str) -> Any:
        return json.loads(run(*words, "--output", "json"))

    given = ("--password-file", str(secret))
    weaker = ("--mechanism", "SCRAM-SHA-256", "--iterations", "4096")
    assert data("create", "alice", *given) == {"name": "alice", "result": "created"}
    plain, address = address, f"tcp://{address}?username=alice&password_file={tmp_path}/nope"
    refused = run("list", code=Exit.NO_PERMISSION)
    assert f"the password file {tmp_path}/nope: no such file or directory\n" in refused
    address = f"tcp://{plain}?{login}"
    assert "exists already" in run("create", "alice", *given, code=Exit.DATA)
    assert "give the password with --password-file" in run("create", "bob", code=Exit.USAGE)
    data("create", "bob", "--no-password")
    data("password", "bob", *given, *weaker)
    [alice, bob] = data("list")["users"]
    assert [each["mechanism"] for each in alice["mechanisms"]] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert bob["mechanisms"] == [{"mechanism": "SCRAM-SHA-256", "iterations": 4096}]

    made = data("token", "bob", "--note", "spark", "--days", "2")
    file = tmp_path / "token"
    kept = data("token", "bob", "--token-file", str(file))
    assert kept["token"] is None
    assert file.read_text().startswith("plt_")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "exists already" in run("token", "bob", "--token-file", str(file), code=Exit.USAGE)
    text = run("list", "--output", "json")
    tokens = json.loads(text)["users"][1]["tokens"]
    assert [each["note"] for each in tokens] == ["spark", ""]
    assert tokens[0]["expires_ms"] - tokens[0]["created_ms"] == pytest.approx(
        2 * 24 * 3600 * 1000, abs=60_000
    )
    assert made["token"].rpartition(".")[2] not in text
    assert "spark" in run("list")
    data("revoke", "bob", made["token_id"])
    left = data("list")["users"][1]["tokens"]
    assert [each["token_id"] for each in left] == [kept["token_id"]]

    assert "would be deleted; confirm" in run("delete", "bob", code=Exit.USAGE)
    data("delete", "bob", "--yes")
    refused = run("delete", "bob", "--yes", code=Exit.DATA)
    assert "user list" in refused
    assert "no user can be called" in run("create", "anonymous", *given, code=Exit.DATA)
    (tmp_path / "empty").write_text("\n")
    empty = ("--password-file", str(tmp_path / "empty"))
    assert "first line is empty" in run("create", "carol", *empty, code=Exit.USAGE)


def test_who_may_see_nothing_is_told_so_and_not_that_there_is_nothing(
    paceline: BlockingPaceline, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """An empty list said nothing at all."""
    [address] = paceline.addresses("native")
    secret = tmp_path / "password"
    secret.write_text("wonder land\n")
    alice, bob = (f"tcp://{address}?username={u}&password_file={secret}" for u in ("alice", "bob"))
    listing = ["topic", "list", "--bootstrap"]
    assert cli.main([*listing, address]) == Exit.OK
    assert capsys.readouterr().err == "", "there is none but the cluster's own"
    given = ["--password-file", str(secret)]
    assert cli.main(["user", "create", "alice", *given, "--bootstrap", address]) == Exit.OK
    assert cli.main(["user", "create", "bob", *given, "--bootstrap", alice]) == Exit.OK
    capsys.readouterr()
    assert cli.main([*listing, bob, "--output", "json"]) == Exit.OK
    said = capsys.readouterr()
    assert json.loads(said.out) == {"topics": []}
    assert said.err.startswith("no topic is visible to bob: there is none, or none that ")
    assert cli.main([*listing, address]) == Exit.OK
    assert "no topic is visible to whoever does not log in: " in capsys.readouterr().err
    groups = ["group", "list", "--bootstrap"]
    assert cli.main([*groups, bob, "--output", "json"]) == Exit.OK
    said = capsys.readouterr()
    assert json.loads(said.out) == {"groups": []}
    assert said.err.startswith("no group is visible to bob: there is none, or none that bob may ")
    assert cli.main([*groups, address]) == Exit.OK
    assert "no group is visible to whoever does not log in: " in capsys.readouterr().err
    assert (
        cli.main(["topic", "create", "orders", "--replication-factor", "1", "--bootstrap", alice])
        == Exit.OK
    )
    capsys.readouterr()
    assert cli.main([*listing, alice]) == Exit.OK
    assert capsys.readouterr().err == ""
