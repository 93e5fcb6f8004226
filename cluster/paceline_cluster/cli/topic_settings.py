"""``topic settings``: what can be set for a topic."""

from __future__ import annotations

import click

from paceline_cluster.cli.output import Printer, Table, output_option


@click.command("settings")
@output_option
def settings(printer: Printer) -> None:
    """Show what can be set for a topic, with bounds and defaults.

    'topic create' and 'topic alter' set it by --config; what holds for a topic, and where that is
    from, is shown by 'topic describe'.
    """
    from paceline_node.settings.topic_config import KEYS

    data = [
        {"name": key.name, "default": key.default, "allowed": key.allowed, "meaning": key.doc}
        for key in KEYS.values()
    ]
    columns = ("name", "default", "allowed", "meaning")
    rows = [tuple(each[column] for column in columns) for each in data]
    printer.result({"settings": data}, Table(columns, rows, is_prose=True))
