"""``limits``: of what clients make a node keep, how many there may be."""

from __future__ import annotations

import click

from paceline_cluster.cli.output import Printer, Table, output_option
from paceline_node.settings import counts


@click.command()
@output_option
def limits(printer: Printer) -> None:
    """Show of what there may be how many by default, which setting changes that, what becomes of
    one more, and what makes room.

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
