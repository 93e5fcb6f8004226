"""``completion``: the script that makes a shell complete ``paceline`` (click's own)."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    For bash: eval "$(paceline completion bash)"; likewise for the others.
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows the shells of the choice"
    root = ctx.find_root().command
    click.echo(kind(root, {}, "paceline", "_PACELINE_COMPLETE").source())
