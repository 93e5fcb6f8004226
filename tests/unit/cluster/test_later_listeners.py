"""An older cluster gets the listeners that are installed now; nobody's choice is undone."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline_cluster import create, later_listeners, ports, state

OLDER = {name: port for name, port in ports.BASE_PORTS.items() if name != "cursus"}


async def older(directory: Path, *, offset: int, settings: dict[str, str] | None = None) -> None:
    plan = {
        node: {name: number for name, number in numbers.items() if name in OLDER}
        for node, numbers in ports.fixed_ports(range(2), offset=offset).items()
    }
    await create.create(directory, create.local_spec(plan, settings=settings or {}, voters=None))


async def test_a_listener_comes_at_its_documented_port_shifted_as_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """'pip install paceline[segment]' did nothing for a cluster that was there."""
    await older(tmp_path / "c", offset=7)
    monkeypatch.setattr(ports, "are_free", lambda _ports: True)
    assert later_listeners.add(tmp_path / "c") == ["cursus"]
    nodes = state.load(tmp_path / "c").nodes
    assert [node.listeners["cursus"] for node in nodes] == ["127.0.0.1:9007", "127.0.0.1:10007"]
    for node in nodes:
        settings = create.check_config(node.config_path)
        told = {str(each.kind.value): f"{each.host}:{each.port}" for each in settings.listeners}
        assert told == node.listeners
    assert later_listeners.add(tmp_path / "c") == []


async def test_a_port_that_is_taken_is_no_reason_to_refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await older(tmp_path / "c", offset=0)
    monkeypatch.setattr(ports, "are_free", lambda _ports: False)
    assert later_listeners.add(tmp_path / "c") == ["cursus"]
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
    assert later_listeners.add(tmp_path / "c") == []
    assert state.load(tmp_path / "c") == before
