"""``topic settings``: what can be set for a topic."""

from __future__ import annotations

import click

from paceline_cluster.cli.output import Printer, Table, output_option
from paceline_cluster.cli.units import told, told_bounds


@click.command("settings")
@output_option
def settings(printer: Printer) -> None:
    """Show what can be set for a topic, with bounds and defaults.

    'topic create' and 'topic alter' set it by --config; 'topic describe' shows the values in force
    for a topic, and where they are from.
    """
    from paceline_node.settings.topic_config import KEYS

    data = [
        {"name": key.name, "default": key.default, "allowed": key.allowed, "meaning": key.doc}
        for key in KEYS.values()
    ]
    columns = ("name", "default", "allowed", "meaning")
    rows = [
        (key.name, told(key.name, key.default), told_bounds(key.name), key.doc)
        for key in KEYS.values()
    ]
    printer.result({"settings": data}, Table(columns, rows, is_prose=True))
