"""The profile: which clusters there are on this machine, and which one commands talk to when
nothing else says so.

``up`` selects the cluster it started. All that is known lies in one small file in the platform's
configuration folder (``$XDG_CONFIG_HOME/paceline/profile.json``)::

    {"dir": "/home/me/.local/share/paceline/default", "known": ["/.../default", "/.../other"]}

``dir`` is the selected one, null for none; ``known`` has them in the order of their last use. A
cluster's name is that of its directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from paceline.values import dataclass
from paceline_cluster import state
from paceline_cluster.errors import BadState, NoSuchCluster

PROFILE_FILE = "profile.json"
LOCK_FILE = "profile.lock"


@dataclass(frozen=True, slots=True)
class Profile:
    """The selected cluster: its directory on this machine."""

    dir: Path


@dataclass(frozen=True, slots=True)
class _Known:
    selected: Path | None
    dirs: tuple[Path, ...]

    def to_json(self) -> dict[str, Any]:
        selected = None if self.selected is None else str(self.selected)
        return {"dir": selected, "known": [str(each) for each in self.dirs]}


def config_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Where this user's Paceline configuration lies."""
    env = os.environ if environ is None else environ
    chosen = env.get("XDG_CONFIG_HOME")
    if chosen:
        return Path(chosen) / "paceline"
    home = Path(env.get("HOME") or Path.home())
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "paceline"
    return home / ".config" / "paceline"


def data_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Where ``up`` puts a cluster when no directory is named."""
    env = os.environ if environ is None else environ
    chosen = env.get("XDG_DATA_HOME")
    if chosen:
        return Path(chosen) / "paceline"
    home = Path(env.get("HOME") or Path.home())
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "paceline"
    return home / ".local" / "share" / "paceline"


def selected() -> Profile | None:
    """The profile that was selected last, if any. Raises BadState."""
    found = _read().selected
    return None if found is None else Profile(found)


def known() -> tuple[Path, ...]:
    """Directories of all clusters that were up here and not forgotten, the last used first. Raises
    BadState."""
    return _read().dirs


def named(name: str) -> Path:
    """The known cluster of a name or directory. Raises NoSuchCluster, which says what there is."""
    found = [each for each in known() if name in (each.name, str(each))]
    if not found:
        found = [each for each in known() if each == Path(name).resolve()]
    if len(found) == 1:
        return found[0]
    if found:
        where = ", ".join(str(each) for each in found)
        raise NoSuchCluster(f"several clusters are called {name!r}", hint=f"name one of {where}")
    raise NoSuchCluster(
        f"no cluster {name!r} is known here", hint="'paceline cluster list' shows which there are"
    )


def select(directory: Path) -> None:
    """Make the cluster in ``directory`` the one that commands find by themselves."""
    with _locked():
        others = [each for each in _read().dirs if each != directory and state.exists(each)]
        _write(_Known(directory, (directory, *others)))


def forget(directory: Path) -> None:
    """Know the cluster in ``directory`` no more; if it was selected, none is now."""
    with _locked():
        before = _read()
        left = tuple(each for each in before.dirs if each != directory)
        chosen = None if before.selected == directory else before.selected
        _write(_Known(chosen, left))


def _read() -> _Known:
    path = config_folder() / PROFILE_FILE
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return _Known(None, ())
    try:
        data = json.loads(text)
        selected = None if data["dir"] is None else Path(data["dir"])
        dirs = [Path(each) for each in data.get("known", ())]  # absent in earlier versions
    except (ValueError, TypeError, KeyError):
        raise BadState(f"{path} cannot be understood; remove it or run 'paceline up'") from None
    if selected is not None and selected not in dirs:
        dirs.insert(0, selected)
    return _Known(selected, tuple(dirs))


def _write(profile: _Known) -> None:
    path = config_folder() / PROFILE_FILE
    if profile.selected is None and not profile.dirs:
        path.unlink(missing_ok=True)
        return
    state.write_file(path, json.dumps(profile.to_json()) + "\n")


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """Two launchers at once both have their clusters known."""
    folder = config_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK_FILE).open("w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
