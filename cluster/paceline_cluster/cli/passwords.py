"""Secrets on their way into a command: from a file or a terminal, never from the command line,
which every user of the machine can read."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

_MOST_BYTES = 4096

password_file_option = click.option(
    "--password-file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True, allow_dash=True),
    help="Read the password from a file's first line, '-': from stdin. Asked for at a terminal "
    "where this is missing.",
)


def read_password(file: Path | None, prompt: str) -> str:
    """The password in ``file``, or what is typed, twice the same."""
    if file is not None:
        return first_line(file, "password")
    if not sys.stdin.isatty():
        raise click.UsageError("stdin is no terminal: give the password with --password-file")
    typed: str = click.prompt(prompt, hide_input=True, confirmation_prompt=True, err=True)
    return typed


def first_line(file: Path, what: str) -> str:
    """The secret on the first line of a file; '-' is stdin."""
    try:
        if str(file) == "-":
            data = sys.stdin.buffer.readline(_MOST_BYTES)
        else:
            with file.open("rb") as source:
                data = source.readline(_MOST_BYTES)
        secret = data.rstrip(b"\r\n").decode()
    except UnicodeDecodeError:
        raise click.BadParameter(f"{file}: the {what} is no UTF-8") from None
    if not secret:
        raise click.BadParameter(f"{file}: its first line is empty, there is no {what}")
    return secret


def write_secret(file: Path, secret: str) -> None:
    """A new file that only its owner can read. Raises FileExistsError."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as target:
        target.write(secret + "\n")
