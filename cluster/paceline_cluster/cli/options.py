"""Options that several commands share."""

from __future__ import annotations

import re

import click

STOP_TIMEOUT_S = 40.0
"""How long an orderly stop may take before it is a failure."""

VOTERS_HELP = (
    "How many of the nodes, the first ones, vote on the cluster's metadata. It is odd, for a "
    "majority of them must live (default: 3; 1 of fewer than three nodes)."
)

_KEY = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)?\Z")


def parse_settings(
    _ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    """``--set KEY=VALUE``; whether the node knows the key is the node's own loader's business."""
    settings = {}
    for text in values:
        key, equals, value = text.partition("=")
        if not equals or not _KEY.match(key):
            raise click.BadParameter(f"{text!r} is no SECTION.KEY=VALUE")
        settings[key] = value
    return settings
