"""The faults of a run, carried out on the cluster.

A kind is a method; what it does in detail is drawn from the fault's own generator and depends on
the state of the cluster, which the seed decides as well. Every fault heals by itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

import trio

from paceline_cluster.sim.budget import LossBudget
from paceline_cluster.sim.cluster import SimCluster
from paceline_cluster.sim.disk_faults import DiskFaults
from paceline_cluster.sim.fabric import Fabric
from paceline_cluster.sim.lost_quorum import LostQuorum
from paceline_cluster.sim.machine import Machine
from paceline_cluster.sim.operator import Operator
from paceline_cluster.sim.oracle import Oracle
from paceline_cluster.sim.plan import Fault, Plan

_ROLL_S = 8.0
"""How long a rolling restart waits for a node before it goes on to the next."""
_LOOK_S = 0.1
_FIRST = 0.75
"""How often the one that matters most starts first."""

Told = Callable[[str, str, Sequence[int]], None]
"""(kind, target, nodes): what struck whom, for timeline and history."""


class Faults:
    """Strikes. Machines that go down are started again by the run; ``operator`` asks the cluster
    for changes."""

    def __init__(
        self,
        plan: Plan,
        cluster: SimCluster,
        oracle: Oracle,
        budget: LossBudget,
        told: Told,
        operator: Operator,
    ) -> None:
        self._plan = plan
        self._cluster = cluster
        self._fabric: Fabric = cluster.fabric
        self._oracle = oracle
        self._budget = budget
        self._told = told
        self._operator = operator
        self.is_over = False
        self.struck = 0
        self._kinds: dict[str, Callable[[random.Random], None]] = {
            "kill": self._kill,
            "kill-all": self._kill_all,
            "stop": self._stop,
            "power": self._power,
            "power-all": self._power_all,
            "restart-all": self._restart_all,
            "wipe": self._wipe,
            "suspend": self._suspend,
            "cut": self._cut,
            "clog": self._clog,
            "slow-link": self._slow_link,
            "stall": self._stall,
            "reset": self._reset,
            "clock": self._clock,
            "slow-controller": self._slow_controller,
            "join": self._join,
            "roll": self._roll,
        }
        for wish in ("move", "min-isr", "remove-voter"):
            self._kinds[wish] = partial(self._operate, wish)
        self.disks = DiskFaults(cluster, oracle, budget, self, is_durable=plan.counts_durable)
        self._kinds.update(self.disks.kinds)
        self._kinds["force-quorum"] = LostQuorum(cluster, oracle, budget, self).strike
        self._rolls = False

    def strike(self, fault: Fault) -> None:
        """Carry a fault out, unless all is over."""
        if not self.is_over:
            self._kinds[fault.kind](fault.rng())

    def heal(self) -> None:
        """Take everything back; nothing strikes any more."""
        self.is_over = True
        self._fabric.heal_all()
        for machine in self._cluster.machines:
            machine.resume()
            self.disks.calm(machine)

    def note(self, kind: str, *machines: Machine, about: str = "") -> None:
        self.struck += 1
        names = " ".join(f"n{machine.number}" for machine in machines)
        self._told(kind, f"{names} {about}".strip(), [machine.number for machine in machines])

    def later(self, wait_s: float, action: Callable[[], None]) -> None:
        def act() -> None:
            if not self.is_over:
                action()

        self._fabric.at(trio.current_time() + wait_s, act)

    # --- whom -------------------------------------------------------------------------------------

    def pick(self, rng: random.Random, among: Sequence[Machine]) -> Machine | None:
        """A machine: any, or the one that leads the quorum or a partition."""
        role = rng.random()
        chosen = rng.randrange(1 << 30)
        leaders = [machine for machine in among if machine.number in self._leading()]
        controllers = [machine for machine in among if _leads_quorum(machine)]
        if role < 0.25 and controllers:
            return controllers[0]
        if role < 0.6 and leaders:
            return leaders[chosen % len(leaders)]
        return among[chosen % len(among)] if among else None

    def running(self) -> list[Machine]:
        return [machine for machine in self._cluster.machines if machine.is_running]

    def _leading(self) -> set[int]:
        newest = self._oracle.metadata.newest
        names = {topic.name for topic in self._plan.all_topics}
        if newest is None:
            return set()
        return {
            partition.leader
            for topic in newest.topics.values()
            if topic.name in names
            for partition in topic.partitions.values()
        }

    # --- processes --------------------------------------------------------------------------------

    def _kill(self, rng: random.Random) -> None:
        machine = self.pick(rng, self.running())
        if machine is not None:
            self.note("kill", machine)
            machine.kill()

    def _kill_all(self, rng: random.Random) -> None:
        self.note("kill-all", *self._cluster.machines)
        for machine in self._cluster.machines:
            machine.kill()

    def _restart_all(self, rng: random.Random) -> None:
        """All go down at once, and come back one after the other, in any order; all that is there
        by then may go down again."""
        is_power = rng.random() < 0.5 and self._plan.counts_durable
        self.note("restart-all", *self._cluster.machines, about="power" if is_power else "kill")
        self.all_down(rng, is_power=is_power)
        if rng.random() < 0.4:
            self.later(rng.uniform(1.0, 6.0), lambda: self.all_down(rng, is_power=False))

    def all_down(
        self,
        rng: random.Random,
        *,
        is_power: bool,
        first: Machine | None = None,
        alone_s: float = 1.5,
    ) -> None:
        """Kill all, or cut their power; they start again in any order, seconds apart, most often
        ``first`` so long before the others."""
        due = trio.current_time()
        pause = rng.choice((0.1, 1.0, 3.0))
        order = rng.sample(self._cluster.members, len(self._cluster.members))
        if first is not None and rng.random() < _FIRST:
            order.sort(key=lambda each: each is not first)
            pause = rng.choice((1.0, 3.0))
        for machine in order:
            machine.down_until = due
            due += rng.uniform(0.0, pause) + (alone_s if machine is first else 0.0)
            if not is_power:
                machine.kill()
            elif machine.has_power:
                machine.power_cut()

    def _stop(self, rng: random.Random) -> None:
        machine = self.pick(rng, self.running())
        if machine is not None:
            self.note("stop", machine)
            machine.stop()

    def _suspend(self, rng: random.Random) -> None:
        machine = self.pick(rng, self.running())
        if machine is not None:
            wait = rng.choice((0.3, 1.0, 4.0)) * rng.uniform(0.5, 1.5)
            self.note("suspend", machine, about=f"for {wait:.2f} s")
            machine.suspend()
            self.later(wait, machine.resume)

    def _roll(self, rng: random.Random) -> None:
        """One node after the other is stopped; the next when the one before is back in sync."""
        if not self._rolls:
            self._rolls = True
            order = rng.sample(self._cluster.members, len(self._cluster.members))
            self.note("roll", *order)
            self._cluster.nursery.start_soon(self._roll_all, order)

    async def _roll_all(self, machines: Sequence[Machine]) -> None:
        for machine in machines:
            life = machine.life
            machine.stop()
            if life is not None:
                await life.ended.wait()
            with trio.move_on_after(_ROLL_S):
                while not self._budget.is_back(machine):  # noqa: ASYNC110  nobody tells
                    await trio.sleep(_LOOK_S)
        self._rolls = False

    def _join(self, rng: random.Random) -> None:
        """A machine that has never run joins the cluster."""
        spares = [machine for machine in self._cluster.machines if not machine.lives]
        if spares:
            self.note("join", spares[0])
            self._cluster.start(spares[0])

    def _operate(self, wish: str, rng: random.Random) -> None:
        self.struck += self._operator.ask(wish, rng)

    # --- machines ---------------------------------------------------------------------------------

    def _power(self, rng: random.Random) -> None:
        machine = self.pick(rng, self._cluster.machines)
        if machine is None or not machine.has_power:
            return
        losing = not self._plan.counts_durable
        if losing and not self._budget.may_lose(machine):
            return
        if losing:
            self._budget.lost(machine)
        self.note("power", machine)
        machine.power_cut()

    def _power_all(self, rng: random.Random) -> None:
        if not self._plan.counts_durable:
            return
        self.note("power-all", *self._cluster.machines)
        for machine in self._cluster.machines:
            if machine.has_power:
                machine.power_cut()

    def _wipe(self, rng: random.Random) -> None:
        machine = self.pick(rng, self.running())
        if machine is None or not self._budget.may_lose(machine):
            return
        self._budget.lost(machine)
        self.note("wipe", machine)
        machine.kill()
        machine.must_wipe = True

    def _clock(self, rng: random.Random) -> None:
        machine = rng.choice(self._cluster.machines)
        jump = rng.choice((-3_600_000, -1000, 1000, 3_600_000))
        self.note("clock", machine, about=f"by {jump} ms")
        machine.wall_offset_ms += jump

    # --- links ------------------------------------------------------------------------------------

    def _cut(self, rng: random.Random) -> None:
        """One node, a half, one way or both, or a bridge that alone sees both halves."""
        machines = self._cluster.machines
        kind = rng.choice(("one", "one", "half", "in", "out", "bridge", "pair"))
        first = rng.choice(machines)
        order = rng.sample(machines, len(machines))
        side = {first} if kind in ("one", "in", "out", "pair") else set(order[: len(order) // 2])
        cuts: list[tuple[str, str]] = []
        for a in machines:
            for b in machines:
                if (a in side) == (b in side) or a is b:
                    continue
                if kind == "bridge" and order[-1] in (a, b):
                    continue
                if kind == "pair" and order[-1] not in (a, b):
                    continue
                if (kind == "out" and a not in side) or (kind == "in" and b not in side):
                    continue
                cuts.append((a.host, b.host))
        wait = rng.choice((0.3, 1.0, 3.0)) * rng.uniform(0.5, 1.5)
        self.note("cut", *sorted(side, key=lambda m: m.number), about=f"{kind} for {wait:.2f} s")
        for link in cuts:
            self._fabric.cut(*link)
        self.later(wait, lambda: self._uncut(cuts))

    def _uncut(self, cuts: Sequence[tuple[str, str]]) -> None:
        for link in cuts:
            self._fabric.heal(*link)

    def _clog(self, rng: random.Random) -> None:
        """Swizzle: links stop one by one and come back in another order."""
        hosts = [machine.host for machine in self._cluster.machines]
        links = [(a, b) for a in hosts for b in hosts if a != b]
        links = rng.sample(links, rng.randint(1, len(links)))
        self.note("clog", about=f"{len(links)} links")
        for link in links:
            start = rng.uniform(0.0, 1.0)
            self.later(start, lambda link=link: self._fabric.cut(*link))  # type: ignore[misc]
            self.later(
                start + rng.uniform(0.2, 1.5),
                lambda link=link: self._fabric.heal(*link),  # type: ignore[misc]
            )

    def _slow_link(self, rng: random.Random) -> None:
        machines = rng.sample(self._cluster.machines, 2)
        a, b = (machine.host for machine in machines)
        link = self._fabric.link(a, b)
        link.extra_s = rng.choice((0.02, 0.1, 0.4))
        link.rate = rng.choice((0.0, 20_000.0))
        self.note("slow-link", *machines, about=f"+{link.extra_s} s, {link.rate:.0f} B/s")
        self.later(rng.uniform(0.5, 3.0), lambda: self._fabric.heal(a, b))

    def _slow_controller(self, rng: random.Random) -> None:
        """Whoever leads the quorum now hears everybody late: heartbeats, proposals, fetches."""
        target = next((each for each in self.running() if _leads_quorum(each)), None)
        if target is None:
            return
        sources = [each.host for each in self._cluster.members if each is not target]
        late_s = rng.choice((0.1, 0.3, 0.8))
        for host in sources:
            self._fabric.link(host, target.host).extra_s = late_s
        self.note("slow-controller", target, about=f"+{late_s} s")

        def heal() -> None:
            for host in sources:
                self._fabric.heal(host, target.host)

        self.later(rng.uniform(0.5, 3.0), heal)

    def _stall(self, rng: random.Random) -> None:
        """One direction of one connection stands still: newer connections overtake it."""
        machine = self.pick(rng, self.running())
        streams = [] if machine is None else self._fabric.connections(machine.host)
        if machine is None or not streams:
            return
        stream = streams[rng.randrange(len(streams))]
        pipe = rng.choice((stream.out, stream.into))
        self.note("stall", machine, about=f"{pipe.source} -> {pipe.target}")
        self._fabric.stall(pipe)
        self.later(rng.choice((0.2, 1.0, 3.0)), lambda: self._fabric.unstall(pipe))

    def _reset(self, rng: random.Random) -> None:
        machine = self.pick(rng, self.running())
        streams = [] if machine is None else self._fabric.connections(machine.host)
        if machine is None or not streams:
            return
        hit = rng.sample(streams, rng.randint(1, min(3, len(streams))))
        self.note("reset", machine, about=f"{len(hit)} connections")
        for stream in hit:
            self._fabric.reset(stream)


def _leads_quorum(machine: Machine) -> bool:
    broker = None if machine.node is None else machine.node.broker
    return broker is not None and broker.metadata.quorum.is_leader
