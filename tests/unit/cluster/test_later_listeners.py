"""An older cluster gets the listeners that are installed now; nobody's choice is undone."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
import trio

from paceline_cluster import create, later_listeners, node_config, ports, state
from paceline_cluster.errors import BadSetting

OLDER = {name: port for name, port in ports.BASE_PORTS.items() if name != "cursus"}


async def older(directory: Path, *, offset: int, settings: dict[str, str] | None = None) -> None:
    plan = {
        node: {name: number for name, number in numbers.items() if name in OLDER}
        for node, numbers in ports.fixed_ports(range(2), offset=offset).items()
    }
    await create.create(directory, create.local_spec(plan, settings=settings or {}, voters=None))


async def add(directory: Path) -> list[str]:
    async with later_listeners.adding(directory) as added:
        return added


async def test_a_listener_comes_at_its_documented_port_shifted_as_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """'pip install paceline[segment]' did nothing for a cluster that was there."""
    await older(tmp_path / "c", offset=7)
    monkeypatch.setattr(ports, "are_free", lambda _ports: True)
    assert await add(tmp_path / "c") == ["cursus"]
    nodes = state.load(tmp_path / "c").nodes
    assert [node.listeners["cursus"] for node in nodes] == ["127.0.0.1:9007", "127.0.0.1:10007"]
    for node in nodes:
        settings = create.check_config(node.config_path)
        told = {str(each.kind.value): f"{each.host}:{each.port}" for each in settings.listeners}
        assert told == node.listeners
    assert await add(tmp_path / "c") == []


async def test_a_port_that_is_taken_is_no_reason_to_refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await older(tmp_path / "c", offset=0)
    monkeypatch.setattr(ports, "are_free", lambda _ports: False)
    assert await add(tmp_path / "c") == ["cursus"]
    numbers = {
        address.rpartition(":")[2]
        for node in state.load(tmp_path / "c").nodes
        for address in node.listeners.values()
    }
    assert len(numbers) == 2 * len(ports.BASE_PORTS)
    assert not {"9000", "10000"} & numbers


async def test_chosen_listeners_stay_as_they_were_chosen(tmp_path: Path) -> None:
    chosen = "native://127.0.0.1:7400,peer://127.0.0.1:7401"
    await older(tmp_path / "c", offset=0, settings={"listeners": chosen})
    before = state.load(tmp_path / "c")
    assert await add(tmp_path / "c") == []
    assert state.load(tmp_path / "c") == before


def lay(config: Path, settings: dict[str, str]) -> None:
    """Change a node's configuration as its owner does, by hand."""
    config.write_text(node_config.with_settings(config.read_text(), settings))


async def test_a_listener_that_nodes_have_by_an_older_name_is_not_added(tmp_path: Path) -> None:
    directory = tmp_path / "c"
    await older(directory, offset=0)
    await add(directory)
    configs = [node.config_path for node in state.load(directory).nodes]
    for file in (directory / state.CLUSTER_FILE, *configs):
        text = file.read_text()
        assert "kafka" in text
        file.write_text(text.replace("kafka", "coordinator"))
    assert await add(directory) == []
    for node in state.load(directory).nodes:
        served = create.check_config(node.config_path).listeners
        assert {str(each.kind.value) for each in served} == set(node.listeners)
        assert "kafka" in node.listeners


@pytest.mark.parametrize(
    "url", ["cursus://127.0.0.1:9500", "cursus://0.0.0.0:9500?advertised=127.0.0.1"]
)
async def test_what_was_added_by_hand_is_left_alone(tmp_path: Path, url: str) -> None:
    """Another listener of its kind was put beside it, and no node started any more."""
    await older(tmp_path / "c", offset=0)
    [first, second] = before = state.load(tmp_path / "c").nodes
    urls = tomllib.loads(second.config_path.read_text())["listeners"]
    lay(second.config_path, {"listeners": json.dumps([*urls, url])})
    texts = [each.config_path.read_text() for each in before]
    assert await add(tmp_path / "c") == []
    assert [each.config_path.read_text() for each in before] == texts
    assert state.load(tmp_path / "c").nodes == (first, second)


async def test_nothing_is_stored_where_a_node_would_not_take_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first node's file was written before the second's was looked at."""
    await older(tmp_path / "c", offset=0)
    monkeypatch.setattr(ports, "are_free", lambda _ports: True)
    before = state.load(tmp_path / "c").nodes
    lay(before[1].config_path, {"no.such": "1"})
    texts = [each.config_path.read_text() for each in before]
    with pytest.raises(BadSetting, match=r"no\.such"):
        await add(tmp_path / "c")
    assert [each.config_path.read_text() for each in before] == texts
    assert state.load(tmp_path / "c").nodes == before


async def test_its_own_ports_are_taken_and_a_file_may_have_them_in_one_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await older(tmp_path / "c", offset=0)
    monkeypatch.setattr(ports, "are_free", lambda _ports: True)
    config = state.load(tmp_path / "c").nodes[0].config_path
    urls = tomllib.loads(config.read_text())["listeners"]
    lay(config, {"listeners": ",".join([*urls, "cursus-health://127.0.0.1:9000"])})
    assert await add(tmp_path / "c") == ["cursus"]
    told = {str(each.kind.value): each.port for each in create.check_config(config).listeners}
    assert told.keys() == {*ports.BASE_PORTS, "cursus-health"}
    assert len(set(told.values())) == len(told)


async def test_ports_are_kept_until_the_nodes_have_them(
    tmp_path: Path, autojump_clock: object
) -> None:
    """Another launcher could choose the same ones before the nodes had bound them."""
    await older(tmp_path / "c", offset=0)
    async with later_listeners.adding(tmp_path / "c") as added:
        assert added == ["cursus"]
        with trio.move_on_after(10) as scope:
            async with ports.choosing():
                pass
        assert scope.cancelled_caught
    async with ports.choosing():
        pass


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it."""


def kill_before_write(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """End the launcher when it is about to write its file of that number, counted from 0."""
    write_file = state.write_file
    written = []

    def write(path: Path, text: str, *, mode: int = 0o644) -> None:
        if len(written) == number:
            raise Killed
        written.append(path)
        write_file(path, text, mode=mode)

    monkeypatch.setattr(state, "write_file", write)


async def killed_while_it_adds(directory: Path, number: int) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        kill_before_write(number, patch)
        try:
            await add(directory)
        except Killed:
            return True
    return False


@pytest.mark.parametrize("documented", [True, False])
async def test_a_launcher_killed_while_it_adds_leaves_no_listener_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, documented: bool
) -> None:
    """What it had written was taken for its owner's choice, and left alone for good."""
    monkeypatch.setattr(ports, "are_free", lambda _ports: documented)
    number = 0
    while True:
        directory = tmp_path / f"killed-before-{number}"
        await older(directory, offset=0)
        if not await killed_while_it_adds(directory, number):
            break
        assert await add(directory) == ["cursus"]
        for node in state.load(directory).nodes:
            settings = create.check_config(node.config_path)
            told = {str(each.kind.value): f"{each.host}:{each.port}" for each in settings.listeners}
            assert told == node.listeners
            assert "cursus" in told
        assert await add(directory) == []
        number += 1
    assert number == 4, "the note, two configurations, cluster.json"


async def test_what_its_owner_does_after_the_kill_is_his_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first node's file has a listener of ours; the second gets one by hand."""
    monkeypatch.setattr(ports, "are_free", lambda _ports: True)
    await older(tmp_path / "c", offset=0)
    [first, second] = state.load(tmp_path / "c").nodes
    text = first.config_path.read_text()
    number = 0
    while first.config_path.read_text() == text:
        assert await killed_while_it_adds(tmp_path / "c", number)
        number += 1
    urls = tomllib.loads(second.config_path.read_text())["listeners"]
    by_hand = "cursus://127.0.0.1:9500"
    lay(second.config_path, {"listeners": json.dumps([*urls, by_hand])})
    assert await add(tmp_path / "c") == []
    assert first.config_path.read_text() == text
    assert by_hand in tomllib.loads(second.config_path.read_text())["listeners"]
    assert state.load(tmp_path / "c").nodes == (first, second)


async def test_what_was_added_stays_where_only_the_note_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "are_free", lambda _ports: True)
    await older(tmp_path / "c", offset=0)
    assert await killed_while_it_adds(tmp_path / "c", 3)
    note = (tmp_path / "c" / later_listeners.MARKER).read_text()
    assert await add(tmp_path / "c") == ["cursus"]
    nodes = state.load(tmp_path / "c").nodes
    texts = [each.config_path.read_text() for each in nodes]
    (tmp_path / "c" / later_listeners.MARKER).write_text(note)
    assert await add(tmp_path / "c") == []
    assert state.load(tmp_path / "c").nodes == nodes
    assert [each.config_path.read_text() for each in nodes] == texts
    assert not (tmp_path / "c" / later_listeners.MARKER).exists()


async def test_a_file_that_is_broken_meanwhile_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "are_free", lambda _ports: True)
    await older(tmp_path / "c", offset=0)
    assert await killed_while_it_adds(tmp_path / "c", 2)
    config = state.load(tmp_path / "c").nodes[0].config_path
    config.write_text("listeners = [")
    with pytest.raises(BadSetting, match=str(config)):
        await add(tmp_path / "c")
