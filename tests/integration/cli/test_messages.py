"""What ``paceline`` says to those who mistype, of a cluster that runs."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import trio

from paceline_cluster.cli import main as cli
from paceline_cluster.errors import Exit
from paceline_cluster.testing import BlockingPaceline, Paceline

pytestmark = pytest.mark.paceline(nodes=1)


@pytest.fixture(autouse=True)
def _nothing_to_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.mark.parametrize(("listener", "protocol"), [("v1", "V1"), ("http", "HTTP")])
def test_another_listener_is_named_by_what_it_speaks(
    paceline: BlockingPaceline, capsys: pytest.CaptureFixture[str], listener: str, protocol: str
) -> None:
    [address] = paceline.addresses(listener)
    assert cli.main(["topic", "list", "--bootstrap", address]) == Exit.DATA
    said = capsys.readouterr().err
    assert f"paceline: {address} speaks {protocol}, not the native protocol\n" in said


@pytest.mark.paceline(nodes=1, tls=True)
def test_a_certificate_that_nobody_trusts_is_told_with_what_makes_it_trusted(
    paceline: BlockingPaceline, capsys: pytest.CaptureFixture[str]
) -> None:
    [address] = paceline.addresses("native")
    words = ["topic", "list", "--bootstrap", f"tls://{address}"]
    assert cli.main(words) == Exit.NO_PERMISSION
    said = capsys.readouterr().err
    assert f"paceline: tls://{address}: the node's certificate is not trusted: " in said
    assert f"\nname who signs it: tls://{address}?authority=FILE, " in said


def test_a_name_that_no_topic_can_have_is_told_with_those_that_can(
    paceline: BlockingPaceline, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It was 'bad/name: error code 17'."""
    file = tmp_path / "lines"
    file.write_text("a\n")
    [address] = paceline.addresses("native")
    assert cli.main(["produce", "bad/name", str(file), "--bootstrap", address]) == Exit.DATA
    assert "no topic can have this name: expected 1 to 249 of A-Z" in capsys.readouterr().err


def test_a_topic_that_is_made_is_told_where_one_differs_in_case_only(
    paceline: BlockingPaceline, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It was made without a word, and the records were in two topics."""
    paceline.create_topic("orders", partitions=1)
    file = tmp_path / "lines"
    file.write_text("a\n")
    [address] = paceline.addresses("native")

    def produced(topic: str, *more: str, code: Exit = Exit.OK) -> str:
        assert cli.main(["produce", topic, str(file), "--bootstrap", address, *more]) == code
        said = capfd.readouterr()
        assert said.out == ""
        return said.err

    note = "note: there is no topic {}, so the first record makes it; {} from it in case only\n"
    assert produced("orders") == "1 record acknowledged\n"
    assert produced("ordres") == "1 record acknowledged\n"
    assert "note: " not in produced("Orders", "--no-create", code=Exit.DATA)
    assert produced("Orders").startswith(note.format("Orders", "orders differs"))
    assert produced("Orders") == "1 record acknowledged\n", "it is there now"
    assert note.format("ORDERS", "Orders and orders differ") in produced("ORDERS")


def test_lines_that_are_json_but_no_records_are_told_how_to_store_them(
    paceline: BlockingPaceline, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The known fields alone do not help whoever has JSON of his own."""
    file = tmp_path / "events"
    [address] = paceline.addresses("native")
    words = ["produce", "events", str(file), "--json", "--bootstrap", address, "--output", "json"]
    for line, has_hint in (('{"user": "ann", "n": 1}\n', True), ('{"valu": "a"}\n', False)):
        file.write_text(f'{{"value": "a"}}\n{line}')
        assert cli.main(words) == Exit.DATA
        error = json.loads(capsys.readouterr().err.splitlines()[-1])["error"]
        assert error["message"].startswith("line 2: unknown field ")
        assert error["message"].endswith(" (1 record before it is stored)")
        assert ("leave --json off to store lines as they are" in (error["hint"] or "")) is has_hint


def test_a_line_without_its_key_is_refused_and_what_stands_before_it_stored(
    paceline: BlockingPaceline, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "lines"
    file.write_text("a:1\nb:2\nc\nd:4\n")
    [address] = paceline.addresses("native")
    words = ["orders", "--bootstrap", address]
    assert cli.main(["produce", *words, str(file), "--key-delimiter", ":"]) == Exit.DATA
    assert "line 3: no ':' behind a key" in (said := capfd.readouterr().err)
    assert "(2 records before it are stored)" in said
    assert cli.main(["consume", *words, "--exit-at-end", "--key-delimiter", "="]) == Exit.OK
    assert sorted(capfd.readouterr().out.split()) == ["a=1", "b=2"]


def test_places_beyond_the_end_are_refused(
    paceline: BlockingPaceline, capfd: pytest.CaptureFixture[str]
) -> None:
    paceline.create_topic("orders", partitions=1)
    with paceline.connect() as client, client.producer() as producer:
        producer.send("orders", b"a")
    [address] = paceline.addresses("native")
    there = ["--bootstrap", address]
    reading = ["consume", "orders", "--exit-at-end", *there]
    assert cli.main([*reading, "--from", "1"]) == Exit.OK
    assert capfd.readouterr() == ("", "")
    assert cli.main([*reading, "--from", "2"]) == Exit.DATA
    assert "offset 2 is beyond the end of orders/0 (1)" in capfd.readouterr().err
    reset = ["group", "offsets", "reset", "g", "--topic", "orders", *there, "--execute"]
    assert cli.main([*reset, "--to-offset", "2"]) == Exit.DATA
    assert "orders/0 has 0 to 1, not 2" in capfd.readouterr().err
    assert cli.main([*reset, "--to-offset", "1"]) == Exit.OK
    trim = ["topic", "trim", "orders", "--partition", "9", "--yes", *there]
    assert cli.main(trim) == Exit.DATA
    assert "orders/9: the topic has 1 partition" in capfd.readouterr().err


async def test_a_plan_names_the_members_that_are_in_its_way(
    paceline: Paceline, capfd: pytest.CaptureFixture[str]
) -> None:
    await paceline.create_topic("orders", partitions=1)
    [address] = paceline.addresses("native")
    reset = ["group", "offsets", "reset", "g", "--topic", "orders", "--to-latest"]
    words = [*reset, "--bootstrap", address, "--output", "json"]
    async with paceline.connect() as client:
        async with client.producer() as producer:
            await producer.send("orders", b"a")
        async with client.consumer("orders", group="g") as consumer:
            assert (await anext(consumer)).value == b"a"
            assert await trio.to_thread.run_sync(cli.main, words) == Exit.OK
            said = capfd.readouterr()
            refused = await trio.to_thread.run_sync(cli.main, [*words, "--execute"])
    [member] = json.loads(said.out)["members"]
    assert f"--execute is refused while the group has members: {member}" in said.err
    assert refused != Exit.OK
    error = json.loads(capfd.readouterr().err)["error"]
    assert "has members" in error["message"]
    assert "paceline group evict NAME MEMBER" in error["hint"]


@pytest.mark.paceline(nodes=1, tls=True)
def test_an_address_inside_tls_is_named_as_such(
    paceline: BlockingPaceline, capfd: pytest.CaptureFixture[str]
) -> None:
    [address] = paceline.addresses("native")
    plain = address.partition("?")[0].removeprefix("tls://")
    assert cli.main(["topic", "list", "--bootstrap", plain]) == Exit.DATA
    said = " ".join(capfd.readouterr().err.split())
    assert f"{plain} speaks TLS (an address of it begins with tls://)" in said
