"""Ports of a local cluster: documented bases, conflicts named, free ones distinct."""

import os
import socket
import tempfile
from pathlib import Path

import pytest
import trio
import trio.testing

from paceline_cluster import ports
from paceline_cluster.errors import BadSetting


def test_documented_ports() -> None:
    plan = ports.fixed_ports(range(3))
    assert plan[0] == {
        "v1": 9092, "native": 7400, "peer": 7401, "http": 7480, "segment": 12345, "cursus": 9000,
        "kafka": 9192, "pravega": 9090,
    }  # fmt: skip
    assert [port - plan[0][name] for name, port in plan[2].items()] == [2000] * len(plan[2])


def test_offset_shifts_all() -> None:
    assert ports.fixed_ports([1], offset=100)[1]["v1"] == 10192


def test_documented_ports_never_meet() -> None:
    plan = ports.fixed_ports(range(9))
    flat = [port for listeners in plan.values() for port in listeners.values()]
    assert len(set(flat)) == len(flat)


def test_port_in_use_is_named_with_the_way_out() -> None:
    with socket.socket() as taken:
        taken.bind((ports.HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BadSetting, match=f"port {port} .v1 listener of node 4. is in use.*any"):
            ports.require_free({4: {"v1": port}})


@pytest.mark.parametrize("port", [0, -5, 65536, 70_092])
def test_impossible_port(port: int) -> None:
    with pytest.raises(BadSetting, match=r"expected a number from 1 to 65535; choose other"):
        ports.require_free({0: {"v1": port}})


async def test_free_ports_are_distinct_and_bindable() -> None:
    async with ports.free_ports(range(5)) as plan:
        flat = [port for listeners in plan.values() for port in listeners.values()]
        assert len(set(flat)) == 5 * len(ports.BASE_PORTS)
        ports.require_free(plan)


def test_what_is_chosen_already_is_not_chosen_again() -> None:
    usable = ports.random_range()
    chosen = set(usable[: len(usable) // 2])
    assert not chosen & set(ports.free_numbers(50, besides=chosen))


def test_numbers_are_not_those_that_somebody_else_has_just_chosen() -> None:
    """Of two clusters that began at once, one in five chose a port of the other's that nobody had
    bound yet: one broke when it bound it, minutes later if a node was down."""
    chosen = [port for _ in range(10) for port in ports.free_numbers(27)]
    assert len(set(chosen)) == len(chosen)


async def test_numbers_are_not_those_of_nodes_that_may_be_down_for_a_moment() -> None:
    """A port of a killed node is free until it starts again: others were chosen from all."""
    async with ports.free_ports(range(9)) as plan:
        chosen = {port for listeners in plan.values() for port in listeners.values()}
        usable = ports.random_range()
        behind = (max(map(usable.index, chosen)) - usable.index(min(chosen))) % len(usable)
        for _ in range(20):
            numbers = ports.free_numbers(20)
            assert not chosen & set(numbers)
            distances = [
                (usable.index(number) - usable.index(min(chosen))) % len(usable)
                for number in numbers
            ]
            if behind < len(usable) // 8:  # not where the range begins anew between them
                assert len(usable) // 8 <= min(distances)
                assert max(distances) < len(usable) // 2


@pytest.mark.parametrize(
    ("first", "last", "usable"),
    [
        (32768, 60999, range(20_000, 32768)),
        (15_000, 60_000, range(60_001, 65536)),
        (15_000, 65_000, range(10_240, 15_000)),
        (1024, 65535, range(20_000, 65536)),
    ],
    ids=["linux", "room above", "room far below", "no room"],
)
def test_random_ports_lie_beside_those_of_outgoing_connections(
    first: int, last: int, usable: range
) -> None:
    assert ports.beside(first, last) == usable


async def test_two_at_once_in_one_process_choose_one_after_the_other() -> None:
    choosing = 0

    async def choose() -> None:
        nonlocal choosing
        async with ports.free_ports(range(1)):
            choosing += 1
            assert choosing == 1
            await trio.testing.wait_all_tasks_blocked()
            choosing -= 1

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(choose)


async def test_ports_that_were_chosen_lately_are_not_chosen_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster that is stopped for a while finds its ports free when it comes back."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen: set[int] = set()
    for _ in range(20):
        async with ports.free_ports(range(3)) as plan:
            numbers = {port for listeners in plan.values() for port in listeners.values()}
        assert len(numbers) == 3 * len(ports.BASE_PORTS)
        assert numbers.isdisjoint(seen)
        seen |= numbers


async def test_choosing_goes_round_and_forgives_a_spoiled_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    usable = ports.random_range()
    for text in (str(usable[-2]), "70000", "nonsense", ""):
        (tmp_path / f"paceline-ports-{os.getuid()}.lock").write_text(text)
        async with ports.free_ports(range(1)) as plan:
            assert set(plan[0].values()) <= set(usable)


async def test_a_link_in_place_of_the_memory_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    precious = tmp_path / "precious"
    precious.write_text("kept")
    (tmp_path / f"paceline-ports-{os.getuid()}.lock").symlink_to(precious)
    with pytest.raises(BadSetting, match=r"paceline-ports-\d+.lock, where .* remove it"):
        async with ports.free_ports(range(1)):
            pass
    assert precious.read_text() == "kept"
