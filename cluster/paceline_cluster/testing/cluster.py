"""The cluster of a test, in the trio loop where it lives: faults, waiting, looking."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeVar

import trio

from paceline.client import Client, connect
from paceline.errors import ConfigurationError, PacelineError
from paceline.tls import ClientTls
from paceline.types import NO_NODE
from paceline.wire.native.data import PartitionDescription, PartitionInfo, StatusReply
from paceline_cluster import ports
from paceline_cluster.chaos.targets import PartitionView, Picture, parse_target
from paceline_cluster.node_calls import ask_metadata, ask_status
from paceline_cluster.testing.inprocess import in_process
from paceline_cluster.testing.logtail import LogTail
from paceline_cluster.testing.nodes import Nodes, Unsupported
from paceline_cluster.testing.processes import in_processes
from paceline_cluster.testing.scripted import ScriptedErrors, operation_named

T = TypeVar("T")
NodeName = int | str
"""Number or role: ``controller``, ``leader of orders/0``, ``a follower of orders/0``, ``any``."""
START_S = 60.0
"""How long a node or a cluster may take until it serves, unless told otherwise."""
LOG_LINES = 10
"""How much of the nodes' logs the report of a failed test shows, unless told otherwise."""
WAIT_S = 30.0
"""How long the wait methods wait unless told otherwise; nothing healthy takes that long."""
_LOOK_AGAIN_S = 0.01
STABLE = "Stable"
"""The state of a group whose members have their partitions (paceline/wire/native/groups.py)."""


class NotInTime(TimeoutError):
    """What was waited for did not come. The text shows the state of everything."""


class Cluster:
    """Made by :func:`open_cluster`. Nodes are named by number or by role."""

    def __init__(
        self,
        nodes: Nodes,
        *,
        scripted: ScriptedErrors | None,
        logs: LogTail | None,
        start_timeout_s: float,
    ) -> None:
        self._nodes = nodes
        self._scripted = scripted
        self._logs = logs
        self._start_timeout_s = start_timeout_s
        self._rng = random.Random(0)  # noqa: S311 - choices of a test, no secret

    @property
    def numbers(self) -> tuple[int, ...]:
        """All nodes, running or not."""
        return self._nodes.mesh.nodes

    def addresses(self, listener: str = "native") -> list[str]:
        """``host:port`` of a listener of every node, such as ``kafka``, ``cursus``, ``segment``,
        ``v1``, ``native``, ``http``. Raises ConfigurationError naming those that there are."""
        name = "kafka" if listener == "coordinator" else listener  # its older name
        known = self._nodes.listeners(self.numbers[0])
        if name not in known:
            raise ConfigurationError(
                f"{listener!r} is no listener of this cluster; it has {', '.join(sorted(known))}"
            )
        return [self._nodes.listeners(node)[name] for node in self.numbers]

    def bootstrap(self) -> list[str]:
        """What :func:`paceline.connect` takes: native addresses, with TLS where there is any."""
        return [self._native(node) for node in self.numbers]

    @property
    def tls(self) -> ClientTls | None:
        """What clients need where everything is encrypted."""
        return self._nodes.tls

    def _native(self, node: int) -> str:
        address = self._nodes.listeners(node)["native"]
        return address if self.tls is None else f"tls://{address}?{self.tls.query()}"

    # --- faults -----------------------------------------------------------------------------------

    async def kill(self, node: NodeName) -> int:
        """End a node at once: no hand-over, no flush, no mark of a clean stop. Returns which."""
        found = await self.node(node)
        await self._nodes.kill(found)
        return found

    async def stop(self, node: NodeName) -> int:
        """Stop a node in order: it hands its leaderships over first. Returns which."""
        found = await self.node(node)
        await self._nodes.stop(found)
        return found

    async def restart(self, node: NodeName) -> int:
        """Stop a node in order if it runs, start it, and wait until it serves. Returns which."""
        found = await self.node(node)
        if self._nodes.is_running(found):
            await self._nodes.stop(found)
        await self._nodes.start(found)
        await self._wait(f"node {found} serves", lambda: self._serves(found), self._start_timeout_s)
        return found

    async def wipe(self, node: NodeName) -> int:
        """Kill a node and give it a new, empty disk; ``restart`` brings it back. Returns which."""
        found = await self.node(node)
        await self._nodes.wipe(found)
        return found

    async def suspend(self, node: NodeName) -> int:
        """Freeze a node's process (SIGSTOP) until :meth:`resume`. Returns which. Raises
        Unsupported for nodes in this process."""
        found = await self.node(node)
        self._nodes.suspend(found)
        return found

    async def resume(self, node: int) -> None:
        """Let a frozen node go on."""
        await trio.lowlevel.checkpoint()
        self._nodes.resume(node)

    async def isolate(self, node: NodeName) -> int:
        """Cut a node off from all others until :meth:`heal`; clients still reach it. Returns
        which."""
        found = await self.node(node)
        self._nodes.mesh.isolate(found)
        return found

    async def cut(self, source: NodeName, target: NodeName) -> tuple[int, int]:
        """Let nothing pass from one node to another, one way, until :meth:`heal`."""
        found = (await self.node(source), await self.node(target))
        self._nodes.mesh.cut(*found)
        return found

    async def slow(self, source: NodeName, target: NodeName, delay_s: float) -> tuple[int, int]:
        """Delay everything from one node to another until :meth:`heal`."""
        found = (await self.node(source), await self.node(target))
        self._nodes.mesh.slow(*found, delay_s=delay_s)
        return found

    async def fail_disk(
        self,
        node: NodeName,
        *,
        write_errno: int = 0,
        sync_failures: int = 0,
        sync_delay_s: float = 0.0,
        free_bytes: int | None = None,
    ) -> int:
        """Let a node's disk go wrong until :meth:`heal`: every write fails with an errno, the next
        syncs fail, syncs are slow, or there is hardly room. Returns which."""
        found = await self.node(node)
        page = self._nodes.pages[found]
        page.write_errno, page.sync_failures = write_errno, sync_failures
        page.sync_delay_s, page.free_bytes = sync_delay_s, free_bytes
        return found

    async def set_clock(self, node: NodeName, offset_ms: int) -> int:
        """Let a node's wall clock be wrong by so much until :meth:`heal`. Returns which."""
        found = await self.node(node)
        self._nodes.pages[found].wall_offset_ms = offset_ms
        return found

    async def heal(self) -> None:
        """Take all faults of links, disks and clocks back, resume what is frozen, forget scripted
        errors. Nodes that do not run stay so; :meth:`restart` them."""
        await trio.lowlevel.checkpoint()
        self._nodes.mesh.heal()
        for node in self.numbers:
            self._nodes.pages[node].heal()
            self._nodes.resume(node)
        if self._scripted is not None:
            self._scripted.clear()

    async def fail_next(
        self,
        operation: str,
        error: PacelineError,
        *,
        topic: str | None = None,
        count: int = 1,
    ) -> None:
        """Answer the next ``count`` requests with ``error``, before anything is done: ``produce``,
        ``consume``, ``describe``, ``create`` ... of ``topic``, or of any.

        A client that retries asks again, and counts again. Raises Unsupported for nodes in
        processes of their own, ValueError for an unknown operation.
        """
        await trio.lowlevel.checkpoint()
        if self._scripted is None:
            raise Unsupported("errors can be scripted only for nodes in the test's own process")
        self._scripted.fail_next(operation_named(operation), topic, error, count)

    # --- looking ----------------------------------------------------------------------------------

    async def node(self, name: NodeName) -> int:
        """The node of a number or role, once somebody has the role."""
        if isinstance(name, int):
            await trio.lowlevel.checkpoint()
            if name not in self.numbers:
                raise ValueError(f"there is no node {name}; there are {self.numbers}")
            return name
        target = parse_target(name)

        async def found() -> int | None:
            picture = await self._picture()
            return target.nodes(picture, self._rng)[0]

        return await self._wait(f"there is {name}", found, WAIT_S)

    async def status(self, node: int) -> StatusReply:
        """What a node says of itself. Raises PacelineError."""
        return await ask_status(self._native(node))

    async def partition(self, topic: str, partition: int) -> PartitionInfo:
        """Leader, epoch, replicas and ISR, as the best informed node knows them. Raises
        LookupError."""
        status = await self._newest()
        reply = await ask_metadata(self._native(int(status.node_id)), topic)
        for each in reply.topics[0].partitions:
            if each.partition == partition:
                return each
        raise LookupError(f"there is no partition {topic}/{partition}")

    async def dump(self) -> str:
        """The state of everything, for the report of a failed test."""
        lines: list[str] = []
        told_before: list[str] = []
        for node in self.numbers:
            lines.append(self._nodes.describe_end(node))
            if not self._nodes.is_running(node):
                continue
            try:
                told = await self.status(node)
            except PacelineError as error:
                lines.append(f"  does not answer: {error}")
                continue
            lines.append(
                f"  {told.state} {', '.join(told.reasons)} role {told.role} term {told.term} "
                f"controller {told.controller}, {told.leaderless_count} partitions without leader, "
                f"{told.under_replicated_count} under-replicated"
            )
            topics = await self._topics(node)
            is_known = topics == told_before != []
            lines += ["  knows the same of the topics"] if is_known else topics
            told_before = topics
        if self._logs is not None:
            lines += self._logs.end()
        return "\n".join(lines)

    async def _topics(self, node: int) -> list[str]:
        try:
            reply = await ask_metadata(self._native(node), None)
        except PacelineError as error:
            return [f"  tells no metadata: {error}"]
        return [
            f"  {topic.name}/{each.partition}: leader {each.leader} epoch {each.leader_epoch} "
            f"replicas {list(each.replicas)} isr {list(each.isr)}"
            for topic in reply.topics
            if not topic.name.startswith("__")
            for each in topic.partitions
        ]

    async def _newest(self) -> StatusReply:
        """The status with the newest metadata, of the nodes that a leader would be seen by: with
        the controller's majority. Raises LookupError when nobody answers."""
        answers: list[StatusReply] = []

        async def ask(node: int) -> None:
            with contextlib.suppress(PacelineError), trio.move_on_after(1):
                answers.append(await self.status(node))

        async with trio.open_nursery() as nursery:
            for node in self.numbers:
                if self._nodes.is_running(node):
                    nursery.start_soon(ask, node)
        if not answers:
            raise LookupError("no node answers")
        return max(answers, key=lambda status: (status.term, status.image_offset))

    async def _picture(self) -> Picture:
        status = await self._newest()
        reply = await ask_metadata(self._native(int(status.node_id)), None)
        partitions = {
            f"{topic.name}/{each.partition}": PartitionView(
                None if each.leader == NO_NODE else int(each.leader),
                tuple(map(int, each.replicas)),
            )
            for topic in reply.topics
            for each in topic.partitions
        }
        controller = None if status.controller == NO_NODE else int(status.controller)
        return Picture(self.numbers, controller, partitions, is_healthy=False)

    # --- waiting ----------------------------------------------------------------------------------

    async def wait_for_leader(
        self,
        topic: str,
        partition: int = 0,
        *,
        other_than: int | None = None,
        timeout_s: float = WAIT_S,
    ) -> int:
        """Wait until a partition has a leader that runs (and is not ``other_than``); returns it."""

        async def found() -> int | None:
            leader = int((await self.partition(topic, partition)).leader)
            is_new = leader not in (NO_NODE, other_than)
            return leader if is_new and self._nodes.is_running(leader) else None

        return await self._wait(f"{topic}/{partition} has a leader", found, timeout_s)

    async def wait_for_isr(
        self, topic: str, partition: int = 0, *, count: int | None = None, timeout_s: float = WAIT_S
    ) -> list[int]:
        """Wait until ``count`` replicas (all of them, if None) are in sync; returns them."""

        async def found() -> list[int] | None:
            info = await self.partition(topic, partition)
            wanted = len(info.replicas) if count is None else count
            return sorted(map(int, info.isr)) if len(info.isr) == wanted else None

        what = "all" if count is None else count
        return await self._wait(f"{what} replicas of {topic}/{partition} in sync", found, timeout_s)

    async def wait_for_high_watermark(
        self, topic: str, partition: int = 0, *, offset: int, timeout_s: float = WAIT_S
    ) -> int:
        """Wait until everything before ``offset`` is committed; returns the high watermark."""

        async def found() -> int | None:
            mark = (await self._describe(topic, partition)).high_watermark
            return mark if mark >= offset else None

        what = f"the high watermark of {topic}/{partition} reaches {offset}"
        return await self._wait(what, found, timeout_s)

    async def wait_for_group_stable(
        self, group: str, *, members: int | None = None, timeout_s: float = WAIT_S
    ) -> list[str]:
        """Wait until a consumer group has shared its partitions out, among ``members`` members if
        that is given; returns their ids."""

        async def found() -> list[str] | None:
            async with connect(self.bootstrap()) as client:
                described = await client.admin.groups.describe(group)
            ids = sorted(member.member_id for member in described.members)
            is_stable = described.state == STABLE and members in (None, len(ids))
            return ids if is_stable else None

        return await self._wait(f"group {group} is stable", found, timeout_s)

    async def wait_until_healthy(self, *, timeout_s: float = WAIT_S) -> None:
        """Wait until all nodes serve, every partition has its leader and all its replicas."""
        await self._wait("the cluster is healthy", self._is_healthy, timeout_s)

    async def wait_until_ready(self, *, timeout_s: float = WAIT_S) -> None:
        """Wait until all nodes serve and every partition, internal ones too, has a leader."""
        await self._wait("the cluster is ready", self._is_ready, timeout_s)

    async def _describe(self, topic: str, partition: int) -> PartitionDescription:
        async with connect(self.bootstrap()) as client:
            described = await client.admin.describe_topic(topic)
        return described.partitions[partition]

    async def _serves(self, node: int) -> bool:
        return (await self.status(node)).state == "running"

    async def _is_ready(self) -> bool:
        told = [await self.status(node) for node in self.numbers]
        return (
            all(each.state == "running" and each.topic_count >= 2 for each in told)
            and not any(each.leaderless_count for each in told)
            and len({each.controller for each in told}) == 1
        )

    async def _is_healthy(self) -> bool:
        if not await self._is_ready():
            return False
        return not any([(await self.status(n)).under_replicated_count for n in self.numbers])

    async def _wait(
        self, what: str, look: Callable[[], Awaitable[T | None]], timeout_s: float
    ) -> T:
        """Look until there is something to see. A look that fails has seen nothing. Raises
        NotInTime."""
        with trio.move_on_after(timeout_s):
            while True:
                try:
                    found = await look()
                except (PacelineError, OSError, LookupError):
                    found = None
                if found is not None and found is not False:
                    return found
                await trio.sleep(_LOOK_AGAIN_S)
        raise NotInTime(f"{what}: not within {timeout_s:g} s\n{await self.dump()}")

    # --- clients ----------------------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic (replication factor -1: the cluster's default, up to 3), and wait until
        all its replicas are in sync."""
        async with connect(self.bootstrap()) as client:
            await _create(client, name, partitions, replication_factor, configs)
        for partition in range(partitions):
            await self.wait_for_isr(name, partition)


async def _create(
    client: Client,
    name: str,
    partitions: int,
    replication_factor: int,
    configs: Mapping[str, str] | None,
) -> None:
    await client.admin.create_topic(
        name, partitions=partitions, replication_factor=replication_factor, configs=configs
    )


@contextlib.asynccontextmanager
async def open_cluster(
    directory: Path,
    *,
    nodes: int,
    settings: Mapping[str, str],
    own_processes: bool,
    tls: bool = False,
    start_timeout_s: float = START_S,
    log_lines: int = LOG_LINES,
) -> AsyncIterator[Cluster]:
    """A ready cluster of its own in an empty directory. Raises NotInTime; TooLate where its nodes
    have processes of their own."""
    if own_processes:
        async with in_processes(
            directory, nodes, settings, tls=tls, timeout_s=start_timeout_s, log_lines=log_lines
        ) as running:
            yield Cluster(running, scripted=None, logs=None, start_timeout_s=start_timeout_s)
        return
    scripted = ScriptedErrors()
    async with contextlib.AsyncExitStack() as stack:
        logs = stack.enter_context(LogTail(directory / "nodes.log", lines=log_lines))
        async with ports.choosing():
            shared = in_process(directory, nodes, settings, scripted, tls=tls)
            cluster = Cluster(
                await stack.enter_async_context(shared),
                scripted=scripted,
                logs=logs,
                start_timeout_s=start_timeout_s,
            )
            await cluster.wait_until_ready(timeout_s=start_timeout_s)
        yield cluster
