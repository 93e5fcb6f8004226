"""``up``: a cluster on this machine.

Nodes are started as early as can be; what asks them how they are is loaded while they start.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import shlex
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
import trio

from paceline.counted import counted
from paceline.values import dataclass
from paceline_cluster import create, growing, later_listeners, launch, ports, profiles, state
from paceline_cluster.cli.find_cluster import DIRECTORY_VARIABLE, default_directory, overruled
from paceline_cluster.cli.options import STOP_TIMEOUT_S, settings_option, voters_option
from paceline_cluster.cli.output import Printer, output_option
from paceline_cluster.cli.units import Seconds
from paceline_cluster.ephemeral import ephemeral_directory
from paceline_cluster.errors import Refused
from paceline_cluster.growing import Growth, Wish
from paceline_cluster.launch import Children
from paceline_cluster.processes import ProcessState
from paceline_cluster.state import ClusterState, NodeEntry

if TYPE_CHECKING:
    from paceline.documents.survey import Survey

DEFAULT_NODES = 3
WATCH_S = 0.5


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What the command line of ``up`` asks for; None leaves a choice open."""

    directory: Path
    nodes: int | None
    voters: int | None
    any_port: bool
    port_offset: int
    settings: dict[str, str]
    timeout_s: float
    tls: bool = False


@click.command()
@click.option(
    "--nodes",
    type=click.IntRange(1, 9),
    help="How many nodes (default 3). A cluster that has fewer grows.",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    help=f"Where the cluster lives (default: ${DIRECTORY_VARIABLE}, the selected one of "
    "'paceline cluster list', or one in the user's data folder).",
)
@click.option(
    "--any-port",
    is_flag=True,
    help="For a new cluster: take free ports instead of the documented ones.",
)
@click.option(
    "--port-offset", type=int, default=0, metavar="N", help="Add N to every documented port."
)
@voters_option
@settings_option
@click.option(
    "--tls",
    is_flag=True,
    help="For a new cluster: encrypt everything, with certificates made for it alone.",
)
@click.option("--detach", is_flag=True, help="Return when the cluster is ready; it runs on.")
@click.option(
    "--ephemeral",
    is_flag=True,
    help="A new cluster on free ports, for a test of any language: with --output json its "
    "addresses are one line. It is removed when this command or the process that ran it ends.",
)
@click.option("--timeout", type=Seconds(), default=60.0, show_default=True, metavar="SECONDS")
@output_option
def up(
    nodes: int | None,
    directory: Path | None,
    any_port: bool,
    port_offset: int,
    voters: str | None,
    settings: dict[str, str],
    tls: bool,
    detach: bool,
    ephemeral: bool,
    timeout: float,
    printer: Printer,
) -> None:
    """Start a cluster on this machine, or show the one that is running.

    Without --detach the command stays until Ctrl-C, which shuts the cluster down cleanly.
    """
    options = UpOptions(
        directory=default_directory() if directory is None else directory.resolve(),
        nodes=nodes,
        voters=None if voters is None else int(voters),
        any_port=any_port,
        port_offset=port_offset,
        settings=settings,
        timeout_s=timeout,
        tls=tls,
    )
    children = Children()
    if ephemeral:
        if directory or detach or port_offset:
            raise click.UsageError("--ephemeral goes with none of --dir, --detach, --port-offset")
        _bring_up_for_a_while(options, children, printer)
        return
    current, seen = trio.run(_bring_up, options, children, printer)
    select(options.directory, printer)
    show = functools.partial(_show, current, seen, printer)
    if detach:
        show()
    else:
        trio.run(_stay, options.directory, children, printer, show)


def _bring_up_for_a_while(options: UpOptions, children: Children, printer: Printer) -> None:
    """For as long as this process and its parent live."""
    parent = os.getppid()
    with ephemeral_directory() as directory:
        options = dataclasses.replace(options, directory=directory, any_port=True)
        current, seen = trio.run(_bring_up, options, children, printer)
        show = functools.partial(_show, current, seen, printer, in_a_line=True)
        trio.run(_until_told, directory, children, printer, show, parent)
    printer.say(f"removed {directory}")


async def _bring_up(
    options: UpOptions, children: Children, printer: Printer
) -> tuple[ClusterState, Survey]:
    async with _prepared(options, printer) as (current, growth):
        node_ids = [entry.id for entry in current.nodes]
        try:
            current = launch.start_nodes(options.directory, node_ids, children)
            from paceline_cluster.readiness import wait_until_ready

            seen = await wait_until_ready(
                current, children, timeout_s=options.timeout_s, in_sync=True
            )
            from paceline_cluster.survey import with_internal_topics

            seen = await with_internal_topics(seen)
        except BaseException:  # Ctrl-C as well
            with trio.move_on_after(STOP_TIMEOUT_S, shield=True):
                await _stop_children(options.directory, children)
            raise
    if growth is not None:
        await _grown(options, growth, children, printer)
    return current, seen


async def _grown(options: UpOptions, made: Growth, children: Children, printer: Printer) -> None:
    """The new nodes serve: see to what follows from that."""
    from paceline_cluster.cli import growth

    by_hand = len(children.by_node) < len(state.load(options.directory).nodes)
    await growth.settled(options.directory, made, by_hand=by_hand, timeout_s=options.timeout_s)
    if made.numbers:
        printer.say(growth.HINT)


def _show(
    current: ClusterState, seen: Survey, printer: Printer, *, in_a_line: bool = False
) -> None:
    from paceline_cluster.cli.survey_report import status_data, status_tables

    data = status_data(current, seen)
    if in_a_line and printer.is_data:
        printer.item(data)
    else:
        printer.result(data, *status_tables(current, seen))
    printer.flush()  # a program may wait for it at a pipe


def select(directory: Path, printer: Printer) -> None:
    """Have commands find the cluster; say so where they found another one before, or find one."""
    before = profiles.selected()
    profiles.select(directory)
    if os.environ.get(DIRECTORY_VARIABLE):
        if told := overruled(directory):
            printer.say(told)
        return
    if before is not None and before.dir != directory and state.exists(before.dir):
        printer.say(
            f"commands find the cluster in {directory} now; 'paceline cluster use "
            f"{shlex.quote(str(before.dir))}' goes back to the other"
        )


@contextlib.asynccontextmanager
async def _prepared(
    options: UpOptions, printer: Printer
) -> AsyncIterator[tuple[ClusterState, Growth | None]]:
    """The cluster to start, made if it is not there, and how it has grown. Chosen ports are kept
    from other launchers for as long as the block lasts."""
    if state.exists(options.directory):
        async with contextlib.AsyncExitStack() as stack:
            found = await _existing(options, printer, stack)
            create.finish(options.directory)
            yield found
        return
    count = DEFAULT_NODES if options.nodes is None else options.nodes
    chosen = ports.planned(range(count), any_port=options.any_port, offset=options.port_offset)
    async with chosen as plan:
        spec = create.local_spec(plan, settings=options.settings, voters=options.voters)
        if options.tls:
            spec = spec.encrypted(options.directory)
        made = await create.create(options.directory, spec)
        _say_starting(printer, count, options.directory)
        yield made, None


async def _existing(
    options: UpOptions, printer: Printer, stack: contextlib.AsyncExitStack
) -> tuple[ClusterState, Growth | None]:
    """The cluster that is already in the directory; ``stack`` keeps ports that it gets. Raises
    Refused when it is not what was asked for, saying how to change it."""
    directory = options.directory
    current = launch.adopt_strays(directory)
    _require_voters(current, options)
    wish = await _wish(current, options)
    asked, found = _differences(current, options)
    if asked:
        raise Refused(
            f"the cluster in {directory} has {found}, not {asked}; start another one with --dir, "
            f"or remove this one, with all its records, by 'paceline purge --dir {directory}' and "
            "run 'up' again"
        )
    stopped = _stopped(current)
    changed = {**current.settings, **options.settings}
    if changed != current.settings:
        if len(stopped) < len(current.nodes):
            for entry in current.nodes:  # what is wrong with them is told first
                create.check_config(entry.config_path, options.settings)
            raise Refused(
                f"the cluster in {directory} runs with other settings; 'paceline config set' "
                "changes them"
            )
        current = create.change_settings(directory, changed)
    if not stopped and wish is None:
        printer.say(f"the cluster in {directory} runs already")
    async with contextlib.AsyncExitStack() as brief:
        if len(stopped) == len(current.nodes):
            # New nodes' ports are chosen under the same lock, which is to be free for that.
            kept = stack if wish is None else brief
            added = await kept.enter_async_context(later_listeners.adding(directory))
            if added:
                printer.say(f"added listeners that are installed now: {', '.join(added)}")
    growth = None
    if wish is not None:
        growth = await stack.enter_async_context(growing.adding(directory, wish))
    current = state.load(directory)
    stopped = _stopped(current)
    needed = {entry.id: _port_numbers(entry.listeners) for entry in stopped}
    ports.require_free(needed, remedy="run 'paceline purge' and 'up' with other ports")
    if stopped:
        _say_starting(printer, len(stopped), directory)
    return current, growth


def _stopped(current: ClusterState) -> list[NodeEntry]:
    return [entry for entry in current.nodes if launch.process_state(entry) is ProcessState.STOPPED]


def _say_starting(printer: Printer, count: int, directory: Path) -> None:
    printer.say(f"starting {_nodes(count)} in {directory}")


def _nodes(count: int) -> str:
    return counted(count, "node")


async def _wish(current: ClusterState, options: UpOptions) -> Wish | None:
    """What has to be added to what is there; None: nothing. Raises Refused where fewer nodes are
    asked for than there are: which one goes has to be said, and what it holds has to go first."""
    count = len(current.nodes)
    wanted = count if options.nodes is None else options.nodes
    if wanted < count:
        raise Refused(
            f"the cluster in {options.directory} has {_nodes(count)}, not {wanted}",
            hint="'paceline node decommission NODE' moves what a node holds to the others and "
            "takes it out; with --dir 'up' starts another cluster",
        )
    settings = {}
    if options.voters is not None and create.voters_of(current) < options.voters <= wanted:
        settings["raft.voters"] = str(options.voters)
    if wanted == count and not settings:
        return None
    from paceline_cluster.cli import growth

    taken = await growth.numbers_taken(options.directory)
    return Wish(wanted - count, taken=taken, settings=settings)


def _require_voters(current: ClusterState, options: UpOptions) -> None:
    """Raise Refused where the cluster cannot be started with so many voters, saying how it comes to
    have them."""
    if options.voters is None:
        return
    there = f"--dir {shlex.quote(str(options.directory))}"
    count, voters = len(current.nodes), create.voters_of(current)
    if options.voters > max(count, options.nodes or 0):
        raise Refused(
            f"{options.voters} voters need as many nodes, and the cluster in {options.directory} "
            f"has {count}",
            hint=f"'paceline up --nodes {options.voters} --voters {options.voters} {there}' adds "
            "nodes, and lets them vote",
        )
    if options.voters < voters:
        setting = f"raft.voters={options.voters} {there}"
        keep = f"'paceline config set {setting}' and 'paceline rolling-restart {there}'"
        if launch.is_stopped(current):
            keep = f"'paceline config set {setting}' and 'paceline up {there}'"
        raise Refused(
            f"the cluster in {options.directory} keeps {counted(voters, 'voter')}, not "
            f"{options.voters}, and 'up' takes no vote away",
            hint=f"{keep} have it keep fewer; then 'paceline quorum remove-voter NODE {there}' "
            "takes the vote of a node",
        )


def _differences(current: ClusterState, options: UpOptions) -> tuple[str, str]:
    """What was asked for that cannot be changed any more, and what there is instead; nothing where
    they agree."""
    if options.tls and current.tls is None:
        return "with TLS", "no certificates"
    if options.port_offset:
        wanted = ports.fixed_ports([each.id for each in current.nodes], offset=options.port_offset)
        for entry in current.nodes:
            for name, number in _port_numbers(entry.listeners).items():
                asked = wanted[entry.id].get(name, number)
                if asked != number:
                    return str(asked), f"port {number} ({name} listener of node {entry.id})"
    return "", ""


def _port_numbers(listeners: dict[str, str]) -> ports.NodePorts:
    return {name: int(address.rpartition(":")[2]) for name, address in listeners.items()}


async def _stop_children(directory: Path, children: Children) -> None:
    """A failed ``up`` leaves nothing running that it started."""
    current = state.load(directory)
    for node_id, child in children.by_node.items():
        child.kill()
        await launch.wait_ended(current.node(node_id), timeout_s=10)
        launch.mark_stopped(directory, current.node(node_id))


async def _stay(
    directory: Path, children: Children, printer: Printer, show: Callable[[], None]
) -> None:
    """Show them, watch the nodes until Ctrl-C or SIGTERM, then stop them in order."""
    await _until_told(directory, children, printer, show)
    from paceline_cluster.shutdown import stop_cluster

    await stop_cluster(directory, timeout_s=STOP_TIMEOUT_S)


async def _until_told(
    directory: Path,
    children: Children,
    printer: Printer,
    show: Callable[[], None],
    parent: int | None = None,
) -> None:
    """Watch the nodes until Ctrl-C or SIGTERM, or the end of the parent process."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        show()  # whoever waits for it may send a signal at once
        printer.say("running; press Ctrl-C to stop the cluster")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch, directory, children, printer, nursery.cancel_scope)
            if parent is not None:
                nursery.start_soon(_watch_parent, parent, nursery.cancel_scope)
            async for _number in signals:
                printer.say("stopping the cluster")
                nursery.cancel_scope.cancel("told to stop")
                break


async def _watch_parent(parent: int, scope: trio.CancelScope) -> None:
    """Cancel ``scope`` once another process is the parent, since the first one ended."""
    while os.getppid() == parent:  # noqa: ASYNC110  no event tells
        await trio.sleep(WATCH_S)
    scope.cancel("the parent process has ended")


async def _watch(
    directory: Path, children: Children, printer: Printer, scope: trio.CancelScope
) -> None:
    """Tell when a node ends; cancel ``scope`` once the cluster was stopped from elsewhere."""
    reported: set[int] = set()
    while True:
        await trio.sleep(WATCH_S)
        if not state.exists(directory):
            scope.cancel()
            return
        entries = state.load(directory).nodes
        gone = {e.id for e in entries if launch.process_state(e) is ProcessState.STOPPED}
        for node_id in sorted(gone - reported):
            printer.say(launch.how_it_ended(node_id, children.exit_code(node_id)))
        for node_id in sorted(reported - gone):
            printer.say(f"node {node_id} runs again")
        reported = gone
        if len(gone) == len(entries):
            scope.cancel()
            return
