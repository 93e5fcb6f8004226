"""Which group a command means besides its name: the protocol of its members, the topic it is of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

FAMILIES = ("kafka", "v1", "cursus", "coordinator")


def family_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds ``--family`` and ``--subject``."""
    function = click.option(
        "--subject",
        default="",
        metavar="TOPIC",
        help="With --family cursus: the topic whose group is meant.",
    )(function)
    return click.option(
        "--family",
        type=click.Choice(FAMILIES),
        default="kafka",
        show_default=True,
        help="The protocol of its members; kafka is also that of 'paceline consume --group'.",
    )(function)
