"""The settings of a cluster's nodes on this machine: what holds, and changing it (DESIGN 9)."""

from __future__ import annotations

import difflib
import signal
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from paceline.values import dataclass
from paceline_cluster import create, growing, node_config, processes, state
from paceline_cluster.errors import BadSetting, Refused
from paceline_cluster.state import ClusterState, NodeEntry
from paceline_node.settings.loader import Leaf, leaves
from paceline_node.settings.printing import toml
from paceline_node.settings.tree import Settings, Timing

FIXED = ("node.id", "node.data_dir", "listeners", "cluster.bootstrap", "cluster.secret_file")
"""What other nodes, clients and the launcher know a node by, and where its records are."""
OWN = ("node.", "tls.")
"""Each node has its own of these."""


@dataclass(frozen=True, slots=True)
class Held:
    """A setting as these nodes have it in their files; values are TOML. ``restart``: whether a
    change takes a restart."""

    key: str
    value: str
    default: str
    restart: bool
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Changed:
    """What was changed in the files of these nodes."""

    key: str
    before: str
    after: str
    restart: bool
    nodes: tuple[int, ...]


def held(current: ClusterState) -> list[Held]:
    """All settings, in the order of the reference. Raises BadSetting."""
    read = {entry.id: create.check_config(entry.config_path) for entry in current.nodes}
    found = []
    for leaf in leaves():
        by_value: dict[tuple[str, str], list[int]] = defaultdict(list)
        for node, settings in read.items():
            by_value[_value(settings, leaf), _default(settings, leaf)].append(node)
        found += [
            Held(leaf.key, value, default, not leaf.spec.reloadable, tuple(nodes))
            for (value, default), nodes in by_value.items()
        ]
    return found


def change(
    directory: Path, given: Mapping[str, str], removed: Collection[str], nodes: Collection[int] = ()
) -> list[Changed]:
    """Lay ``given`` over the files of all nodes, or of ``nodes``, and take ``removed`` out of them.

    Raises Refused, NoSuchNode and BadSetting, and then nothing is changed.
    """
    _require_changeable([*given, *removed], nodes)
    with state.locked(directory):
        current = state.load(directory)
        if not growing.is_local(current):
            raise Refused(
                f"nodes of the cluster in {directory} have their files on machines of their own",
                hint="change their node.toml there; SIGHUP has a node read it again",
            )
        entries = [current.node(node) for node in sorted(nodes)] or list(current.nodes)
        texts, changed = _planned(entries, given, removed)
        for path, text in texts.items():
            state.write_file(path, text)
        if not nodes:
            kept = {key: text for key, text in current.settings.items() if key not in removed}
            state.store(directory, replace(current, settings={**kept, **given}))
    return changed


def have_read(entries: Iterable[NodeEntry]) -> None:
    """Have nodes that serve read their files again: SIGHUP ends a process that is only starting."""
    for entry in entries:
        processes.send(entry.pid, entry.pid_started, signal.SIGHUP)


def _require_changeable(keys: Iterable[str], nodes: Collection[int]) -> None:
    known = [leaf.key for leaf in leaves()]
    for key in keys:
        if key not in known:
            meant = difflib.get_close_matches(key, known, n=1)
            raise BadSetting(
                f"there is no setting {key}" + (f"; did you mean {meant[0]}?" if meant else ""),
                hint="'paceline config list --all' shows all",
            )
        if key in FIXED:
            raise Refused(f"{key} is what others know a node by, and stays as it was made")
        if key.startswith(OWN) and not nodes:
            raise Refused(f"each node has its own {key}", hint="name the node with --node")


def _planned(
    entries: Sequence[NodeEntry], given: Mapping[str, str], removed: Collection[str]
) -> tuple[dict[Path, str], list[Changed]]:
    texts = {}
    by_change: dict[tuple[str, str, str, bool], list[int]] = defaultdict(list)
    for entry in entries:
        before = create.check_config(entry.config_path)
        create.check_config(entry.config_path, given)  # names what was given, not the file
        old = entry.config_path.read_text(encoding="utf-8")
        text = node_config.without(node_config.with_settings(old, given), removed)
        after = create.check_text(text)
        texts[entry.config_path] = text
        for leaf, was, will in _differences(before, after):
            by_change[leaf.key, was, will, not leaf.spec.reloadable].append(entry.id)
    return texts, [Changed(*what, tuple(nodes)) for what, nodes in by_change.items()]


def _differences(before: Settings, after: Settings) -> Iterator[tuple[Leaf, str, str]]:
    """Others than those that were given, too: ``cluster.timing`` changes defaults."""
    for leaf in leaves():
        was, will = _value(before, leaf), _value(after, leaf)
        if was != will:
            yield leaf, was, will


def _value(settings: Settings, leaf: Leaf) -> str:
    holder: object = settings
    for name in leaf.key.split("."):
        holder = getattr(holder, name)
    return toml(holder)


def _default(settings: Settings, leaf: Leaf) -> str:
    is_local = settings.cluster.timing is Timing.LOCAL
    return toml(leaf.spec.local if is_local else leaf.default)
