"""Which group a command means: its name, and the protocol of its members."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

FAMILIES = ("kafka", "v1", "cursus", "coordinator")


@dataclass(frozen=True, slots=True)
class GroupName:
    """Groups of the same name in two families are two (DESIGN 1). ``subject`` is the topic of a
    group that exists once for each topic, otherwise empty."""

    name: str
    family: str
    subject: str


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
