"""The command line's frame: exit codes, completeness, quick start."""

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

from paceline.errors import (
    AuthenticationFailed,
    AuthorizationFailed,
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
from paceline_cluster.cli.exit_codes import exit_code_for
from paceline_cluster.cli.failures import failure_of
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
    silent = {"completion", "run", "settings"}  # a script; another process; TOML
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
        (["node", "kill"], Exit.USAGE, "Missing argument"),
        (["node", "restart"], Exit.USAGE, "give a TARGET, or --stopped"),
        (["node", "restart", "0", "--stopped"], Exit.USAGE, "give a TARGET, or --stopped"),
        (["topic", "list"], Exit.DATA, "no cluster is selected"),
        (["tpoic", "list"], Exit.USAGE, "No such command 'tpoic'. Did you mean 'topic list'?"),
        (["topics", "list"], Exit.USAGE, "Did you mean 'topic list'?"),
        (["topics"], Exit.USAGE, "Did you mean 'topic' or 'group topics'?"),
        (["tpoic", "lsit"], Exit.USAGE, "No such command 'tpoic'. Did you mean 'topic'?"),
        (["status", "--dir", "/nonexistent"], Exit.DATA, "no cluster in /nonexistent"),
        (["down", "--dir", "/nonexistent"], Exit.DATA, "no cluster in /nonexistent"),
        (["up", "--dir", "/dev/null/x", "--any-port"], Exit.UNAVAILABLE, "/dev/null is a file"),
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
        (AuthorizationFailed("t"), Exit.NO_PERMISSION),
        (AuthenticationFailed("t"), Exit.NO_PERMISSION),
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


def test_who_complains_is_always_named(capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong command line said 'Error:', everything else 'paceline:'."""
    assert cli.main(["topic", "alter"]) == Exit.USAGE
    assert capsys.readouterr().err.splitlines() == [
        "Usage: paceline topic alter [OPTIONS] NAME",
        "paceline: Missing argument 'NAME'.",
        "'paceline topic alter --help' explains it",
    ]
    assert cli.main(["topic", "list"]) == Exit.DATA
    assert capsys.readouterr().err.splitlines() == [
        "paceline: no cluster is selected",
        "start one with 'paceline up', or name one with --dir, --bootstrap or $PACELINE_DIR",
    ]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["topic", "list", "--output", "json"], "NO_SUCH_CLUSTER"),
        (["topic", "list", "--output=json"], "NO_SUCH_CLUSTER"),
        (["topic", "list", "--output=table", "--output", "json"], "NO_SUCH_CLUSTER"),
        (["topic", "list", "--output", "table", "--output=json"], "NO_SUCH_CLUSTER"),
        (["topic", "create", "--output", "json"], "USAGE"),
        (["topic", "list", "--nothing", "--output", "json"], "USAGE"),
        (["log", "dump", "/dev", "--output", "json"], "BAD_INPUT"),
    ],
)
def test_programs_get_errors_as_json(
    words: list[str], code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) != Exit.OK
    told = capsys.readouterr()
    assert told.out == ""
    error = json.loads(told.err)["error"]
    assert error["code"] == code
    assert error["message"]
    assert set(error) == {"code", "message", "hint"}


@pytest.mark.parametrize(
    "forms", [("--output", "json", "--output=table"), ("--output=yaml", "--output", "table")]
)
def test_the_last_output_counts(forms: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["topic", "list", *forms]) == Exit.DATA
    assert capsys.readouterr().err.startswith("paceline: no cluster is selected\n")


@pytest.mark.parametrize("form", ["table", "yaml"])
def test_json_and_another_output_exclude_each_other(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """'--json' won without a word."""
    words = ["consume", "orders", "--json"]
    assert cli.main([*words, "--output", form]) == Exit.USAGE
    assert f"--json and --output {form} exclude each other" in capsys.readouterr().err
    assert cli.main([*words, "--output", "json"]) == Exit.DATA


def test_what_stands_behind_two_dashes_is_no_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["topic", "alter", "--", "--output", "json"]) == Exit.USAGE
    assert capsys.readouterr().err.startswith("Usage: ")


def test_an_answer_of_a_broker_comes_with_a_next_step() -> None:
    failure = failure_of(UnknownTopicOrPartition("t: no such topic"))
    assert failure.code == "UNKNOWN_TOPIC_OR_PARTITION"
    assert failure.message == "t: no such topic"
    assert "paceline topic list" in failure.hint
    failure = failure_of(AuthorizationFailed("anonymous may not administer cluster"))
    assert failure.hint.startswith("say who you are by PACELINE_CLIENT_USERNAME and ")


@pytest.mark.parametrize(
    ("code", "step"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, "'paceline health' names the nodes that are missing"),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "'paceline topic describe NAME' shows"),
        (ErrorCode.LEADER_NOT_AVAILABLE, "'paceline health' says what is wrong"),
        (ErrorCode.REQUEST_TIMED_OUT, "'paceline health' says what is wrong"),
        (ErrorCode.CONTROLLER_UNAVAILABLE, "'paceline health' says what is wrong"),
        (ErrorCode.STORAGE_FULL, "'paceline topic sizes' shows what uses the disks"),
    ],
)
def test_a_cluster_in_trouble_is_one_to_be_looked_at(code: ErrorCode, step: str) -> None:
    assert step in failure_of(error_for(code, "t/0: no")).hint


def test_what_the_system_refuses_is_named_without_its_number() -> None:
    with pytest.raises(FileNotFoundError) as caught:
        Path("/nonexistent/f").read_bytes()
    assert failure_of(caught.value).message == "/nonexistent/f: no such file or directory"


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
