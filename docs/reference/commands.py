"""The command line: every command of the click tree, with its usage, meaning and options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from docs.reference.markdown import code, escape, line, table, whole
from paceline_cluster.cli.main import paceline

_INTRO = """
Made from the commands themselves: what `paceline COMMAND --help` says, on one page.

*SECONDS* may have a unit: `--timeout 5m` ([times and sizes](units.md)).

Commands with a result take `--output json` or `yaml` ([what they print](json.md)). What went wrong
stands on standard error behind `paceline:`, and in the exit code ([which ones there
are](errors.md)).
"""


def commands(
    command: click.Command = paceline, path: str = "paceline", parent: click.Context | None = None
) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Every command and group, a group before what is in it, by the words that call it."""
    context = click.Context(command, info_name=path.rpartition(" ")[2], parent=parent)
    yield path, command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None, f"{path} {name}"
            yield from commands(inner, f"{path} {name}", context)


def page() -> str:
    """The page."""
    return whole("Command line", _INTRO, *(_section(*found) for found in commands()))


def _section(path: str, command: click.Command, context: click.Context) -> str:
    level = "##" if path.count(" ") < 2 else "###"
    parts = [f"{level} {path}", f"```text\n{_usage(command, context)}\n```", _meaning(command)]
    if isinstance(command, click.Group):
        parts.append(_overview(path, command, context))
    parts.append(_options(command, context))
    return "\n\n".join(part for part in parts if part)


def _usage(command: click.Command, context: click.Context) -> str:
    return " ".join([context.command_path, *command.collect_usage_pieces(context)])


def _meaning(command: click.Command) -> str:
    """The help text: paragraphs, but where it is laid out by hand (click's ``\\b``)."""
    text = inspect.cleandoc(command.help or "").split("\f")[0]
    shown = []
    for paragraph in re.split(r"\n\s*\n", text):
        if paragraph.startswith("\b"):
            shown.append(f"```text\n{paragraph.removeprefix(chr(8)).strip(chr(10))}\n```")
        else:
            shown.append(escape(" ".join(paragraph.split())))
    return "\n\n".join(shown)


def _overview(path: str, group: click.Group, context: click.Context) -> str:
    rows = []
    for name in group.list_commands(context):
        inner = group.get_command(context, name)
        assert inner is not None
        anchor = f"{path} {name}".replace(" ", "-")
        rows.append((f"[{code(name)}](#{anchor})", escape(inner.get_short_help_str(200))))
    return table(("command", ""), rows)


def _options(command: click.Command, context: click.Context) -> str:
    rows = []
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:
            names = ", ".join(code(name) for name in [*option.opts, *option.secondary_opts])
            rows.append((names, *_about(option, context)))
    return table(("option", "value", "meaning"), rows) if rows else ""


def _about(option: click.Option, context: click.Context) -> tuple[str, str]:
    if option.is_flag or option.count:
        value = ""
    elif isinstance(option.type, click.Choice):
        value = ", ".join(code(str(choice)) for choice in option.type.choices)
    else:
        value = code(option.make_metavar(context))
    facts = []
    extra = option.get_help_extra(context)
    if "default" in extra:
        facts.append(f"default {extra['default']}")
    if "range" in extra:
        facts.append(extra["range"])
    if option.required:
        facts.append("required")
    if option.multiple:
        facts.append("may be repeated")
    text = line(option.help or "")
    return value, text + (f" ({escape('; '.join(facts))})" if facts else "")
