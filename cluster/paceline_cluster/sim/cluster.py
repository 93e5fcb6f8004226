"""A cluster of simulated machines: addresses, settings, formatting, clients' way in."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from uuid import UUID

import trio

from paceline.client.endpoint import Endpoint
from paceline.client.transport import Dial
from paceline.types import NodeId
from paceline_cluster.sim.fabric import Fabric
from paceline_cluster.sim.machine import Machine
from paceline_cluster.sim.plan import ForeignClient
from paceline_node.app.boot import format_node
from paceline_node.app.node import Node
from paceline_node.controller.raft_types import Member
from paceline_node.env import Env
from paceline_node.settings import Settings, load
from paceline_node.storage.layout import DirectoryMeta

V1_PORT, NATIVE_PORT, PEER_PORT, SEGMENT_PORT = 9092, 7400, 7401, 12345
CURSUS_PORT, KAFKA_PORT = 9000, 9192
_FOREIGN_PORTS = {
    ForeignClient.CURSUS: ("cursus", CURSUS_PORT),
    ForeignClient.KAFKA: ("kafka", KAFKA_PORT),
    ForeignClient.COORDINATOR: ("kafka", KAFKA_PORT),
}

CHAOS_TIMING = {
    "broker.heartbeat_ms": "200",
    "broker.session_ms": "1200",
    "raft.heartbeat_ms": "100",
    "raft.election_ms": "400",
    "replication.lag_max_ms": "1500",
    "replication.fetch_max_wait_ms": "300",
    "replication.backoff_min_ms": "20",
    "replication.backoff_max_ms": "200",
    "log.checkpoint_ms": "1000",
    "log.scrub_interval_ms": "5000",
    "controller.noop_interval_ms": "500",
    "groups.session_min_ms": "1000",
    "v1.session_timeout_ms": "2000",
    "cursus.session_timeout_ms": "2000",
    "cursus.keepalive_ms": "1000",
    "segment.append_timeout_ms": "3000",
    "segment.read_wait_ms": "500",
    "disk.min_free_bytes": "0",
}
"""Short times: more happens in a virtual second than with
production's timing. What only says that nothing happened is rarer than there."""


@dataclass(frozen=True)
class Shape:
    """A cluster's size and settings. ``settings`` come on top of the timing of the chaos tests;
    ``spares`` are machines that join later, if at all. Nodes listen for ``foreign_clients``
    besides."""

    nodes: int = 3
    voters: int = 3
    spares: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)
    foreign_clients: tuple[ForeignClient, ...] = ()


def host_of(number: int) -> str:
    """The address of a node's machine."""
    return f"10.0.0.{number + 1}"


class SimCluster:
    """Machines by number. Whatever is drawn comes from ``rng``."""

    def __init__(
        self,
        shape: Shape,
        fabric: Fabric,
        rng: random.Random,
        nursery: trio.Nursery,
        secret_file: Path,
        note: Callable[[str], None],
    ) -> None:
        self.shape = shape
        self.fabric = fabric
        self.nursery = nursery
        self.cluster_id = self._uuid(rng)
        self._rng = rng
        self._note = note
        self._base = self._settings(secret_file)
        self.machines = [
            Machine(
                number,
                host_of(number),
                fabric,
                random.Random(rng.getrandbits(64)),
                self._make_node,
                note,
            )
            for number in range(shape.nodes + shape.spares)
        ]

    def _uuid(self, rng: random.Random) -> UUID:
        return UUID(int=rng.getrandbits(128), version=4)

    def _settings(self, secret_file: Path) -> Settings:
        voters = ",".join(f"{n}@{host_of(n)}:{PEER_PORT}" for n in range(self.shape.voters))
        words = {
            **CHAOS_TIMING,
            "cluster.secret_file": str(secret_file),
            "cluster.bootstrap": voters,
            "raft.voters": str(self.shape.voters),
            **self.shape.settings,
        }
        return load(flags=[f"{key}={value}" for key, value in words.items()])

    def _make_node(self, machine: Machine, env: Env) -> Node:
        host = machine.host
        ports = (
            ("v1", V1_PORT),
            ("native", NATIVE_PORT),
            ("peer", PEER_PORT),
            ("segment", SEGMENT_PORT),
            *dict.fromkeys(_FOREIGN_PORTS[client] for client in self.shape.foreign_clients),
        )
        listeners = load(
            flags=["listeners=" + ",".join(f"{kind}://{host}:{port}" for kind, port in ports)]
        ).listeners
        node = replace(self._base.node, id=machine.number, data_dir=Path(f"n{machine.number}"))
        return Node(replace(self._base, node=node, listeners=listeners), env)

    @property
    def members(self) -> list[Machine]:
        """The machines on which a process was ever started."""
        return [machine for machine in self.machines if machine.lives]

    # --- life -------------------------------------------------------------------------------------

    async def format(self) -> None:
        """Give every disk an identity; the first ones are the quorum's voters."""
        voters = [
            Member(NodeId(number), self._uuid(self._rng), host_of(number), PEER_PORT)
            for number in range(self.shape.voters)
        ]
        for machine in self.machines:
            if machine.number < len(voters):
                directory_id = voters[machine.number].directory_id
                await self._format(machine, directory_id, voters)
            else:
                await self._format(machine, self._uuid(self._rng), ())

    async def _format(self, machine: Machine, directory_id: UUID, voters: Iterable[Member]) -> None:
        meta = DirectoryMeta(self.cluster_id, NodeId(machine.number), directory_id)
        await format_node(machine.disk, meta, tuple(voters))

    def start(self, machine: Machine) -> None:
        """Start a process on a machine that has none."""
        machine.start(self.nursery)

    async def wipe(self, machine: Machine) -> None:
        """Replace the disk of a machine without a process, as ``node format --replace``."""
        assert not machine.is_up, f"{machine} is running"
        self._note(f"n{machine.number} gets an empty disk")
        machine.disk.wipe()
        machine.disk_was_replaced()
        machine.is_being_wiped = True
        try:
            await self._format(machine, self._uuid(self._rng), ())
        finally:
            machine.is_being_wiped = False

    # --- clients ----------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> list[str]:
        """Where native clients begin."""
        return [f"{machine.host}:{NATIVE_PORT}" for machine in self.members]

    def dial_from(self, host: str) -> Dial:
        """How a client on ``host`` connects."""
        return partial(self._dial, host)

    async def _dial(self, host: str, endpoint: Endpoint) -> trio.abc.Stream:
        return await self.fabric.connect(host, endpoint.host, endpoint.port)
