"""The reference leaves nothing out: each page beside what it describes, asked another way than the
page asks it."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Mapping
from pathlib import Path

import click
import pytest
import trio.abc

from docs.reference import PAGES, errors, http, outputs, python_api
from docs.reference.commands import commands
from docs.reference.markdown import code
from docs.reference.shapes import mismatches
from docs.reference.source import attribute_texts
from paceline.errors import ErrorCode, PacelineError
from paceline.wire.native.admin import CreateTopic
from paceline.wire.native.api import NativeApi
from paceline_cluster.cli.main import COMMANDS, main
from paceline_node.app.node_pages import NATIVE_PATH
from paceline_node.client_memory import ClientMemory
from paceline_node.env import RealHost
from paceline_node.http.api.pages import ApiPages
from paceline_node.http.console.files import FILE, INDEX
from paceline_node.http.cursus_pages import health_pages
from paceline_node.http.pages import Scrapes, standard_pages
from paceline_node.http.stream.conversation import PATH as STREAM_PATH
from paceline_node.loop_turns import Turns
from paceline_node.security.principals import Principal
from paceline_node.settings import ListenerKind, print_config
from paceline_node.settings.counts import COUNTS
from paceline_node.settings.topic_config import KEYS
from tests.unit.http.api_routes import table
from tests.unit.listeners import lone

LAUNCHER = Path(inspect.getfile(main)).parents[1]


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return {path: make() for path, make in PAGES.items()}


def helped(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What ``--help`` prints of a command."""
    assert main([*words, "--help"]) == 0
    return capsys.readouterr().out


def test_every_command_and_option_that_help_shows_is_there(
    pages: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The tree is walked by its help texts, which is how a user meets it."""
    sections = dict(
        re.findall(
            r"^##+ (paceline[^\n]*)\n(.*?)(?=^##|\Z)", pages["reference/cli.md"], re.M | re.S
        )
    )
    todo = [[name] for name in COMMANDS]
    seen = {"paceline"}
    while todo:
        words = todo.pop()
        path = " ".join(["paceline", *words])
        text = helped(words, capsys)
        assert path in sections, path
        for option in re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, re.M):
            if option != "--help":
                assert code(option) in sections[path], f"{path} {option}"
        if "\nCommands:\n" in text:
            inner = re.findall(r"^  ([\w-]+)", text.split("\nCommands:\n")[1], re.M)
            todo += [[*words, name] for name in inner]
        seen.add(path)
    assert seen == set(sections)


def test_every_setting_of_the_printed_configuration_is_there(pages: dict[str, str]) -> None:
    section = ""
    names = []
    for line in print_config().splitlines():
        if line.startswith("["):
            section = line.strip("[]") + "."
        elif found := re.match(r"(\w+) = ", line):
            names.append(section + found[1])
    assert len(names) > 100
    rows = re.findall(r"^\| <code>(.*?)</code> \|", pages["reference/settings.md"], re.M)
    assert [row.replace("&#95;", "_") for row in rows] == names


def test_every_topic_setting_and_limit_is_there(pages: dict[str, str]) -> None:
    for name in KEYS:
        assert f"| {code(name)} |" in pages["reference/topic-settings.md"]
    assert pages["reference/limits.md"].count("\n| ") == len(COUNTS) + 2


async def _get(node: lone.LoneNode, path: str) -> str:
    async with await node.connect("http") as stream:
        await stream.send_all(
            b"GET %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % path.encode()
        )
        return b"".join([part async for part in stream]).decode()


async def test_what_a_node_serves_and_shows_is_there(
    pages: dict[str, str],
    tmp_path: Path,
    autojump_clock: trio.abc.Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(lone.PORTS, "http", 7480)
    async with lone.lone_node(tmp_path) as node:
        client = await node.native()
        created = await client.code(
            NativeApi.CREATE_TOPIC, CreateTopic("orders", partitions=1, replication_factor=1)
        )
        assert created == 0
        scraped = await _get(node, "/metrics")
        assert await _get(node, "/live") != await _get(node, "/nothing")
    shown = set(re.findall(r"^# TYPE (\w+) ", scraped, re.M))
    assert len(shown) > 30
    listed = set(re.findall(r"^\| <code>(paceline.*?)</code>", pages["reference/metrics.md"], re.M))
    names = {name.replace("&#95;", "_") for name in listed}
    # A counter's TYPE line has its whole name, too.
    assert shown <= names


def test_every_page_of_http_is_there() -> None:
    scrapes = Scrapes(tuple, Turns(), RealHost().run_blocking)
    served = {
        ListenerKind.HTTP: {
            *standard_pages(scrapes, tuple, _nobody, ClientMemory(1)),
            *ApiPages(table(), Turns(), RealHost().run_blocking).templates,
            NATIVE_PATH,
            INDEX,
            FILE,
            STREAM_PATH,
        },
        ListenerKind.CURSUS_HEALTH: set(health_pages(_nothing)),
        ListenerKind.CURSUS_METRICS: {"/metrics"},
    }
    assert set(http.PATHS) == {(kind, path) for kind, paths in served.items() for path in paths}


def _nothing(principal: Principal) -> dict[str, str]:
    raise AssertionError("no page is asked for")


def _nobody(principal: Principal) -> None:
    raise AssertionError("no page is asked for")


def test_every_error_has_a_number_a_class_and_a_meaning(pages: dict[str, str]) -> None:
    page = pages["reference/errors.md"]
    for each in ErrorCode:
        assert f"| {int(each)} | {code(each.name)} |" in page
        assert errors.meaning(each)
    raised = {kind.code for kind in _below(PacelineError) if kind.__module__ == "paceline.errors"}
    assert raised <= {*errors.classes(), ErrorCode.UNKNOWN_SERVER_ERROR}


def test_every_class_of_error_is_there(pages: dict[str, str]) -> None:
    """Unreachable, which has the number of ConnectionLost, was on no page."""
    page = pages["reference/errors.md"]
    for kind in _below(PacelineError) - {PacelineError}:
        if kind.__module__ == "paceline.errors":
            assert code(kind.__name__) in page, kind
    assert code("first_contact_timeout_s") in page


def test_every_error_of_the_launcher_has_a_meaning(pages: dict[str, str]) -> None:
    """Found in the text of all modules: those that nobody has imported count, too."""
    found = re.compile(r"^class (\w+)\((\w+)\):", re.M)
    texts = [path.read_text("utf-8") for path in LAUNCHER.rglob("*.py")]
    bases = dict(pair for text in texts for pair in found.findall(text))
    kinds = {name for name in bases if "ClusterError" in _above(name, bases)}
    assert "BadScenario" in kinds
    for name in kinds:
        [row] = re.findall(
            rf"^\| {re.escape(code(_code(name)))} \| \d+ \| (.*) \|$", _side(pages), re.M
        )
        assert row, name


def _side(pages: dict[str, str]) -> str:
    return pages["reference/errors.md"].partition("## On this side")[2].partition("\n## ")[0]


def _above(name: str, bases: Mapping[str, str]) -> list[str]:
    return [bases[name], *_above(bases[name], bases)] if name in bases else []


def _code(name: str) -> str:
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", name).upper()


def _below(kind: type[PacelineError]) -> set[type[PacelineError]]:
    return {kind}.union(*(_below(each) for each in kind.__subclasses__()))


def test_every_public_name_is_there(pages: dict[str, str]) -> None:
    page = pages["reference/python.md"]
    for name in python_api.MODULES:
        for each in importlib.import_module(name).__all__:
            assert re.search(rf"^### [\w.]+\.{each}$", page, re.M), f"{name}.{each}"
    assert "await send(topic: str" in page
    assert "linger" in page


def test_every_command_with_results_has_a_shape() -> None:
    with_output = {
        path.removeprefix("paceline ")
        for path, command, _ in commands()
        if any(
            isinstance(option, click.Option) and option.name == "printer"
            for option in command.params
        )
    }
    assert with_output == set(outputs.OUTPUTS)


@pytest.mark.parametrize(
    ("shape", "good", "bad"),
    [
        ("integer", 3, True),
        ("integer?", None, "3"),
        ("bytes?", {"base64": "gA=="}, {"base": "gA=="}),
        (["text"], [], [1]),
        ({"*": "text"}, {"a": "b"}, {"a": 1}),
        ({"a": "flag"}, {"a": False}, {"a": False, "b": 1}),
        ({"a": "flag"}, {"a": True}, {}),
        (({"a": "text"}, {"b": "text"}), {"b": ""}, {"c": ""}),
    ],
)
def test_a_shape_tells_what_fits_from_what_does_not(
    shape: outputs.Shape, good: object, bad: object
) -> None:
    assert not list(mismatches(shape, good))
    assert list(mismatches(shape, bad))


def test_texts_behind_names_are_found() -> None:
    assert attribute_texts(ErrorCode)["NONE"] == "Done."


def test_nothing_that_is_made_is_stored() -> None:
    pages_dir = Path(inspect.getfile(errors)).parents[1] / "pages"
    assert not [path for path in PAGES if (pages_dir / path).exists()]
