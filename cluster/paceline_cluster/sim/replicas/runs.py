"""Whole runs: a seed and a profile give a cluster, faults and a verdict (DESIGN 4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from paceline.errors import PacelineError
from paceline.types import NO_NODE, NodeId
from paceline.wire.native import admin
from paceline_cluster.sim.replicas.broker import LAG_MAX_S, SimBroker
from paceline_cluster.sim.replicas.oracle import Oracle, Violation
from paceline_cluster.sim.replicas.world import AUTHORITY, TOPIC, Authority, NetworkFaults, World
from paceline_node.settings.flush_mode import FlushMode

WARM_UP_S = 1.0
HEAL_S = 4.0


@dataclass(frozen=True)
class Profile:
    """Shares of faults per fault slot; the rest of the probability does nothing. ``again`` is the
    share of losing faults that hit a node which is just coming back from one. ``down_s`` bounds how
    long a process stays away, ``pause_s`` how long one stands still."""

    name: str
    network: NetworkFaults = field(default_factory=NetworkFaults)
    slot_s: tuple[float, float] = (0.02, 0.3)
    seconds: float = 6.0
    kill: float = 0.25
    stop: float = 0.05
    kill_all: float = 0.04
    lose: float = 0.11
    pause: float = 0.15
    cut: float = 0.2
    move: float = 0.1
    min_isr: float = 0.08
    power_all: float = 0.0
    age: float = 0.0
    age_data_alone: float = 0.0
    """Of these, how many of the log and what is kept of it, while the metadata are new."""
    again: float = 0.0
    mover: float = 0.0
    acks_leader: float = 0.0
    """Writes that wait for the leader alone, and are taken where nothing can be committed."""
    down_s: tuple[float, float] = (0.0, 0.8)
    pause_s: tuple[float, float] = (0.1, 1.5)
    modes: tuple[FlushMode, ...] = (FlushMode.GROUP, FlushMode.INTERVAL)


MIXED = Profile("mixed")
MOVER = Profile(
    "mover",
    network=NetworkFaults(metadata_s=0.4, slow=0.1, slow_s=1.0),
    kill=0.0,
    stop=0.0,
    kill_all=0.0,
    lose=0.0,
    pause=0.02,
    cut=0.02,
    move=0.0,
    min_isr=0.0,
    mover=0.3,
)
SLOW_PROPOSAL = Profile(
    "slow-proposal",
    network=NetworkFaults(proposal_s=1.5, metadata_s=0.2),
    slot_s=(0.1, 0.5),
    lose=0.6,
    again=0.7,
    kill=0.05,
    pause=0.05,
    cut=0.05,
)
LOSSY_SMALL = Profile("lossy-small", lose=0.5, kill=0.2, pause=0.05, cut=0.1)
POWER_ALL = Profile(
    "power-all", power_all=0.12, kill=0.1, lose=0.05, cut=0.1, modes=(FlushMode.GROUP,)
)
MIN_ISR = Profile(
    "min-isr",
    network=NetworkFaults(metadata_s=0.5, proposal_s=0.3),
    min_isr=0.4,
    kill=0.15,
    pause=0.1,
    cut=0.1,
)
RESTARTS = Profile(
    "restarts",
    network=NetworkFaults(loss=0.05, duplicate=0.1, slow=0.3, slow_s=0.6),
    kill=0.5,
    kill_all=0.08,
    lose=0.08,
    pause=0.02,
    cut=0.05,
    down_s=(0.0, 0.15),
)
"""Processes die before they are registered, and their messages arrive when others have taken their
place."""
REJECTED = Profile(
    "rejected",
    network=NetworkFaults(duplicate=0.2, proposal_s=1.5, metadata_s=0.4),
    slot_s=(0.05, 0.3),
    kill=0.02,
    stop=0.0,
    kill_all=0.0,
    lose=0.02,
    pause=0.5,
    cut=0.02,
    pause_s=(0.4, 1.0),
)
"""Replicas are fenced and come back while proposals to admit them are under way."""
AGED = Profile(
    "aged",
    slot_s=(0.1, 0.5),
    kill=0.1,
    kill_all=0.1,
    lose=0.0,
    pause=0.02,
    cut=0.05,
    age=0.3,
    down_s=(0.0, 0.5),
)
"""One disk at a time is as it was some time ago, most often after all were killed."""
AGED_ALONE = replace(AGED, name="aged-alone", acks_leader=0.3, kill_all=0.2)
"""Whoever leads alone meanwhile takes writes for which only it is asked."""
AGED_APART = replace(AGED, name="aged-apart", pause=0.1, cut=0.2, kill=0.05, down_s=(0.0, 2.5))
"""Those who have everything stay away for longer than anybody waits for them."""
AGED_DATA = replace(AGED_APART, name="aged-data", age_data_alone=0.8)
"""Its metadata are not of then."""
PROFILES = {
    profile.name: profile
    for profile in (
        MIXED,
        MOVER,
        SLOW_PROPOSAL,
        LOSSY_SMALL,
        POWER_ALL,
        MIN_ISR,
        RESTARTS,
        REJECTED,
        AGED,
        AGED_ALONE,
        AGED_APART,
        AGED_DATA,
    )
}


class Run:
    """One simulated history."""

    def __init__(self, seed: int, profile: Profile) -> None:
        self.seed = seed
        self.profile = profile
        self.world = World(seed, profile.network)
        rng = self.world.rng
        count = rng.choice((3, 3, 3, 4, 5))
        self.mode = rng.choice(profile.modes)
        self.low_min_isr = 3 if count == 5 and rng.random() < 0.5 else 2
        self.high_min_isr = min(self.low_min_isr + 1, count)
        self.authority = Authority(self.world)
        self.brokers = [
            SimBroker(self.world, self.authority, node, self.mode) for node in range(count)
        ]
        for broker in self.brokers:
            broker.acks_leader = profile.acks_leader
            broker.others = {other.node: other for other in self.brokers if other is not broker}
        self.oracle = Oracle(self.world, self.authority, self.brokers)
        self._lossy: set[int] = set()
        self.faults = 0

    def execute(self) -> None:
        """Raises Violation, or AssertionError of the code itself."""
        self.warm_up()
        world = self.world
        world.healed = False
        end = WARM_UP_S + self.profile.seconds
        self._schedule(end)
        if self.profile.mover:
            self._schedule_moves(end)
        world.run(end)
        self._heal()
        world.run(end + HEAL_S)
        if self._awaits_operator():
            self._elect_longest()
            world.run(end + 2 * HEAL_S)
        self.oracle.check_end()

    def warm_up(self) -> None:
        """Brokers up, the partition created, nothing failing."""
        world = self.world
        world.healed = True
        for broker in self.brokers:
            broker.start()
        world.run(WARM_UP_S / 2)
        nodes = tuple(broker.node for broker in self.brokers)
        configs = {"min.insync.replicas": str(self.low_min_isr)}
        self.authority.handle(
            None, admin.CreateTopic(TOPIC, 1, len(nodes), configs, assignment=(nodes,))
        )
        world.run(WARM_UP_S)

    def _schedule(self, end: float) -> None:
        low, high = self.profile.slot_s

        def slot() -> None:
            if self.world.now < end:
                self._fault()
                self.world.after(self.world.rng.uniform(low, high), slot)

        self.world.after(self.world.rng.uniform(low, high), slot)

    def _schedule_moves(self, end: float) -> None:
        def slot() -> None:
            if self.world.now < end:
                if self.world.rng.random() < self.profile.mover:
                    self._move()
                self.world.after(0.025, slot)

        self.world.after(0.025, slot)

    # --- the operator -------------------------------------------------------------------------

    def _awaits_operator(self) -> bool:
        """Whether it may lack a leader: two disks have lost something, and nobody is left who
        surely has everything. Nothing may be missing all the same."""
        partition = self.authority.partition
        return partition is not None and partition.leader == NO_NODE and len(self._lossy) > 1

    def _elect_longest(self) -> None:
        """What ``paceline health`` says is to be done."""
        logs = {broker.node: broker.log for broker in self.brokers}
        longest = max(
            logs, key=lambda node: (logs[node].epochs.last_epoch, logs[node].log_end_offset)
        )
        self.world.note(f"the operator elects b{longest}")
        self.authority.handle(None, admin.ElectLeader(TOPIC, 0, longest, unclean=True))

    # --- faults -------------------------------------------------------------------------------

    def _fault(self) -> None:
        if self._awaits_patience():
            return
        profile = self.profile
        table: tuple[tuple[float, Callable[[], None]], ...] = (
            (profile.kill, self._kill),
            (profile.stop, self._stop),
            (profile.kill_all, self._kill_all),
            (profile.lose, self._lose),
            (profile.pause, self._pause),
            (profile.cut, self._cut),
            (profile.move, self._move),
            (profile.min_isr, self._change_min_isr),
            (profile.power_all, self._power_all),
            (profile.age, self._age),
        )
        drawn = self.world.rng.random()
        for share, fault in table:
            if drawn < share:
                self.faults += 1
                fault()
                return
            drawn -= share

    def _awaits_patience(self) -> bool:
        """Whether a disk is older than its node knows, and nothing told so when it registered.
        Then all has to be well until it was made good: as long as those who lead alone are
        patient, no longer (controller/DESIGN 12.4)."""
        for broker in self.brokers:
            if broker.is_young_copy and self.oracle.is_complete(broker):
                broker.is_young_copy = False
        return any(broker.is_young_copy for broker in self.brokers)

    def _living(self) -> SimBroker | None:
        living = [broker for broker in self.brokers if broker.alive and not broker.paused]
        return self.world.rng.choice(living) if living else None

    def _restart_later(self, broker: SimBroker) -> None:
        life = broker.life
        soonest, latest = self.profile.down_s
        if self._awaits_patience():
            latest = min(latest, soonest + LAG_MAX_S / 2)

        def restart() -> None:
            if broker.life == life and not broker.alive:
                broker.start()

        self.world.after(self.world.rng.uniform(soonest, latest), restart)

    def _kill(self) -> None:
        broker = self._living()
        if broker is not None:
            broker.kill()
            self._restart_later(broker)

    def _stop(self) -> None:
        broker = self._living()
        if broker is not None:
            broker.stop()
            self._restart_later(broker)

    def _kill_all(self) -> None:
        for broker in self.brokers:
            if broker.alive:
                broker.kill()
                self._restart_later(broker)

    def _power_all(self) -> None:
        for broker in self.brokers:
            broker.power_cut()
            self._restart_later(broker)

    def _lose(self) -> None:
        """A power cut or a wipe of one node, within the budget of min ISR - 1 (DESIGN 3)."""
        rng = self.world.rng
        if self._lossy and rng.random() < self.profile.again:
            broker = self.brokers[rng.choice(sorted(self._lossy))]
        else:
            broker = rng.choice(self.brokers)
        wipe = self.world.rng.random() < 0.5
        losing = wipe or not self.mode.counts_durable
        if losing and not self._may_lose(broker):
            return
        if losing:
            self._lossy.add(broker.node)
        if wipe:
            broker.wipe()
        else:
            broker.power_cut()
        self._restart_later(broker)

    def _may_lose(self, broker: SimBroker) -> bool:
        """Whether the replica may lose data: those that did and are not back in the ISR as a
        process started since then count against the budget."""
        partition = self.authority.partition
        registered = self.authority.image.brokers
        for node in sorted(self._lossy):
            back = self.brokers[node]
            if back.has_aged and not self.oracle.is_complete(back):
                continue
            if (
                partition is not None
                and node in partition.isr
                and back.alive
                and registered[NodeId(node)].broker_epoch == back.broker_epoch
            ):
                self._lossy.discard(node)
                back.has_aged = False
        return len(self._lossy | {broker.node}) <= self.low_min_isr - 1

    def _age(self) -> None:
        """Some time later the disk of one node is as it is now."""
        broker = self._living()
        if broker is not None:
            share = self.profile.age_data_alone
            alone = share > 0 and self.world.rng.random() < share
            put_back = broker.copy_disk(data_alone=alone)
            self.world.after(
                self.world.rng.uniform(0.1, 2.0), lambda: self._grow_old(broker, put_back)
            )

    def _grow_old(self, broker: SimBroker, put_back: Callable[[], bool]) -> None:
        if not self._may_lose(broker) or self.world.healed or self._awaits_patience():
            return
        if any(each.paused for each in self.brokers) or not put_back():
            return
        self._lossy.add(broker.node)
        if broker.is_young_copy:
            self.world.cuts.clear()
            for other in self.brokers:
                if not other.alive:
                    self._restart_later(other)
        if self.world.rng.random() < 0.8:
            self._kill_all()
        self._restart_later(broker)

    def _pause(self) -> None:
        broker = self._living()
        if broker is not None:
            broker.pause(self.world.rng.uniform(*self.profile.pause_s))

    def _cut(self) -> None:
        rng = self.world.rng
        node = rng.choice(self.brokers).node
        everyone = [AUTHORITY, *(broker.node for broker in self.brokers)]
        others = [other for other in everyone if other != node and rng.random() < 0.6]
        kind = rng.randrange(3)
        cuts: set[tuple[int, int]] = set()
        for other in others:
            if kind in (0, 1):
                cuts.add((node, other))
            if kind in (0, 2):
                cuts.add((other, node))
        self.world.note(f"cut {sorted(cuts)}")
        self.world.cuts |= cuts

        def heal() -> None:
            self.world.cuts -= cuts

        self.world.after(rng.uniform(0.1, 1.5), heal)

    def _move(self) -> None:
        partition = self.authority.partition
        assert partition is not None
        target = self.world.rng.choice(partition.replicas)
        try:
            self.authority.handle(None, admin.ElectLeader(TOPIC, 0, target))
            self.world.note(f"moved to b{target}")
        except PacelineError:
            return

    def _change_min_isr(self) -> None:
        value = self.world.rng.choice((self.low_min_isr, self.high_min_isr))
        self.world.note(f"min ISR {value}")
        request = admin.AlterTopic(TOPIC, {"min.insync.replicas": str(value)})
        self.authority.handle(None, request)

    def _heal(self) -> None:
        world = self.world
        world.note("healed")
        world.healed = True
        world.cuts.clear()
        request = admin.AlterTopic(TOPIC, {"min.insync.replicas": str(self.low_min_isr)})
        self.authority.handle(None, request)
        for broker in self.brokers:
            if not broker.alive:
                broker.start()


@dataclass(frozen=True)
class Verdict:
    """What came of a run; ``violation`` is None when all was well."""

    seed: int
    profile: str
    violation: str | None
    trace: tuple[str, ...]
    acknowledged: int
    elections: int
    faults: int

    def report(self) -> str:
        tail = "\n".join(self.trace[-60:])
        return (
            f"{self.violation}\nseed {self.seed}, profile {self.profile}; repeat with\n"
            f"  PACELINE_SEED={self.seed} PACELINE_PROFILE={self.profile} .venv/bin/python -m "
            f"pytest tests/sim/replication/test_random.py\n{tail}"
        )


def run(seed: int, profile: Profile, *, seconds: float | None = None) -> Verdict:
    """One run; violations and broken assertions become its verdict."""
    if seconds is not None:
        profile = replace(profile, seconds=seconds)
    history = Run(seed, profile)
    violation = None
    try:
        history.execute()
    except Violation as error:
        violation = str(error)
    except AssertionError as error:
        violation = f"assertion: {error!r} at {_place(error)}"
    return Verdict(
        seed,
        profile.name,
        violation,
        tuple(history.world.trace),
        len(history.oracle.acknowledged),
        history.oracle.elections,
        history.faults,
    )


def _place(error: AssertionError) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "?" if trace is None else f"{trace.tb_frame.f_code.co_name}:{trace.tb_lineno}"
