"""The plugin in a pytest of its own: the README's example, failures, leaks, wrong markers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType

import pytest

import paceline_cluster.testing

HANG_S = 120.0


INI = "[pytest]\nfilterwarnings = error\n"


def _pytest(
    folder: Path,
    text: str,
    *words: str,
    ini: str = INI + "trio_mode = true\n",
    variables: Mapping[str, str] = MappingProxyType({}),
) -> tuple[int, str]:
    (folder / "test_it.py").write_text(text)
    (folder / "pytest.ini").write_text(ini)
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *words],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        timeout=HANG_S,
        text=True,
        check=False,
    )
    return result.returncode, result.stdout + result.stderr


def test_the_plugin_is_registered() -> None:
    found = [each.value for each in entry_points(group="pytest11") if each.name == "paceline"]
    assert found == ["paceline_cluster.testing.plugin"], "install again: ./scripts/setup"


def test_the_example_of_the_readme_passes(tmp_path: Path) -> None:
    readme = Path(paceline_cluster.testing.__file__).parent / "README.md"
    [example, *_] = re.findall(r"```python\n(.*?)```", readme.read_text(), re.DOTALL)
    code, output = _pytest(tmp_path, example, ini=INI)  # a reader has configured no trio_mode
    assert code == 0, output
    assert "3 passed" in output


def test_a_failure_shows_the_cluster_and_a_leak_fails(tmp_path: Path) -> None:
    code, output = _pytest(
        tmp_path,
        """
import pytest

@pytest.mark.paceline(nodes=1)
def test_fails(paceline):
    paceline.create_topic("orders")
    assert 1 == 2

@pytest.mark.paceline(nodes=1)
def test_leaks(paceline):
    test_leaks.kept = paceline.connect()

@pytest.mark.paceline(knots=3)
def test_wrong_marker(paceline):
    pass

def test_needs_nothing():
    import sys
    test_leaks.kept.close()
""",
    )
    assert code == 1, output
    assert "2 passed" in output, "a leak is an error after a test that passed"
    assert "1 failed" in output
    assert "2 errors" in output
    assert "paceline cluster" in output
    assert "orders/0: leader 0" in output
    assert "left open by the test: thread paceline-client" in output
    assert "paceline(nodes=3, settings={}, tls=False)" in output


@pytest.mark.slow
def test_a_fixture_that_fails_shows_the_cluster_and_a_test_that_passes_shows_nothing(
    tmp_path: Path,
) -> None:
    code, output = _pytest(
        tmp_path,
        """
import pytest
from paceline.errors import ConfigurationError

pytestmark = pytest.mark.paceline(nodes=1)

@pytest.fixture
def shop(paceline):
    paceline.create_topic("orders")
    raise RuntimeError("the shop is closed")

def test_needs_the_shop(shop):
    pass

def test_passes(paceline):
    paceline.create_topic("bills")
    assert paceline.addresses() == paceline.bootstrap
    with pytest.raises(ConfigurationError, match="'kafak' is no listener .* it has .*kafka"):
        paceline.addresses("kafak")
""",
        "-rA",
    )
    assert code == 1, output
    assert "1 passed, 1 error" in output
    assert "orders/0: leader 0" in output, "what the cluster was when the fixture failed"
    assert "bills" not in output


def test_a_run_without_clusters_loads_none_of_it(tmp_path: Path) -> None:
    code, output = _pytest(
        tmp_path,
        """
import sys

def test_nothing_is_loaded():
    assert "paceline_cluster.testing.plugin" in sys.modules
    loaded = [name for name in sys.modules if name.startswith(("paceline_node", "paceline.client"))]
    assert loaded == []
""",
    )
    assert code == 0, output


FAILS = """
import pytest

pytestmark = pytest.mark.paceline(nodes=1)

def test_fails(paceline):
    paceline.create_topic("orders", partitions=30)
    assert 1 == 2

def test_waits_in_vain(paceline):
    paceline.create_topic("orders", partitions=30)
    paceline.wait_for_high_watermark("orders", offset=1, timeout_s=0.1)
"""
LOG_LINE = re.compile(r"^(?:E +)?\d\d:\d\d:\d\d\.\d+ node-0 \w+ .*$", re.MULTILINE)


@pytest.mark.slow
def test_a_failure_shows_a_few_log_lines_once_and_says_where_all_are(tmp_path: Path) -> None:
    # With CI set, pytest's summary repeats whole messages.
    code, output = _pytest(
        tmp_path, FAILS, f"--basetemp={tmp_path / 'inner'}", variables={"CI": "true"}
    )
    assert code == 1, output
    assert len(LOG_LINE.findall(output)) == 2 * 10, "by default, and not twice for one that waits"
    files = re.findall(r"the nodes' logs, (\S+), end:", output)
    assert len(files) == 2
    for file in map(Path, files):
        assert len(file.read_text().splitlines()) > 20

    code, output = _pytest(tmp_path, FAILS, "-o", "paceline_log_lines=3")
    assert code == 1, output
    assert len(LOG_LINE.findall(output)) == 2 * 3

    code, output = _pytest(tmp_path, FAILS, "--paceline-show-logs")
    assert code == 1, output
    assert len(LOG_LINE.findall(output)) > 2 * 20


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "not within"),
        pytest.param(("--paceline-processes",), "not ready after", marks=pytest.mark.slow),
    ],
)
def test_how_long_a_cluster_may_take_is_configured(
    tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    code, output = _pytest(tmp_path, FAILS, *words, ini=INI + "paceline_start_timeout = 0.01\n")
    assert code == 1, output
    assert "2 errors" in output
    assert f"{told} 0.01 s" in output
    assert "paceline_start_timeout = 0.01 in pytest's configuration" in output


def test_how_long_it_may_take_is_a_number(tmp_path: Path) -> None:
    code, output = _pytest(tmp_path, FAILS, ini=INI + "paceline_start_timeout = soon\n")
    assert code == 1, output
    assert "paceline_start_timeout is a number, 0 or more; got 'soon'" in output
