"""The command line's frame: exit codes, completeness, quick start."""

import subprocess
import sys
from pathlib import Path

import click
import pytest

from paceline.errors import (
    ConfigurationError,
    ConnectionLost,
    ErrorCode,
    InternalError,
    NotEnoughReplicas,
    RequestTimedOut,
    TransactionNotFound,
    UnknownTopicOrPartition,
    error_for,
)
from paceline_cluster.cli import main as cli
from paceline_cluster.cli.exits import exit_code_for
from paceline_cluster.errors import BadSetting, Exit, NoSuchNode, Refused, TooLate


@pytest.fixture(autouse=True)
def _no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("PACELINE_DIR", raising=False)


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_every_command_loads_and_explains_itself(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([name, "--help"]) == Exit.OK
    assert "Usage: paceline" in capsys.readouterr().out


def test_every_command_with_a_result_takes_output() -> None:
    context = click.Context(cli.paceline)
    silent = {"completion", "run"}  # a script for the shell; another process
    pending = [(name, cli.paceline.get_command(context, name)) for name in cli.COMMANDS]
    while pending:
        name, command = pending.pop()
        if name == "pipeline":
            continue  # jobs for Spark leave a --report, wherever they run
        if isinstance(command, click.Group):
            pending += list(command.commands.items())
        elif name not in silent:
            assert command is not None
            assert "printer" in {parameter.name for parameter in command.params}, name


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nothing"], Exit.USAGE, "No such command"),
        (["topic", "create"], Exit.USAGE, "Missing argument"),
        (["topic", "list", "--output", "xml"], Exit.USAGE, "'xml' is not one of"),
        (["topic", "list", "--bootstrap", "a:b"], Exit.USAGE, "bootstrap"),
        (["node", "kill", "leader"], Exit.USAGE, "is no node"),
        (["topic", "list"], Exit.DATA, "no cluster is selected"),
        (["status", "--dir", "/nonexistent"], Exit.DATA, "no cluster in /nonexistent"),
        (["down", "--bootstrap", "127.0.0.1:1"], Exit.UNAVAILABLE, "--dir"),
        (["up", "--set", "x"], Exit.USAGE, "is no SECTION.KEY=VALUE"),
        (["produce", "t", "--json", "--key", "k"], Exit.USAGE, "--json takes keys"),
        (["consume", "t", "--from", "soon"], Exit.USAGE, "is no place"),
        (["consume", "t", "--format", "%z"], Exit.USAGE, "unknown"),
        (["consume", "t", "--protocol", "coordinator"], Exit.USAGE, "need --group"),
        (["consume", "t", "--session-timeout", "3"], Exit.USAGE, "need --group"),
        (["--version"], Exit.OK, ""),
    ],
)
def test_exit_codes(
    words: list[str], code: Exit, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == code
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnknownTopicOrPartition("t"), Exit.DATA),
        (TransactionNotFound("t"), Exit.DATA),
        (ConnectionLost("t"), Exit.UNAVAILABLE),
        (NotEnoughReplicas("t"), Exit.UNAVAILABLE),
        (RequestTimedOut("t"), Exit.TIMEOUT),
        (ConfigurationError("t"), Exit.CONFIGURATION),
        (InternalError("t"), Exit.BUG),
        (NoSuchNode("t"), Exit.DATA),
        (Refused("t"), Exit.UNAVAILABLE),
        (TooLate("t"), Exit.TIMEOUT),
        (BadSetting("t"), Exit.CONFIGURATION),
        (ConnectionRefusedError(), Exit.UNAVAILABLE),
        (FileNotFoundError(), Exit.DATA),
    ],
)
def test_errors_have_their_codes(error: Exception, code: Exit) -> None:
    assert exit_code_for(error) is code


@pytest.mark.parametrize("code", sorted(ErrorCode))
def test_no_answer_of_a_broker_is_taken_for_success(code: ErrorCode) -> None:
    assert exit_code_for(error_for(code, "x")) is not Exit.OK


def test_closed_outputs_are_no_bug() -> None:
    code = (
        "import sys; from paceline_cluster.cli.main import main; sys.exit(main(['chaos', 'list']))"
    )
    for closing in (">&-", ">&- 2>&-"):
        words = ["sh", "-c", f'exec {sys.executable} -c "{code}" {closing}']
        result = subprocess.run(words, capture_output=True, check=False)
        assert (result.returncode, result.stderr) == (0, b"")


def test_help_imports_no_command() -> None:
    code = (
        "import sys; from paceline_cluster.cli.main import main; main(['--help']); "
        "sys.exit('trio' in sys.modules or 'rich' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert result.returncode == 0
    assert b"topic" in result.stdout


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        # Nodes are started before what asks them how they are is loaded.
        ("paceline_cluster.cli.up", ["paceline.client", "paceline_cluster.survey", "rich"]),
        ("paceline_cluster.cli.produce", ["trio_websocket", "paceline_node.controller", "rich"]),
    ],
)
def test_commands_load_what_they_begin_with(module: str, absent: list[str]) -> None:
    code = f"import sys, {module}; print(*sorted(set(sys.modules) & set({absent})))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert result.stdout.split() == []
