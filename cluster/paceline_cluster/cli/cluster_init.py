"""``cluster init``: the directories of a cluster whose nodes others start.

One that other machines reach is closed from its first moment on, unless somebody says that it need
not be.
"""

from __future__ import annotations

from pathlib import Path

import click
import trio

from paceline_cluster import create, ports
from paceline_cluster.cli.options import settings_option, voters_option
from paceline_cluster.cli.output import Printer, Table, output_option
from paceline_cluster.cli.passwords import first_line
from paceline_cluster.cli.survey_report import address_table
from paceline_cluster.create import ClusterSpec
from paceline_cluster.first_user import PASSWORD_FILE, FirstUser, drawn
from paceline_cluster.state import ClusterState
from paceline_node.settings.addresses import is_loopback

MANY = click.IntRange(1, 9)
EVERYWHERE = "0.0.0.0"  # noqa: S104 - of a machine that serves others; --bind narrows it
ADMINISTRATOR = "admin"


@click.command()
@click.option(
    "--dir",
    "directory",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Where to make them; must be empty or new.",
)
@click.option("--nodes", type=MANY, help="So many nodes on this machine; 'up --dir' starts them.")
@click.option("--any-port", is_flag=True, help="With --nodes: free ports, not the documented ones.")
@click.option("--host", "hosts", multiple=True, help="A node on a machine of this name; repeat it.")
@click.option(
    "--bind", default=EVERYWHERE, show_default=True, help="With --host: the address to listen on."
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    default=Path("/var/lib/paceline"),
    show_default=True,
    help="With --host: where the node's directory will lie on its machine.",
)
@click.option(
    "--tls",
    is_flag=True,
    help="Encrypt everything, with certificates for a year; their authorities stay in DIR/tls.",
)
@voters_option
@settings_option
@click.option(
    "--admin",
    metavar="NAME",
    help="Encrypt everything, have clients log in, and make this administrator (default where "
    f"other machines reach the nodes: {ADMINISTRATOR}).",
)
@click.option(
    "--password-file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True, allow_dash=True),
    help="Whose first line is the administrator's password, '-': stdin (default: one is drawn, and "
    f"written to DIR/{PASSWORD_FILE}).",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Make no user, and encrypt nothing without --tls, though other machines reach the nodes.",
)
@output_option
def init(
    directory: Path,
    nodes: int | None,
    any_port: bool,
    hosts: tuple[str, ...],
    bind: str,
    data_dir: Path,
    tls: bool,
    voters: str | None,
    settings: dict[str, str],
    admin: str | None,
    password_file: Path | None,
    insecure: bool,
    printer: Printer,
) -> None:
    """Make the directories of a new cluster's first nodes, and start nothing.

    With --host each node-N directory is copied to its machine, to --data-dir there, and started
    with 'paceline node run --config DATA_DIR/node.toml'. All of them carry the cluster's secret.
    Where other machines reach them everything is encrypted, and clients have to log in, unless
    --insecure.
    """
    if (nodes is None) == (not hosts):
        raise click.UsageError("give either --nodes or --host")
    if insecure and (admin or password_file):
        raise click.UsageError("--insecure makes no user: leave out --admin and --password-file")
    wanted = None if voters is None else int(voters)
    whole = directory.resolve()
    create.refuse_existing(whole)
    is_reached = bool(hosts) and not all(map(is_loopback, (*hosts, bind)))
    is_closed = bool(admin or password_file) or (is_reached and not insecure)
    first_user = _administrator(admin, password_file) if is_closed else None

    async def prepare() -> ClusterState:
        if nodes is None:
            spec = create.hosts_spec(
                hosts, bind=bind, data_dir=data_dir, settings=settings, voters=wanted
            )
        else:
            async with ports.planned(range(nodes), any_port=any_port, offset=0) as plan:
                spec = create.local_spec(plan, settings=settings, voters=wanted)
        return await create.create(whole, _secured(spec, whole, first_user, tls=tls))

    _show(printer, trio.run(prepare), whole, first_user)
    if is_reached and not is_closed:
        printer.say(
            "other machines reach these nodes, and may do everything: the nodes say so in their "
            "logs and in 'paceline health' until that is changed"
        )


def _administrator(name: str | None, password_file: Path | None) -> FirstUser:
    chosen = name or ADMINISTRATOR
    if password_file is None:
        return drawn(chosen)
    return FirstUser(chosen, first_line(password_file, "password"))


def _secured(
    spec: ClusterSpec, directory: Path, first_user: FirstUser | None, *, tls: bool
) -> ClusterSpec:
    if first_user is not None:
        return spec.closed(directory, first_user)
    return spec.encrypted(directory) if tls else spec


def _show(
    printer: Printer, made: ClusterState, directory: Path, first_user: FirstUser | None
) -> None:
    directories = Table(("node", "directory"), [(node.id, node.dir) for node in made.nodes])
    addresses = address_table(
        [node.listeners for node in made.nodes], is_encrypted=made.tls is not None
    )
    password = directory / PASSWORD_FILE
    is_kept = first_user is not None and first_user.is_drawn
    data = {
        **made.to_json(),
        "administrator": None if first_user is None else first_user.name,
        "password_file": str(password) if is_kept else None,
    }
    printer.result(data, directories, addresses)
    if first_user is not None:
        where = f", with the password in {password}" if is_kept else ""
        printer.say(
            f"everything is encrypted, and clients have to log in: {first_user.name} is the first "
            f"user and may do everything{where}"
        )
