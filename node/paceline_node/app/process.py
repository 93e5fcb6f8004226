"""One broker as a process: flags to settings, signals, exit codes.

SIGTERM and SIGINT stop it in order, a second one at once. SIGHUP reads the settings and the
certificates again.
Exit codes: 0 stopped in order, 3 data directory in use, 4 replaced by a newer registration,
69 the data directory failed, 70 a bug, 78 bad configuration or a port in use (DESIGN 2.2).
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import click
import structlog
import trio

from paceline.errors import ConfigurationError, PacelineError, StorageError
from paceline_node.app import freed_memory
from paceline_node.app.boot import DirectoryInUse
from paceline_node.app.descriptor_limits import raise_limit, shares
from paceline_node.app.freed_memory import Allocator
from paceline_node.app.garbage_collector import Collector
from paceline_node.app.node import Node
from paceline_node.env import Env, RealHost
from paceline_node.listeners.serving import PortInUse
from paceline_node.net.network import RealNetwork
from paceline_node.observe.logs import LogThreshold, configure_logs
from paceline_node.settings import InvalidSettings, Settings, load, print_config
from paceline_node.storage.disk import RealDisk

EXIT_DIRECTORY_IN_USE = 3
EXIT_DISK_FAILED = 69
EXIT_BUG = 70
EXIT_CONFIGURATION = 78
_SWITCH_S = 0.001
"""How long the loop waits for a thread that runs Python, each time that it has to."""


def real_env(settings: Settings) -> Env:
    """The machine as it is."""
    raise_limit(settings.limits.descriptors)
    given = shares(settings.limits)
    disk = RealDisk(
        str(settings.node.data_dir), most_open=given.files, reserve=given.storage_reserve
    )
    # Nonces of the peer handshake come from here, so the generator must not be predictable.
    return Env(RealHost(), disk, RealNetwork(), random.SystemRandom())


async def _serve(
    settings: Settings,
    make_env: Callable[[Settings], Env],
    read_again: Callable[[], Settings],
    threshold: LogThreshold,
    allocator: Allocator,
    collector: Collector,
) -> None:
    """Run the node and obey signals."""
    env = make_env(settings)
    node = Node(settings, env)
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async with trio.open_nursery() as nursery:

            async def run() -> None:
                await node.run()
                nursery.cancel_scope.cancel()

            nursery.start_soon(run)
            nursery.start_soon(
                freed_memory.watch, allocator, collector.look_through, lambda: node.client_bytes
            )
            async for signum in signals:
                if signum == signal.SIGHUP:
                    await _reload(node, read_again, threshold)
                elif node.stopping:
                    structlog.get_logger().warning("stopped at once", signal=signum)
                    env.host.exit(128 + signum)
                else:
                    node.stop()


async def _reload(node: Node, read_again: Callable[[], Settings], threshold: LogThreshold) -> None:
    """Take over what changed in the settings, as far as a running node can, and certificates."""
    try:
        wanted = read_again()
    except InvalidSettings as error:
        structlog.get_logger().error("settings not reloaded", problems=list(error.problems))
        return
    threshold.set(node.reload(wanted).logging.level.value)
    await node.reload_certificates()


def _known_error(error: BaseException) -> BaseException:
    """The first error of a group that is not a mere cancellation."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _fail(message: str, code: int) -> None:
    click.echo(f"paceline-node: {message}", err=True)
    sys.exit(code)


def command(
    make_env: Callable[[Settings], Env] = real_env, *, clock: trio.abc.Clock | None = None
) -> click.Command:
    """The node's command line; ``make_env`` is the outside world that its node gets, ``clock`` its
    time (None: trio's own)."""

    @click.command(name="paceline-node")
    @click.option(
        "--config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="TOML file with the node's settings.",
    )
    @click.option(
        "--set", "flags", multiple=True, metavar="KEY=VALUE", help="One setting; repeatable."
    )
    @click.option("--print-config", "print_only", is_flag=True, help="Print all settings and end.")
    def main(config: Path | None, flags: tuple[str, ...], print_only: bool) -> None:
        """Run one Paceline broker."""
        _run(make_env, clock, config, flags, print_only=print_only)

    return main


def _run(
    make_env: Callable[[Settings], Env],
    clock: trio.abc.Clock | None,
    config: Path | None,
    flags: tuple[str, ...],
    *,
    print_only: bool,
) -> None:
    def read() -> Settings:
        return load(file=config, environ=dict(os.environ), flags=flags)

    try:
        settings = read()
    except InvalidSettings as error:
        _fail(str(error), EXIT_CONFIGURATION)
        return
    if print_only:
        click.echo(print_config(settings), nl=False)
        return
    threshold = configure_logs(
        level=settings.logging.level.value, format=settings.logging.format.value
    )
    collector = Collector()
    allocator = Allocator()
    allocator.configure()
    sys.setswitchinterval(_SWITCH_S)
    try:
        trio.run(
            _serve,
            settings,
            make_env,
            read,
            threshold,
            allocator,
            collector,
            clock=clock,
            strict_exception_groups=True,
        )
    except (Exception, BaseExceptionGroup) as group:  # noqa: BLE001  the last place to name it
        _explain(_known_error(group), group)


def _explain(error: BaseException, group: BaseException) -> None:
    match error:
        case DirectoryInUse():
            _fail(str(error), EXIT_DIRECTORY_IN_USE)
        case ConfigurationError() | PortInUse():
            _fail(str(error), EXIT_CONFIGURATION)
        case StorageError() | OSError():
            _fail(f"the data directory failed: {error}", EXIT_DISK_FAILED)
        case PacelineError():
            _fail(str(error), EXIT_CONFIGURATION)
        case KeyboardInterrupt() | SystemExit():
            raise error
        case _:
            structlog.get_logger().error("node failed", exc_info=group)
            sys.exit(EXIT_BUG)
