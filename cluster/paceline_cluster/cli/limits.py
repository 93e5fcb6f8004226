"""``limits``: of what clients make a node keep, how many there may be."""

from __future__ import annotations

import click

from paceline_cluster.cli.output import Printer, Table, output_option
from paceline_node.settings import counts


@click.command()
@output_option
def limits(printer: Printer) -> None:
    """Show how many there may be of everything that is limited: the default, the setting that
    changes it, what happens to one more, and what makes room.

    A node's own values: 'paceline node settings --config FILE'.
    """
    rows = list(counts.rows())
    data = [
        {
            "what": count.what,
            "where": count.where,
            "bound": count.bound,
            "setting": count.key or None,
            "beyond": count.beyond,
            "room": count.room or None,
        }
        for count in counts.COUNTS
    ]
    printer.result(data, Table(counts.HEADS, rows, is_prose=True))
