"""scripts/setup on machines that lack something: one clear sentence and exit code 78."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def _fake_python(folder: Path, body: str) -> None:
    for name in ("python3", "python3.11", "python3.12", "python3.13", "python3.14", "python"):
        path = folder / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What of the repository ``setup`` looks at."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "setup", tmp_path / "scripts")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "bin").mkdir()
    return tmp_path


def _run(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": f"{checkout / 'bin'}:/usr/bin:/bin"}
    return subprocess.run(
        [checkout / "scripts" / "setup", *words],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_old_python_is_named(checkout: Path) -> None:
    _fake_python(checkout / "bin", '[ "$1" = --version ] && echo Python 3.9.2; exit 1')
    result = _run(checkout)
    assert result.returncode == 78
    assert "needs Python 3.11 or newer; this machine has Python 3.9.2" in result.stderr


def test_missing_venv_module_is_named(checkout: Path) -> None:
    _fake_python(checkout / "bin", 'case "$2" in *ensurepip*) exit 1 ;; esac; exit 0')
    result = _run(checkout)
    assert result.returncode == 78
    assert "no venv module" in result.stderr
    assert "python3-venv" in result.stderr


def test_finished_set_up_is_not_repeated(checkout: Path) -> None:
    _fake_python(checkout / "bin", "exit 1")
    binaries = checkout / ".venv" / "bin"
    binaries.mkdir(parents=True)
    shutil.copy("/bin/true", binaries / "paceline")
    stamp = f"{os.path.realpath(checkout)}\n{(checkout / 'pyproject.toml').read_text()}"
    (checkout / ".venv" / ".paceline-setup-run").write_text(stamp)
    assert _run(checkout, "run").returncode == 0
    assert _run(checkout).returncode == 78, "what a cluster needs is not what tests need"
    (checkout / ".venv" / ".paceline-setup").write_text(stamp)
    assert _run(checkout).returncode == 0
    (checkout / ".venv" / ".paceline-setup-run").unlink()
    assert _run(checkout, "run").returncode == 0, "who has everything has this, too"
    (checkout / "pyproject.toml").write_text("[project]\n")
    assert _run(checkout).returncode == 78


# A virtual environment is made by this; `pip` says what pip does, and fails as `FAIL` says.
_PYTHON = r"""
case "$*" in
    *"-m venv"*) mkdir -p .venv/bin; cp "$0" .venv/bin/python ;;
    *"-m pip"*)
        echo "pip $*" >>pip-calls
        echo "Collecting trio>=0.31 (from paceline==0.1.0)"
        echo "  Downloading trio-0.35.0-py3-none-any.whl (513 kB)"
        echo "Installing collected packages: trio, paceline"
        [ -z "$FAIL" ] || { echo "ERROR: no network" >&2; exit 1; }
        cp /bin/true .venv/bin/paceline ;;
esac
exit 0
"""


def test_set_up_says_what_it_does_and_brings_what_was_asked_for(checkout: Path) -> None:
    _fake_python(checkout / "bin", _PYTHON)
    result = _run(checkout, "run")
    assert result.returncode == 0, result.stderr
    assert "  trio>=0.31\n  putting them in their place\n" in result.stderr
    calls = (checkout / "pip-calls").read_text()
    assert "[segment]" in calls
    assert "[dev]" not in calls
    assert _run(checkout).returncode == 0
    calls = (checkout / "pip-calls").read_text()
    assert "[dev]" in calls
    assert "[interop]" in calls


def test_a_pip_that_fails_ends_the_set_up_with_its_message(checkout: Path) -> None:
    _fake_python(checkout / "bin", "FAIL=1" + _PYTHON)
    result = _run(checkout, "run")
    assert result.returncode == 69
    assert "ERROR: no network" in result.stderr
    assert "Check the network" in result.stderr
    assert not (checkout / ".venv" / ".paceline-setup-run").exists()
