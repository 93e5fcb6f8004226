"""Asking before what cannot be undone."""

from __future__ import annotations

import sys

import click


def confirm(question: str, warning: str, *, yes: bool) -> None:
    """Go on only if the user says so: by ``--yes`` or, at a terminal, by an answer."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{warning}; confirm it with --yes")
    click.confirm(question, abort=True, err=True)
