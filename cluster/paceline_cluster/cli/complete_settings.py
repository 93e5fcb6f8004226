"""Shell completion of settings' names, for which no cluster is asked and no client loaded."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


def complete_topic_settings(
    _ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names of a topic's settings, with ``=`` where a value follows."""
    from paceline_node.settings.topic_config import KEYS

    end = "=" if param.name == "configs" else ""
    return _items([f"{name}{end}" for name in sorted(KEYS)], incomplete)


def complete_node_settings(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """``KEY=`` of a node's settings."""
    from paceline_node.settings.loader import leaves

    return _items([f"{name}=" for name in sorted(each.key for each in leaves())], incomplete)


def _items(names: list[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]
