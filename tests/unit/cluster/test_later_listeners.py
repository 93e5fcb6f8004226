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
