"""What consumer groups cost their coordinators while nothing happens but heartbeats."""

from __future__ import annotations

import random
from collections.abc import Sequence

import trio

from paceline.client import ClientSettings, GroupSettings
from paceline.client.coordinator import Coordinator
from paceline.client.endpoint import parse_bootstrap
from paceline.client.membership import HEARTBEATS_PER_SESSION, Membership
from paceline.client.metadata import Metadata
from paceline.client.pool import ConnectionPool
from paceline.client.retry import Backoff
from paceline.client.transport import dial_tcp
from paceline.types import TopicPartition
from paceline_cluster.bench import cpu
from paceline_cluster.bench.figures import Figure
from paceline_cluster.bench.rig import Rig

GROUPS = 1000
MEMBERS = 3
TOPIC = "bench-groups"
JOINING_AT_ONCE = 16
SETTINGS = GroupSettings(session_timeout_s=10.0)


class _Owner:
    """Partitions that nobody reads."""

    def __init__(self) -> None:
        self.partitions: Sequence[TopicPartition] = ()
        self.ready = trio.Event()
        self.lost_count = 0

    def owned(self) -> Sequence[TopicPartition]:
        return self.partitions

    async def tell(self, topics: Sequence[str]) -> bytes | None:
        await trio.lowlevel.checkpoint()
        return None

    def hear(self, told: bytes | None) -> None:
        pass

    async def take(self, partitions: Sequence[TopicPartition]) -> None:
        self.partitions = partitions
        if len(partitions) == 1:
            self.ready.set()

    async def give_up(self, *, lost: bool) -> None:
        self.partitions = ()
        self.lost_count += lost

    def is_stuck(self) -> bool:
        return False

    async def asked_again(self) -> None:
        await trio.lowlevel.checkpoint()


class _Members:
    """Members without consumers, all over one client's connections."""

    def __init__(self, nursery: trio.Nursery, addresses: Sequence[str]) -> None:
        rng = random.Random(1)  # noqa: S311 - jitter
        client = ClientSettings(client_id="bench")
        bootstrap = parse_bootstrap(addresses)
        self._backoff = Backoff(client.backoff_s, client.max_backoff_s, rng)
        self._pool = ConnectionPool(nursery, bootstrap, client, dial_tcp, rng)
        self._metadata = Metadata(self._pool, client, self._backoff, pattern=bootstrap[0])
        self._nursery = nursery
        self._joining = trio.CapacityLimiter(JOINING_AT_ONCE)
        self.owners: list[_Owner] = []
        nursery.start_soon(self._metadata.run)

    async def join(self, group: str) -> None:
        """Return once each member of the group has its partition."""
        async with self._joining:
            owners = [self._start(group) for _ in range(MEMBERS)]
            for owner in owners:
                await owner.ready.wait()
        self.owners += owners

    def _start(self, group: str) -> _Owner:
        owner = _Owner()
        coordinator = Coordinator(self._pool, self._metadata, self._backoff, group)
        member = Membership(
            coordinator, self._metadata, self._backoff, SETTINGS, owner, [TOPIC], client_id="bench"
        )
        self._nursery.start_soon(member.run)
        return owner

    async def learn_brokers(self) -> None:
        await self._metadata.refresh([TOPIC])

    def close(self) -> None:
        self._pool.close()


async def steady(made: Rig, *, seconds: float) -> list[Figure]:
    """CPU and memory of the nodes with many groups that only send heartbeats."""
    made.paceline("topic", "create", TOPIC, "--partitions", str(MEMBERS), "--if-not-exists")
    memory = made.resident_mib()
    async with trio.open_nursery() as nursery:
        members = _Members(nursery, made.addresses)
        await members.learn_brokers()
        begin = trio.current_time()
        async with trio.open_nursery() as joining:
            for number in range(GROUPS):
                joining.start_soon(members.join, f"bench-{number}")
        joined_s = trio.current_time() - begin
        before, start = cpu.sample(made), trio.current_time()
        await trio.sleep(max(seconds, SETTINGS.session_timeout_s))
        after, wall_s = cpu.sample(made), trio.current_time() - start
        grown = [now - then for now, then in zip(made.resident_mib(), memory, strict=True)]
        lost = sum(owner.lost_count for owner in members.owners)
        members.close()
        nursery.cancel_scope.cancel()
    shares = [100 * (after.by_node[node] - before.by_node[node]) / wall_s for node in after.by_node]
    name = f"{GROUPS} groups of {MEMBERS}"
    pause_s = SETTINGS.session_timeout_s / HEARTBEATS_PER_SESSION
    details = {
        "all_nodes": round(sum(shares), 1),
        "heartbeats_per_s": round(GROUPS * MEMBERS / pause_s),
        "sessions_lost": lost,
        "seconds_to_join": round(joined_s, 1),
    }
    return [
        Figure(
            f"{name}, CPU of the busiest node", round(max(shares), 1), "% of a core", None, details
        ),
        Figure(f"{name}, memory of a node", round(max(grown), 1), "MiB more"),
    ]
