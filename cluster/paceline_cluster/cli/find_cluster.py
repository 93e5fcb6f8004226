"""Which cluster a command means: --dir, --bootstrap, $PACELINE_DIR, or the selected profile."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from paceline.errors import ConfigurationError
from paceline.values import dataclass
from paceline_cluster import launch, profiles, state
from paceline_cluster.cli.units import Seconds
from paceline_cluster.errors import ClusterStopped, NoSuchCluster, Refused
from paceline_cluster.state import ClusterState

Address = str
"""``host:port`` of a native listener, or the URL of a WebSocket (``ws://...``)."""

DIRECTORY_VARIABLE = "PACELINE_DIR"
DEFAULT_NAME = "default"
_START = "start one with 'paceline up'"

CONNECT_TIMEOUT_S = 5.0
"""Long enough for a node that is just starting, short enough for somebody who mistyped a port."""


_CONNECT_TIMEOUT = f"{__name__}.connect_timeout"
"""Where the option's value lies in a context: what it says belongs to the cluster that is found."""


@dataclass(frozen=True, slots=True)
class ClusterRef:
    """A cluster as the caller named it: by directory on this machine, or by addresses only.

    ``connect_timeout_s``: how long to try while nothing takes connections at any address.
    """

    dir: Path | None
    addresses: tuple[Address, ...] = ()
    connect_timeout_s: float = CONNECT_TIMEOUT_S

    def require_dir(self, command: str) -> Path:
        """The directory, for commands that act on this machine's processes and files."""
        if self.dir is None:
            raise Refused(
                f"'{command}' acts on processes and files of this machine",
                hint="name the cluster's directory with --dir",
            )
        return self.dir

    def state(self) -> ClusterState | None:
        """``cluster.json``, or None when only addresses are known."""
        return None if self.dir is None else state.load(self.dir)

    def is_stopped(self) -> bool:
        """Whether it is known that no node runs: all are of this machine."""
        return self.dir is not None and launch.is_stopped(state.load(self.dir))

    def stopped(self) -> ClusterStopped:
        """What to raise then."""
        assert self.dir is not None, "of addresses alone nobody knows"
        return ClusterStopped(
            f"the cluster in {self.dir} is stopped", hint=f"{start_command(self.dir)} starts it"
        )

    def patience_s(self) -> float:
        """How long to try while nothing takes connections: each address once where no node runs,
        unless the caller has said for how long."""
        if self.connect_timeout_s == CONNECT_TIMEOUT_S and self.is_stopped():
            return 0.0
        return self.connect_timeout_s

    def bootstrap(self) -> tuple[Address, ...]:
        """Native addresses to begin with. Raises NoSuchCluster."""
        if self.dir is None:
            return self.addresses
        return tuple(state.load(self.dir).bootstrap())


def default_directory() -> Path:
    """Where ``up`` finds or puts a cluster when ``--dir`` is not given."""
    named = os.environ.get(DIRECTORY_VARIABLE)
    if named:
        return Path(named).resolve()
    profile = profiles.selected()
    if profile is not None and state.exists(profile.dir):
        return profile.dir
    return profiles.data_folder() / DEFAULT_NAME


def start_command(directory: Path) -> str:
    """What starts all nodes of the cluster there, in quotes: with --dir unless ``up`` finds it."""
    if directory == default_directory():
        return "'paceline up'"
    return f"'paceline up --dir {shlex.quote(str(directory))}'"


def find(directory: Path | None, bootstrap: tuple[Address, ...]) -> ClusterRef:
    """Resolve what the command line, the environment and the profile say. Raises NoSuchCluster."""
    dir_, addresses = _named(directory, bootstrap)
    return ClusterRef(dir_, addresses, _connect_timeout_s())


def _named(
    directory: Path | None, bootstrap: tuple[Address, ...]
) -> tuple[Path | None, tuple[Address, ...]]:
    if directory is not None:
        return directory.resolve(), ()
    if bootstrap:
        return None, bootstrap
    named = os.environ.get(DIRECTORY_VARIABLE)
    if named:
        return Path(named).resolve(), ()
    profile = profiles.selected()
    if profile is not None:
        return profile.dir, ()
    way = "'paceline cluster use NAME' selects one of 'paceline cluster list'"
    raise NoSuchCluster(
        "no cluster is selected",
        hint=f"{way if profiles.known() else _START}, or name one with --dir, --bootstrap or "
        f"${DIRECTORY_VARIABLE}",
    )


def overruled(directory: Path) -> str:
    """What a person has to know who selects the cluster in ``directory``; empty where commands
    find it."""
    named = os.environ.get(DIRECTORY_VARIABLE)
    if not named or Path(named).resolve() == directory:
        return ""
    return (
        f"${DIRECTORY_VARIABLE} names {Path(named).resolve()} and goes first: commands find that "
        "one here as long as it is set"
    )


def _connect_timeout_s() -> float:
    """What the current command was given, if it is one of :func:`client_options`."""
    context = click.get_current_context(silent=True)
    given = None if context is None else context.meta.get(_CONNECT_TIMEOUT)
    return CONNECT_TIMEOUT_S if given is None else float(given)


def _keep_connect_timeout(ctx: click.Context, _param: click.Parameter, value: float) -> None:
    ctx.meta[_CONNECT_TIMEOUT] = value


def _parse_bootstrap(
    _ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]
) -> tuple[Address, ...]:
    if not values:
        return ()
    # The client takes its time to load, and most commands of a local cluster name a directory.
    from paceline.client.endpoint import Endpoint

    addresses = tuple(text.strip() for value in values for text in value.split(","))
    try:
        for address in addresses:
            Endpoint.parse(address)
    except ConfigurationError as error:
        raise click.BadParameter(str(error)) from None
    return addresses


def cluster_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds ``--dir`` and ``--bootstrap``; the command gets ``directory`` and ``bootstrap``."""
    function = click.option(
        "--bootstrap",
        multiple=True,
        metavar="HOST:PORT",
        callback=_parse_bootstrap,
        help="Native address of any node; may be given more than once. Inside TLS: "
        "tls://HOST:PORT?authority=FILE, and certificate, key, server_name.",
    )(function)
    return click.option(
        "--dir",
        "directory",
        type=click.Path(path_type=Path, file_okay=False),
        help="Directory of a cluster on this machine.",
    )(function)


def client_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """:func:`cluster_options` of a command that works through a client, and ``--connect-timeout``,
    which is in what :func:`find` returns."""
    function = click.option(
        "--connect-timeout",
        type=Seconds(),
        default=CONNECT_TIMEOUT_S,
        show_default=True,
        metavar="SECONDS",
        expose_value=False,
        callback=_keep_connect_timeout,
        help="Give up after this time in which every address refused connections.",
    )(function)
    return cluster_options(function)
