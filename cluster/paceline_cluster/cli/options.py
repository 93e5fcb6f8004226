"""Options that several commands share."""

from __future__ import annotations

import re

import click

from paceline_cluster.cli.complete_settings import complete_node_settings

STOP_TIMEOUT_S = 40.0
"""How long an orderly stop may take before it is a failure."""

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


voters_option = click.option(
    "--voters",
    type=click.Choice(["1", "3", "5"]),
    help="How many of the nodes, the first ones, vote on the cluster's metadata. It is odd, for a "
    "majority of them must live (default: 3; 1 of fewer than three nodes).",
)
settings_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    callback=parse_settings,
    shell_complete=complete_node_settings,
    help="A setting for all nodes, for example log.segment_bytes=1048576.",
)
