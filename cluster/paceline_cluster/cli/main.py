"""Entry of ``paceline``: the table of commands, and how failures become exit codes.

A command's module is imported only when it is called, so that ``paceline --help`` and shell
completion stay quick.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import click

from paceline.errors import PacelineError
from paceline_cluster.cli.failures import (
    BUG,
    INTERRUPTED,
    Failure,
    failure_of,
    report,
    usage_failure,
)
from paceline_cluster.errors import ClusterError, Exit

COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("up:up", "Start a cluster on this machine, or show the one that runs."),
    "status": ("health:status", "Show nodes, controller and partition counts."),
    "health": ("health:health", "Say whether the cluster is healthy, and why not."),
    "check": ("check:check", "Ask one thing of the cluster, as plugins of Nagios do."),
    "down": ("down:down", "Stop the cluster in order; its data stay."),
    "purge": ("down:purge", "Stop the cluster and remove its directory."),
    "top": ("top:top", "Show what the cluster is busy with, live."),
    "events": ("events:events", "Tell what happens in the cluster, as it happens."),
    "disk": ("disk:disk", "Show how full the nodes' disks are, and of what."),
    "logs": ("logs:logs", "Show the nodes' logs."),
    "topic": ("topics:topic", "Create, list, describe, alter and delete topics."),
    "produce": ("produce:produce", "Write lines of files or stdin to a topic."),
    "consume": ("consume:consume", "Print the records of a topic."),
    "group": ("groups:group", "List, describe and delete consumer groups; reset their offsets."),
    "transaction": ("transactions:transaction", "List, describe and abort transactions."),
    "user": ("users:user", "Say who may log in, and with what."),
    "segment": ("segments:segment", "Create, append to, read and end segments."),
    "acl": ("acls:acl", "Say who may do what: create, list and delete ACLs."),
    "quota": ("quotas:quota", "Say how much clients may have: set, unset and list quotas."),
    "role": ("roles:role", "Move leadership of a partition."),
    "partition": ("partitions:partition", "Move partitions to other nodes."),
    "node": ("nodes:node", "Add, run, kill, stop, restart, drain, decommission a node."),
    "config": ("config:config", "Show and change the settings of nodes."),
    "rolling-restart": (
        "rolling_restart:rolling_restart",
        "Restart all nodes one at a time, while the cluster serves.",
    ),
    "cluster": ("clusters:cluster", "List, choose and forget clusters here; prepare a new one."),
    "quorum": ("quorum:quorum", "Show the metadata quorum; add and remove voters."),
    "metadata": ("metadata:metadata", "Go on when most voters' disks are lost, offline."),
    "limits": ("limits:limits", "Show of what there may be how many, and what becomes of more."),
    "log": ("log:log", "Dump and verify segment files, offline."),
    "pipeline": ("pipeline:pipeline", "Archive, restore, audit and measure topics with Spark."),
    "chaos": ("chaos:chaos", "Strike a cluster with faults under load and judge the history."),
    "completion": ("completion:completion", "Print the completion script of a shell."),
}
"""Command -> (module:attribute below this package, one line for the overview)."""


_MEANT = 3
"""So many guesses help; more are a list to be read."""


class ReaderGone(Exception):
    """Who reads our output has seen enough ('paceline consume t | head')."""


class CommandTable(click.Group):
    """A group whose commands are imported when they are called."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise ReaderGone from None  # click would make it exit code 1

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not ctx.resilient_parsing:
            *most, last = [f"'{each}'" for each in self._meant(ctx, *args[:2])[:_MEANT]] or [""]
            meant = f"{', '.join(most)} or {last}" if most else last
            ctx.fail(f"No such command '{args[0]}'.{f' Did you mean {meant}?' if meant else ''}")
        return super().resolve_command(ctx, args)

    def _meant(self, ctx: click.Context, word: str, after: str = "") -> list[str]:
        """What is spelled alike, where it has a command ``after`` (``topics list``) or is the
        singular; else what is called so behind a noun or as an option."""
        if f"--{word}" in ("--help", "--version"):
            return [f"--{word}"]
        alike = difflib.get_close_matches(word, COMMANDS, n=1)
        if alike and after in self._behind(ctx, alike[0]):
            return [f"{alike[0]} {after}"]
        behind = [f"{name} {word}" for name in COMMANDS if word in self._behind(ctx, name)]
        if alike == [word.removesuffix("s")]:
            return [*alike, *behind]
        return behind or alike

    def _behind(self, ctx: click.Context, name: str) -> Collection[str]:
        """The commands of a command; none where it has none."""
        command = self.get_command(ctx, name)
        return command.commands if isinstance(command, click.Group) else ()

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module_name, attribute = COMMANDS[cmd_name][0].split(":")
        module = importlib.import_module(f"paceline_cluster.cli.{module_name}")
        command: click.Command = getattr(module, attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=CommandTable, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="paceline", message="%(version)s")
def paceline() -> None:
    """Run and use a replicated log broker cluster.

    Commands find their cluster by --dir, --bootstrap or $PACELINE_DIR; otherwise they use the
    one selected in 'paceline cluster list'.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code (paceline_node/DESIGN 2.2)."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller ('>&-'), who wants none of it
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - for good
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        result = paceline.main(args=words, prog_name="paceline", standalone_mode=False)
    except click.exceptions.Exit as request:
        return request.exit_code
    except (click.Abort, KeyboardInterrupt):
        return report(INTERRUPTED, words)
    except click.ClickException as error:
        return report(usage_failure(error), words)
    except ReaderGone:
        # Not a failure. The interpreter would flush stdout once more at its end and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    except (ClusterError, PacelineError, OSError) as error:
        return report(failure_of(error), words)
    except BaseExceptionGroup as group:
        return report(_first_known(group), words)
    except Exception:  # noqa: BLE001 - the edge of the process: a bug gets its exit code here
        traceback.print_exc()
        return report(BUG, words)
    return result if isinstance(result, int) else Exit.OK


def _first_known(group: BaseExceptionGroup[BaseException]) -> Failure:
    """The first failure of several tasks that carries a meaning for the user."""
    for error in _leaves(group):
        if isinstance(error, KeyboardInterrupt):
            return INTERRUPTED
        if isinstance(error, ClusterError | PacelineError | OSError):
            return failure_of(error)
    traceback.print_exception(group)
    return BUG


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


if __name__ == "__main__":
    sys.exit(main())
