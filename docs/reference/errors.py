"""Every error: its number, its class, what it says of a write, and the exit code it becomes."""

from __future__ import annotations

from collections.abc import Iterator

from docs.reference.markdown import code, line, table, whole
from docs.reference.source import attribute_texts, own_text
from paceline import error_codes, errors
from paceline.errors import ErrorCode, PacelineError
from paceline.wire.cursus.errors import CODES, RETRYABLE
from paceline.wire.v1.errors import V1Code
from paceline_cluster import errors as launcher
from paceline_cluster.cli.exit_codes import exit_code_for
from paceline_cluster.cli.failures import code_of
from paceline_cluster.errors import ClusterError, Exit

_INTRO = """
Made from `paceline/errors.py`. Every failure that a program meets is a `paceline.PacelineError` of
one of these classes, with `code`, `retriable` and `outcome`. Kafka clients see the same numbers
where Kafka has them.

*Again*: the same request may succeed later or elsewhere. *The write*: *definite* means that
nothing was stored; *unknown* that the record may be there now, later or never, so that only an
idempotent producer may send it again without the risk of storing it twice. An error at hand may
say *definite* where its class says *unknown*: nothing was sent then. *Exit*: the exit code of a
`paceline` command that ends with it.
"""
_KINDS_INTRO = """
What more there is in `paceline.errors` to catch. A class has the number of the one above it, unless
it has its own, in the table above; who catches that one catches these.
"""
_EXITS = {
    Exit.OK: "Done.",
    Exit.USAGE: "The command line is wrong.",
    Exit.DATA: "Bad data, or no such object.",
    Exit.UNAVAILABLE: "Unreachable, or refused because of the present state; may succeed later.",
    Exit.BUG: "A bug.",
    Exit.TIMEOUT: "Not done in time.",
    Exit.NO_PERMISSION: "Refused: who asks lacks the right, or is not let in.",
    Exit.CONFIGURATION: "A setting, a scenario or a port keeps it from starting.",
    Exit.INTERRUPTED: "Ctrl-C.",
}
_EXIT_INTRO = """
`paceline` follows sysexits. Some commands have further ones: `paceline chaos run` and `check` end
with 1 when a promise was broken and 2 when the faults missed the load, the jobs of `paceline
pipeline` with 3 for findings, 4 for data loss and 5 when they failed. A node's own process also
ends with 3 when its directory is in use and 4 when the cluster has replaced it.
"""
_LAUNCHER_INTRO = """
With `--output json` a failure's `code` is the name of an error above, or one of these: the kinds
of trouble that arise on this side. Where the system refuses a file or a connection, it is the name
of Python's error: `PermissionError` is `PERMISSION_ERROR`. [Their form](json.md#errors).
"""
_V1_INTRO = """
The code in `V1|<correlation_id>|ERR|<code>|<message>`, whatever the error was inside.
"""
_CURSUS_INTRO = """
The word in `ERROR: <word> ...`, with the class that a connection is told when it has negotiated
`structured_errors_v1`. Words that begin with `missing_`, `invalid_` or `empty_` are of class
`validation`; all that no class lists are of class `internal`.
"""


def classes() -> dict[ErrorCode, type[PacelineError]]:
    """The class of each code, the one that a client raises for it."""
    found = {code: type(errors.error_for(code, "")) for code in ErrorCode}
    return {code: kind for code, kind in found.items() if kind.code == code}


def classes_without_code() -> Iterator[type[PacelineError]]:
    """The others, each behind the one above it."""
    numbered = set(classes().values())

    def below(kind: type[PacelineError]) -> Iterator[type[PacelineError]]:
        for each in kind.__subclasses__():
            yield each
            yield from below(each)

    for kind in below(PacelineError):
        if kind.__module__ == errors.__name__ and kind not in numbered:
            yield kind


def launcher_codes() -> dict[str, type[ClusterError]]:
    """What failures on this side are called."""
    kinds = [kind for kind in vars(launcher).values() if isinstance(kind, type)]
    return {
        code_of(kind): kind
        for kind in kinds
        if issubclass(kind, ClusterError) and kind is not ClusterError
    }


def meaning(code_: ErrorCode) -> str:
    """What a code means: the text of its class, or the one behind its number."""
    kind = classes().get(code_)
    return (own_text(kind) if kind else "") or attribute_texts(error_codes.ErrorCode)[code_.name]


def page() -> str:
    """The page."""
    return whole(
        "Errors and exit codes",
        _INTRO,
        table(("code", "name", "class", "again", "the write", "exit", "meaning"), _rows()),
        "## Classes without a number",
        _KINDS_INTRO,
        table(("class", "above it", "again", "the write", "exit", "meaning"), _kind_rows()),
        "## Exit codes",
        _EXIT_INTRO,
        table(("exit code", "meaning"), [(str(int(each)), text) for each, text in _EXITS.items()]),
        "## On this side",
        _LAUNCHER_INTRO,
        table(("code", "exit", "meaning"), _launcher_rows()),
        "## V1",
        _V1_INTRO,
        "\n".join(f"- {code(each.value)}" for each in V1Code),
        "## Cursus",
        _CURSUS_INTRO,
        table(("class", "retryable", "words"), _cursus_rows()),
    )


def _rows() -> Iterator[tuple[str, ...]]:
    known = classes()
    for each in sorted(ErrorCode):
        kind = known.get(each)
        facts = ("", "", "", "")
        if kind is not None:
            error = errors.error_for(each, "")
            again = "yes" if kind.retriable else ""
            ends = str(int(exit_code_for(error)))
            facts = (code(kind.__name__), again, kind.outcome.value, ends)
        yield str(int(each)), code(each.name), *facts, line(meaning(each))


def _kind_rows() -> Iterator[tuple[str, ...]]:
    for kind in classes_without_code():
        above = code(kind.__mro__[1].__name__)
        again = "yes" if kind.retriable else ""
        ends = str(int(exit_code_for(kind(""))))
        yield (
            *(code(kind.__name__), above, again, kind.outcome.value, ends),
            line(own_text(kind)),
        )


def _launcher_rows() -> Iterator[tuple[str, ...]]:
    yield code("USAGE"), str(int(Exit.USAGE)), "The command line is wrong."
    yield code("BAD_INPUT"), str(int(Exit.DATA)), "A file named on the command line cannot be used."
    for name, kind in launcher_codes().items():
        if name != "BAD_INPUT":
            yield code(name), str(int(kind.exit_code)), line(own_text(kind))
    yield code("INTERRUPTED"), str(int(Exit.INTERRUPTED)), "Ctrl-C."
    yield code("BUG"), str(int(Exit.BUG)), "A bug; the lines above it say where."


def _cursus_rows() -> Iterator[tuple[str, ...]]:
    for name, words in CODES.items():
        yield name, "yes" if name in RETRYABLE else "", ", ".join(map(code, words))
