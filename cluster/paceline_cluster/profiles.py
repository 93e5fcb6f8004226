"""The profile: which cluster commands talk to when nothing else says so.

``up`` selects the cluster it started; the choice is one small file in the platform's configuration
folder (``$XDG_CONFIG_HOME/paceline/profile.json``).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paceline_cluster import state
from paceline_cluster.errors import BadState

PROFILE_FILE = "profile.json"


@dataclass(frozen=True, slots=True)
class Profile:
    """The selected cluster: its directory on this machine."""

    dir: Path


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
    path = config_folder() / PROFILE_FILE
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        return Profile(dir=Path(json.loads(text)["dir"]))
    except (ValueError, TypeError, KeyError):
        raise BadState(f"{path} cannot be understood; remove it or run 'paceline up'") from None


def select(directory: Path) -> None:
    """Make the cluster in ``directory`` the one that commands find by themselves."""
    folder = config_folder()
    folder.mkdir(parents=True, exist_ok=True)
    state.write_file(folder / PROFILE_FILE, json.dumps({"dir": str(directory)}) + "\n")


def forget(directory: Path) -> None:
    """Drop the profile if it names ``directory`` (the cluster was purged)."""
    profile = selected()
    if profile is not None and profile.dir == directory:
        (config_folder() / PROFILE_FILE).unlink(missing_ok=True)
