"""How a command that fails says so: one sentence for a person, a document for a program.

With ``--output json`` the last line of stderr is ``{"error": {"code", "message", "hint"}}``, with
``yaml`` the last document. The
``code`` is the broker's own name of the error where it is a broker's, otherwise the kind of trouble
here; the ``hint``, null where there is none, says what to do next.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import click

from paceline.documents.failures import failure_document, hint_for
from paceline.errors import (
    AuthenticationFailed,
    AuthorizationFailed,
    PacelineError,
)
from paceline.values import dataclass
from paceline_cluster.cli.exit_codes import exit_code_for
from paceline_cluster.cli.output import OutputFormat, Printer
from paceline_cluster.cli.terminal import sentences
from paceline_cluster.errors import ClusterError, Exit
from paceline_cluster.refused import what_to_do

_ELSEWHERE = {
    "--from-beginning": (
        "--from",
        "Topics are read from their start, unless --from says otherwise.",
    ),
    "--max-messages": ("--count", "Did you mean '--count'?"),
    "--offset": ("--from", "Did you mean '--from'?"),
    "--brokers": ("--bootstrap", "Did you mean '--bootstrap'?"),
    "--broker-list": ("--bootstrap", "Did you mean '--bootstrap'?"),
}
"""What other brokers' commands call it: option -> (ours, where there is one; what to say)."""
_WORD = re.compile("(?<=[a-z])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a command ends, and with which exit code. ``usage`` is how it is called, where that was
    wrong."""

    code: str
    message: str
    exit_code: Exit
    hint: str = ""
    usage: str = ""

    def text(self) -> str:
        """For a person."""
        lines = [self.usage] if self.usage else []
        return "\n".join([*lines, f"paceline: {self.message}", *([self.hint] if self.hint else [])])

    def to_json(self) -> dict[str, Any]:
        """For a program."""
        return failure_document(self.code, self.message, self.hint)


INTERRUPTED = Failure("INTERRUPTED", "interrupted", Exit.INTERRUPTED)
BUG = Failure("BUG", "this is a bug in paceline; please report the lines above", Exit.BUG)


def failure_of(error: ClusterError | PacelineError | OSError) -> Failure:
    """What a failure of a command means. A broker's error may carry what to do as its note."""
    exit_code = exit_code_for(error)
    if isinstance(error, PacelineError):
        [hint] = getattr(error, "__notes__", ()) or [_hint(error)]
        return Failure(error.code.name, _said(error), exit_code, hint)
    if isinstance(error, ClusterError):
        return Failure(code_of(type(error)), error.message, exit_code, error.hint)
    return Failure(code_of(type(error)), _said(error), exit_code)


def _hint(error: PacelineError) -> str:
    if isinstance(error, AuthorizationFailed | AuthenticationFailed):
        return what_to_do(str(error))
    return hint_for(error.code)


def usage_failure(error: click.ClickException) -> Failure:
    """What click has to say of a command line, or of a file that is named in it."""
    message = error.format_message()
    if not isinstance(error, click.UsageError):
        return Failure("BAD_INPUT", message, Exit.DATA)
    context = error.ctx
    if context is None:
        return Failure("USAGE", message, Exit.USAGE)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):  # its message is the whole help
        return Failure("USAGE", "no command is named", Exit.USAGE, usage=f"{message}\n")
    if isinstance(error, click.NoSuchOption) and not error.possibilities:
        message = " ".join(filter(None, (message, _elsewhere(error.option_name, context.command))))
    help_ = context.command.get_help_option(context)
    hint = "" if help_ is None else f"'{context.command_path} {help_.opts[-1]}' explains it"
    return Failure("USAGE", message, Exit.USAGE, hint, context.get_usage())


def _elsewhere(option: str, command: click.Command) -> str:
    """What is called otherwise here; empty where nothing is."""
    names = {name for each in command.params for name in each.opts}
    if option == "--topic" and names & {"topic", "topics"}:
        return f"The topic stands by itself: paceline {command.name} TOPIC"
    ours, said = _ELSEWHERE.get(option, ("", ""))
    return said if ours in names else ""


def report(failure: Failure, arguments: Sequence[str]) -> Exit:
    """Print it as the command line wants results, and return the exit code."""
    return show(failure, asked_format(arguments))


def show(failure: Failure, format_: OutputFormat) -> Exit:
    """Print it in that format, and return the exit code."""
    if format_ is OutputFormat.TABLE:
        text = sentences(failure.text()) if sys.stderr.isatty() else failure.text()
    else:
        text = Printer(format_).item_text(failure.to_json())
    print(text, file=sys.stderr)  # noqa: T201 - the process edge
    return failure.exit_code


def asked_format(arguments: Sequence[str]) -> OutputFormat:
    """How the command line wants results, by the last that it says of it. Asked of the words
    themselves, because those that are wrong were never parsed."""
    words = list(arguments)
    if "--" in words:
        words = words[: words.index("--")]
    known = {format_.value: format_ for format_ in OutputFormat}
    asked = OutputFormat.TABLE
    for before, word in pairwise(["", *words]):
        value = word if before == "--output" else word.removeprefix("--output=")
        if before == "--output" or word.startswith("--output="):
            asked = known.get(value, asked)
    return asked


def _said(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror.lower()}"
    return str(error) or type(error).__name__


def code_of(kind: type[BaseException]) -> str:
    """The name of a class as one of a code: NoSuchCluster is NO_SUCH_CLUSTER."""
    return _WORD.sub("_", kind.__name__).upper()
