"""``node``: single nodes of a cluster on this machine, and what a service manager starts."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from uuid import UUID

import click
import trio

from paceline.errors import BrokerNotRegistered
from paceline.types import NodeId
from paceline_cluster import create, launch, processes, state
from paceline_cluster.cli.complete import complete_nodes, complete_targets
from paceline_cluster.cli.complete_settings import complete_node_settings
from paceline_cluster.cli.find_cluster import Address, client_options, cluster_options, find
from paceline_cluster.cli.node_adding import add
from paceline_cluster.cli.node_leaving import decommission, drain, revive
from paceline_cluster.cli.options import STOP_TIMEOUT_S
from paceline_cluster.cli.output import Printer, Table, output_option
from paceline_cluster.cli.resolve_target import resolve
from paceline_cluster.cli.session import with_client
from paceline_cluster.cli.targets import Target, parse_target
from paceline_cluster.cli.units import Seconds
from paceline_cluster.errors import Refused
from paceline_cluster.launch import Children
from paceline_cluster.processes import ProcessState
from paceline_cluster.readiness import START_TIMEOUT_S, wait_until_serves
from paceline_cluster.state import NodeEntry

Act = Callable[[Path, NodeEntry], Awaitable[None]]
POLL_S = 0.02


def _parse_target(_ctx: click.Context, _param: click.Parameter, value: str | None) -> Target | None:
    if value is None:
        return None
    try:
        return parse_target(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.group()
def node() -> None:
    """Add, format, run, kill, stop, restart, suspend, resume, drain, decommission, remove a node.

    TARGET is a number, 'controller', or 'leader-of:TOPIC/PARTITION'.
    """


for _command in (add, drain, revive, decommission):
    node.add_command(_command)


def _act(name: str, act: Act, text: str) -> None:
    """Add the command ``node NAME TARGET``."""

    @node.command(name, help=text)
    @click.argument("target", callback=_parse_target, shell_complete=complete_targets)
    @cluster_options
    @output_option
    def command(
        target: Target, directory: Path | None, bootstrap: tuple[Address, ...], printer: Printer
    ) -> None:
        ref = find(directory, bootstrap)
        local = ref.require_dir(f"node {name}")

        async def run() -> NodeEntry:
            entry = state.load(local).node(await resolve(ref, target))
            await act(local, entry)
            return state.load(local).node(entry.id)

        entry = trio.run(run)
        now = launch.process_state(entry)
        data = {"node": entry.id, "action": name, "state": str(now), "pid": entry.pid}
        printer.result(data, Table(tuple(data), [tuple(data.values())]))


async def _kill(directory: Path, entry: NodeEntry) -> None:
    await launch.kill_node(directory, entry)


async def _stop(directory: Path, entry: NodeEntry) -> None:
    launch.require_running(entry)
    await launch.stop_node(directory, entry, timeout_s=STOP_TIMEOUT_S)


async def _restart(directory: Path, entries: Sequence[NodeEntry], timeout_s: float) -> None:
    """All are started before any is waited for: they may need each other to serve."""
    for entry in entries:
        if launch.process_state(entry) is not ProcessState.STOPPED:
            await launch.stop_node(directory, entry, timeout_s=STOP_TIMEOUT_S)
    children = Children()
    current = launch.start_nodes(directory, [entry.id for entry in entries], children)
    deadline = trio.current_time() + timeout_s
    for entry in entries:
        left_s = max(0.0, deadline - trio.current_time())
        await wait_until_serves(current, current.node(entry.id), children, timeout_s=left_s)


async def _suspend(directory: Path, entry: NodeEntry) -> None:
    launch.require_running(entry)
    processes.send(entry.pid, entry.pid_started, signal.SIGSTOP)
    await _wait_state(entry, ProcessState.SUSPENDED)


async def _resume(directory: Path, entry: NodeEntry) -> None:
    launch.require_running(entry)
    processes.send(entry.pid, entry.pid_started, signal.SIGCONT)
    await _wait_state(entry, ProcessState.RUNNING)


async def _wait_state(entry: NodeEntry, wanted: ProcessState) -> None:
    with trio.move_on_after(2):
        # A signal acts a moment later; a process that is not our child cannot be waited for.
        while launch.process_state(entry) is not wanted:  # noqa: ASYNC110
            await trio.sleep(POLL_S)


_act("kill", _kill, "End a node at once (SIGKILL), as a crash would.")
_act("stop", _stop, "Stop a node in order: it hands its leaderships over first (SIGTERM).")
_act("suspend", _suspend, "Freeze a node (SIGSTOP), as a stalled machine would.")
_act("resume", _resume, "Let a frozen node go on (SIGCONT).")


@node.command()
@click.argument("target", required=False, callback=_parse_target, shell_complete=complete_targets)
@click.option("--stopped", is_flag=True, help="Instead of TARGET: every node that is not running.")
@click.option(
    "--timeout",
    type=Seconds(),
    default=START_TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="How long it may take to serve, once it was started.",
)
@cluster_options
@output_option
def restart(
    target: Target | None,
    stopped: bool,
    timeout: float,
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    printer: Printer,
) -> None:
    """Stop a node if it runs, start it, and wait until it serves.

    Nothing is asked first; 'paceline rolling-restart NODE' waits until the others can do without
    it.
    """
    if (target is None) != stopped:
        raise click.UsageError("give a TARGET, or --stopped for every node that does not run")
    ref = find(directory, bootstrap)
    local = ref.require_dir("node restart")

    async def run() -> list[int]:
        if target is None:
            numbers = [
                entry.id
                for entry in state.load(local).nodes
                if launch.process_state(entry) is ProcessState.STOPPED
            ]
        else:
            numbers = [await resolve(ref, target)]
        entries = [state.load(local).node(number) for number in numbers]
        await _restart(local, entries, timeout)
        return numbers

    done = trio.run(run)
    columns = ("node", "action", "state", "pid")
    entries = [state.load(local).node(number) for number in done]
    rows = [(each.id, "restart", str(launch.process_state(each)), each.pid) for each in entries]
    if not rows:
        printer.say("every node runs")
    data = [dict(zip(columns, row, strict=True)) for row in rows]
    printer.result({"nodes": data} if stopped else data[0], Table(columns, rows))


@node.command()
@click.argument("number", type=click.IntRange(0), shell_complete=complete_nodes)
@click.option("--yes", is_flag=True, help="Do not ask.")
@client_options
@output_option
def remove(
    number: int,
    yes: bool,
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    printer: Printer,
) -> None:
    """Forget node NUMBER, which is stopped and will not come back.

    It leaves the brokers and the metadata quorum, and cluster.json with --dir; its files stay, but
    cannot join again. Partitions keep their place for it until they are moved ('partition move').
    For a node that still runs use 'decommission', which moves its replicas away first.
    """
    ref = find(directory, bootstrap)
    if ref.dir is not None:
        entry = state.load(ref.dir).node(number)
        if launch.process_state(entry) is not ProcessState.STOPPED:
            raise Refused(f"node {number} runs; stop it first: paceline node stop {number}")
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("a removed node cannot come back; confirm it with --yes")
        click.confirm(f"Forget node {number} for good?", abort=True, err=True)
    try:
        with_client(ref, lambda client: client.admin.unregister_broker(NodeId(number)))
    except BrokerNotRegistered:
        if ref.dir is None:
            raise  # of one that was added and never came up only cluster.json knows
    if ref.dir is not None:
        state.remove_node(ref.dir, number)
    data = {"node": number, "action": "remove"}
    printer.result(data, Table(tuple(data), [tuple(data.values())]))


@node.command()
@click.option(
    "--config",
    required=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The node's TOML file.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=complete_node_settings,
    help="Overrides the file.",
)
def run(config: Path, settings: tuple[str, ...]) -> None:
    """Run one node in this process: what systemd and containers start.

    The node joins the cluster by the bootstrap addresses of its configuration.
    """
    words = [sys.executable, "-m", "paceline_node", "--config", str(config)]
    for setting in settings:
        words += ["--set", setting]
    os.execv(sys.executable, words)  # noqa: S606 - the node replaces this process


@node.command("settings")
@click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The settings of the node of this TOML file; otherwise the defaults.",
)
def settings_(config: Path | None) -> None:
    """Print all settings of a node as TOML, each with its meaning, bounds and default."""
    from paceline_node.settings import print_config

    shown = None if config is None else create.check_config(config)
    click.echo(print_config(shown), nl=False)


@node.command("format")
@click.option(
    "--config",
    required=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The node's TOML file.",
)
@click.option("--cluster-id", type=click.UUID, help="The cluster to join.")
@click.option("--replace", is_flag=True, help="Remove what the directory holds: a new, empty disk.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
def format_(
    config: Path,
    cluster_id: UUID | None,
    replace: bool,
    yes: bool,
    printer: Printer,
) -> None:
    """Prepare a node's data directory so that it can join a cluster.

    With --replace a directory that was lost or damaged starts anew, with a new directory id; the
    cluster then treats it as an empty disk and fills it again.
    """
    if replace and not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("--replace removes the node's records; confirm it with --yes")
        click.confirm("Remove all records of this node?", abort=True, err=True)
    work = partial(create.format_for_joining, config, cluster_id=cluster_id, replace=replace)
    made = trio.run(work)
    printer.result(made, Table(tuple(made), [tuple(made.values())]))
