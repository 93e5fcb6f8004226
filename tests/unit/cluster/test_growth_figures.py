"""The figures of growth come out, at a small size: what they say depends on the machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from paceline_cluster.bench import __main__ as bench
from paceline_cluster.bench import growth
from paceline_cluster.bench.growth import Growth
from paceline_cluster.bench.growth_plot import plot


@pytest.mark.parametrize(
    "work", [growth.members, growth.groups, growth.transactional_ids, growth.producers]
)
def test_each_kind_of_growth_is_measured(work: Callable[[int], Iterator[Growth]]) -> None:
    figures = [figure for each in work(40) for figure in each.figures()]
    assert figures
    assert all(each.value >= 0 for each in figures)
    assert [each.unit for each in figures[:2]] == ["µs", "ms"]
    assert "40" in figures[0].name


def _shapes(svg: str, kind: str) -> list[ElementTree.Element]:
    root = ElementTree.fromstring(svg)
    return root.findall(f".//{{http://www.w3.org/2000/svg}}{kind}")


def test_each_kind_is_a_row_of_curves() -> None:
    grown = [
        Growth(work, "one", size, 10.0 * size, 3.0, 1.0, 1, 1.0)
        for work in ("<{}> members", "{} groups")
        for size in (1000, 10, 100)
    ]
    svg = plot(grown)
    curves = [each.attrib["points"].split() for each in _shapes(svg, "polyline")]
    assert len(curves) == 6, "CPU, the longest stall and that without the collector, of each"
    for curve in curves:
        across = [float(point.split(",")[0]) for point in curve]
        assert across == sorted(across)
        assert across[1] - across[0] == pytest.approx(across[2] - across[1])
    assert _shapes(svg, "text")[0].text == "<n> members: µs for one"
    downs = [float(point.split(",")[1]) for point in curves[0]]
    assert downs == sorted(downs, reverse=True), "what costs more is drawn higher"


@pytest.mark.parametrize("size", [1, 40])
def test_a_single_size_and_nothing_measured_can_be_drawn(size: int) -> None:
    assert len(_shapes(plot([Growth("{} ids", "one", size, 0.0, 0.0, 0.0, 1, 0.0)]), "circle")) == 3


def test_the_bench_writes_the_plot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MEMBERS", "GROUPS", "IDS", "PRODUCERS"):
        monkeypatch.setattr(growth, name, (10, 20))
    file = tmp_path / "growth.svg"
    told = CliRunner().invoke(bench.main, ["--only", "growth", "--plot", str(file)])
    assert told.exit_code == 0, told.output
    assert len(_shapes(file.read_text(encoding="utf-8"), "polyline")) == 18


def test_a_plot_of_nothing_is_refused(tmp_path: Path) -> None:
    told = CliRunner().invoke(
        bench.main, ["--only", "latency", "--plot", str(tmp_path / "growth.svg")]
    )
    assert told.exit_code == 2
    assert "add --only growth" in told.output
