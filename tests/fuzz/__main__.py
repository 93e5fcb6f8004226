"""``scripts/fuzz``: parsers under broken bytes, for as long as one likes."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from tests.fuzz.engine import Target, fuzz
from tests.fuzz.guided import GUIDED, breed
from tests.fuzz.targets import TARGETS

_SLICE = 250
"""Inputs of a target before the next one has its turn."""


@click.command()
@click.option("--minutes", type=click.FloatRange(min=0), default=1.0, show_default=True)
@click.option("--inputs", type=click.IntRange(1), help="Of each parser, however long it takes.")
@click.option("--guided", is_flag=True, help="Breed inputs by coverage; MINUTES for each parser.")
@click.option("--keep", type=click.Path(path_type=Path), default=Path(), help="Bred findings.")
@click.option("--target", "names", multiple=True, help="Only this parser; may be repeated.")
@click.option("--from", "first", type=click.IntRange(0), default=0, help="The first input.")
@click.option("--list", "only_list", is_flag=True, help="Show the parsers and end.")
def main(
    minutes: float,
    inputs: int | None,
    guided: bool,
    keep: Path,
    names: tuple[str, ...],
    first: int,
    only_list: bool,
) -> None:
    """Give each parser inputs by number, in turn, until the time is over. A finding is shown with
    its number: '--target NAME --from NUMBER' gives it again. Exit code 1 if there was any."""
    if only_list:
        for target in TARGETS.values():
            click.echo(target.name)
        return
    unknown = [name for name in names if name not in TARGETS]
    if unknown:
        raise click.UsageError(f"no target {unknown[0]!r}; there are {', '.join(TARGETS)}")
    if guided:
        sys.exit(1 if _breed(names or GUIDED, round(minutes * 60), keep) else 0)
    chosen = [TARGETS[name] for name in names or TARGETS]
    if inputs is None:
        sys.exit(1 if _fuzz(chosen, first, time.monotonic() + minutes * 60) else 0)
    sys.exit(1 if _fuzz(chosen, first, float("inf"), first + inputs) else 0)


def _breed(names: Sequence[str], seconds: int, keep: Path) -> int:
    """How many parsers misbehaved."""
    found = 0
    for name in names:
        click.echo(f"== {name}")
        found += breed(name, seconds, keep)
    click.echo(f"{len(names)} parsers for {seconds} s each, {found} findings")
    return found


def _fuzz(targets: list[Target], first: int, until: float, last: int | None = None) -> int:
    """How many parsers misbehaved; each is left alone after its first finding. Ends at the time
    ``until`` (monotonic), and before input ``last``."""
    given = dict.fromkeys((target.name for target in targets), 0)
    taken = dict(given)
    found = 0
    slices = itertools.count(first, _SLICE) if last is None else range(first, last, _SLICE)
    for start in slices:
        end = start + _SLICE if last is None else min(start + _SLICE, last)
        for target in tuple(targets):
            tally = fuzz(target, iter(range(start, end)), until=until)
            given[target.name] += tally.given
            taken[target.name] += tally.taken
            if tally.finding is not None:
                click.echo(f"FINDING {tally.finding}")
                targets.remove(target)
                found += 1
        if time.monotonic() >= until or not targets:
            break
    for name, count in given.items():
        click.echo(f"{name:20} {count:>12,} inputs, {taken[name]:>12,} of them taken")
    click.echo(f"{sum(given.values()):,} inputs, {found} findings")
    return found


if __name__ == "__main__":
    main()
