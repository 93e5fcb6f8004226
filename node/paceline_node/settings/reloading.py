"""What may change while a node runs, and what of a change has to wait for a restart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from paceline.values import dataclass
from paceline_node.settings.loader import Leaf, leaves
from paceline_node.settings.tree import Settings


@dataclass(frozen=True, slots=True)
class Reload:
    """Keys of the settings that changed: those now in force, and those that need a restart."""

    applied: tuple[str, ...]
    refused: tuple[str, ...]


class LiveSettings:
    """The settings in force. What is reloadable is read from :attr:`current` at each use; the rest
    may be copied, for it never changes."""

    def __init__(self, settings: Settings) -> None:
        self.current = settings

    def take(self, wanted: Settings) -> Reload:
        """Put the reloadable settings of ``wanted`` in force; say what became of every change."""
        changed = [leaf for leaf in leaves() if _value(self.current, leaf) != _value(wanted, leaf)]
        applied = {leaf.key: _value(wanted, leaf) for leaf in changed if leaf.spec.reloadable}
        self.current = _with(self.current, applied)
        refused = tuple(leaf.key for leaf in changed if not leaf.spec.reloadable)
        return Reload(tuple(applied), refused)


def _value(settings: Settings, leaf: Leaf) -> object:
    value: object = settings
    for name in leaf.key.split("."):
        value = getattr(value, name)
    return value


def _with(settings: Settings, values: Mapping[str, object]) -> Settings:
    """A copy with other values of ``section.name`` keys."""
    sections: dict[str, Any] = {}
    for key, value in values.items():
        section, _, name = key.partition(".")
        part = sections.get(section, getattr(settings, section))
        sections[section] = replace(part, **{name: value})
    return replace(settings, **sections)
