"""The wheel that users install: without what only the checkout runs, and whole all the same."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CHECKOUT_ONLY = ("bench", "pipeline_chaos", "round_trip", "sim", "process_tree", "spark_standalone")
EVERYTHING = """
import importlib, pkgutil, sys
import paceline, paceline_cluster, paceline_node
from paceline_cluster.cli.main import COMMANDS, paceline as command

for name in COMMANDS:
    assert command.get_command(None, name) is not None, name
for package in (paceline.wire, paceline.client, paceline_node, paceline_cluster):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
for name, module in list(sys.modules.items()):
    if name.partition(".")[0] in ("paceline", "paceline_cluster", "paceline_node"):
        assert module.__file__.startswith(sys.argv[1]), module
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this checkout, unpacked."""
    where = tmp_path_factory.mktemp("wheel")
    built = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", where]
    subprocess.run(built, cwd=ROOT, check=True, capture_output=True)
    (file,) = where.glob("*.whl")
    unpacked = where / "unpacked"
    with zipfile.ZipFile(file) as packed:
        packed.extractall(unpacked)
    return unpacked


def test_simulator_and_benchmarks_stay_in_the_checkout(wheel: Path) -> None:
    inside = {each.stem for each in (wheel / "paceline_cluster").iterdir()}
    here = {each.stem for each in (ROOT / "cluster" / "paceline_cluster").iterdir()}
    assert here - inside - {"__pycache__"} == set(CHECKOUT_ONLY)
    assert {"chaos", "checker", "cli", "faulty", "testing"} <= inside


def test_the_console_is_in_it(wheel: Path) -> None:
    def files(root: Path) -> set[str]:
        static = root / "paceline_node" / "http" / "console" / "static"
        return {str(each.relative_to(static)) for each in static.rglob("*") if each.is_file()}

    assert files(wheel) == files(ROOT / "node")
    assert "index.html" in files(wheel)


def test_every_command_and_module_is_imported_without_them(wheel: Path) -> None:
    # Without site, whose .pth file of an editable installation leads to the checkout.
    paths = [str(wheel), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    program = f"import sys; sys.path[:0] = {paths!r}\n{EVERYTHING}"
    run = [sys.executable, "-S", "-E", "-c", program, str(wheel)]
    done = subprocess.run(run, cwd=wheel, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
