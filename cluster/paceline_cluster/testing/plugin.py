"""The pytest plugin, registered by entry point: the ``paceline`` fixture.

Everything that costs time to import is imported when a test first asks for a cluster, since pytest
loads this module in every run on a machine where Paceline is installed.
"""

from __future__ import annotations

import contextlib
import inspect
import traceback
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from paceline_cluster.testing import BlockingPaceline, Paceline

MARKER = "paceline"
N = TypeVar("N", int, float)
_DUMP_TITLE = "paceline cluster"
START_TIMEOUT = "paceline_start_timeout"
LOG_LINES = "paceline_log_lines"
SHOW_LOGS = "--paceline-show-logs"
_ALL_LINES = 1_000_000
"""More than a test writes, and less than what fits into memory."""
_MARKER_HELP = (
    f"{MARKER}(nodes=3, settings={{}}, tls=False): what the cluster of this test is made of; "
    "settings are those of node.toml, for example {'log.segment_bytes': '65536'}"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds --paceline-processes and --paceline-show-logs, and what a project's configuration of
    pytest may say."""
    group = parser.getgroup("paceline")
    group.addoption(
        "--paceline-processes",
        action="store_true",
        help="Run the nodes of the 'paceline' fixture in processes of their own.",
    )
    group.addoption(
        SHOW_LOGS,
        action="store_true",
        help="Show all that the nodes of a failed test have logged.",
    )
    parser.addini(
        START_TIMEOUT,
        "Seconds that a cluster of the 'paceline' fixture, and a node in it that is restarted, may "
        "take until it serves.",
        default="60",
    )
    parser.addini(
        LOG_LINES,
        "How many lines of the nodes' logs the report of a failed test shows.",
        default="10",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Makes the marker known."""
    config.addinivalue_line("markers", _MARKER_HELP)


@pytest.fixture
def paceline(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[BlockingPaceline | Paceline]:
    """A cluster of three nodes of its own, ready: with blocking methods for plain tests, with
    async ones for trio tests. It must not leave anything open."""
    from paceline_cluster.errors import TooLate
    from paceline_cluster.testing import leaks
    from paceline_cluster.testing.blocking import running_cluster

    directory = tmp_path / "paceline"
    directory.mkdir()
    before = leaks.Snapshot.take(directory)
    nodes, settings, tls = _wanted(request.node)
    start_timeout_s = _number(request.config, START_TIMEOUT, float)
    with contextlib.ExitStack() as stack:
        try:
            cluster = stack.enter_context(
                running_cluster(
                    directory,
                    nodes=nodes,
                    settings=settings,
                    own_processes=bool(request.config.getoption("--paceline-processes")),
                    tls=tls,
                    start_timeout_s=start_timeout_s,
                    log_lines=_log_lines(request.config),
                )
            )
        except (TimeoutError, TooLate) as error:
            error.add_note(f"{START_TIMEOUT} = {start_timeout_s:g} in pytest's configuration")
            raise
        request.node.stash[_CLUSTER] = cluster
        try:
            yield cluster.trio if _is_async(request.node) else cluster
        finally:
            del request.node.stash[_CLUSTER]
    leaks.require_none(before, directory)


_CLUSTER: pytest.StashKey[BlockingPaceline] = pytest.StashKey()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Shows the state of the cluster of a test that failed, or whose other fixtures did."""
    report = yield
    cluster = item.stash.get(_CLUSTER, None)
    if cluster is None or not report.failed:
        return report
    if _shows_it(call):
        _shorten_summary(report)
    else:
        report.sections.append((_DUMP_TITLE, _dump(cluster)))
    return report


def _dump(cluster: BlockingPaceline) -> str:
    """The state of a cluster, or why it is not to be had: the test's own failure is still told."""
    from paceline.errors import PacelineError

    try:
        return cluster.dump()
    except PacelineError as error:
        return "".join(traceback.format_exception(error))


def _shorten_summary(report: pytest.TestReport) -> None:
    """Leaves the first line of this failure in the summary at the end of a run. Where the variable
    ``CI`` is set, pytest shows the whole message there, and so the cluster a second time."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        crash.message = crash.message.partition("\n")[0]


def _shows_it(call: pytest.CallInfo[None]) -> bool:
    """Whether what failed has the state of the cluster in its text."""
    from paceline_cluster.testing.cluster import NotInTime

    return call.excinfo is not None and isinstance(call.excinfo.value, NotInTime)


def _is_async(item: pytest.Item) -> bool:
    function = inspect.unwrap(getattr(item, "obj", None) or (lambda: None))
    # pytest-trio and pytest-anyio wrap the test; what they wrap says what it is.
    return inspect.iscoroutinefunction(function)


def _log_lines(config: pytest.Config) -> int:
    wanted = _number(config, LOG_LINES, int)
    return _ALL_LINES if config.getoption(SHOW_LOGS) else wanted


def _number(config: pytest.Config, name: str, kind: Callable[[str], N]) -> N:
    """A number of pytest's configuration, 0 or more. Raises pytest.UsageError."""
    text = str(config.getini(name))
    try:
        value = kind(text)
    except ValueError:
        value = kind("-1")
    if not value >= 0:
        raise pytest.UsageError(f"{name} is a number, 0 or more; got {text!r}")
    return value


def _wanted(item: pytest.Item) -> tuple[int, dict[str, str], bool]:
    """Number of nodes, settings and whether they encrypt, by the closest marker. Raises
    pytest.UsageError."""
    marker = item.get_closest_marker(MARKER)
    given: dict[str, Any] = dict(marker.kwargs) if marker is not None else {}
    nodes = given.pop("nodes", 3)
    settings = given.pop("settings", {})
    tls = bool(given.pop("tls", False))
    extra = [*given, *(marker.args if marker is not None else ())]
    if extra or not isinstance(nodes, int) or not 1 <= nodes <= 9:
        raise pytest.UsageError(f"@pytest.mark.{_MARKER_HELP}; got {marker}")
    return nodes, {str(key): str(value) for key, value in settings.items()}, tls
