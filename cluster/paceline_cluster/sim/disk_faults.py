"""What goes wrong with disks in a run: calls fail, files rot, vanish, age or cannot be read.

All that harms what a disk keeps is counted by the budget: one disk at a time, until that is whole
again. What is merely slow, full or short of descriptors may strike any number of them.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from paceline_cluster.sim.budget import LossBudget
from paceline_cluster.sim.cluster import SimCluster
from paceline_cluster.sim.fault_model import IN_PLACE, kind_of
from paceline_cluster.sim.file_content import (
    BASE_OFFSET,
    EPOCH,
    batches,
    has_any,
    slots_around,
    twins,
    with_copy,
)
from paceline_cluster.sim.machine import Machine
from paceline_cluster.sim.oracle import Oracle
from paceline_cluster.sim.plan import TRAILS
from paceline_node.storage import incarnation
from paceline_node.storage.layout import TOPICS, PartitionKey, partition_path
from paceline_node.storage.memory_disk import CALLS
from paceline_node.storage.memory_file import MemoryNode

_SECTOR = 512
_SAME_AGAIN = 0.7
"""How often what is hurt already is hurt again."""
_ALONE_S = (2.0, 4.0)
"""How long a node waits for a quorum before it goes down again."""
_ORDERLY = 0.5
"""How often a node whose files are exchanged was stopped, not killed."""
_TO_STOP_S = 1.0
_LOGS = 0.35
"""How often, of all kinds of files, it is a log."""
_CLIENTS = 0.6
"""How often it is a partition of a topic of clients."""
_INTERNAL = f"{TOPICS}/__"
_TRAILS = f"{TOPICS}/{TRAILS}-"
_METADATA = "metadata"

IsThere = Callable[[], bool]
Harm = Callable[[Machine, str, random.Random], None]
"""(machine, file): what becomes of the file."""


class Hand(Protocol):
    """What strikes the other faults, and tells of them."""

    def note(self, kind: str, *machines: Machine, about: str = "") -> None:
        """Tell what struck whom."""

    def later(self, wait_s: float, action: Callable[[], None]) -> None:
        """Do something after some time, unless all is healed before."""

    def pick(self, rng: random.Random, among: Sequence[Machine]) -> Machine | None:
        """Somebody, most often one who matters."""

    def all_down(
        self,
        rng: random.Random,
        *,
        is_power: bool,
        first: Machine | None = None,
        alone_s: float = 1.5,
    ) -> None:
        """Stop all processes at once; they start again in any order, most often ``first`` so long
        before the others."""


class DiskFaults:
    """``kinds`` are the faults by name. Where all that is acknowledged ``is_durable``, a power cut
    counts as no loss."""

    def __init__(
        self,
        cluster: SimCluster,
        oracle: Oracle,
        budget: LossBudget,
        hand: Hand,
        *,
        is_durable: bool,
    ) -> None:
        self._is_durable = is_durable
        self._cluster = cluster
        self._oracle = oracle
        self._budget = budget
        self._hand = hand
        self._flipped: set[tuple[MemoryNode, int, int]] = set()
        self.kinds: Mapping[str, Callable[[random.Random], None]] = {
            "slow-disk": self._slow_disk,
            "hang-disk": self._hang_disk,
            "disk-full": self._disk_full,
            "descriptors": self._descriptors,
            "write-error": lambda rng: self._failing_call("write", rng),
            "sync-error": lambda rng: self._failing_call("sync", rng),
            "rename-error": lambda rng: self._failing_call("rename", rng),
            "names-error": lambda rng: self._failing_call("fsync_dir", rng),
            "call-error": lambda rng: self._failing_call(rng.choice(CALLS), rng),
            "unwritable": self._unwritable,
            "rot": self._rot,
            "rot-logs": self._rot_logs,
            "rot-trails": self._rot_trails,
            "rot-headers": self._rot_headers,
            "rot-alone": self._rot_alone,
            "unreadable": self._unreadable,
            "loss": self._loss,
            "age": self._age,
            "age-copies": self._age_copies,
            "exchange": self._exchange,
        }

    # --- time and room ----------------------------------------------------------------------------

    def calm(self, machine: Machine) -> None:
        """Calls work, fast and with room enough. What became of files stays."""
        machine.disk.heal()
        machine.disk.capacity_bytes = None
        machine.sync_s = (0.0001, 0.0006)

    def _slow_disk(self, rng: random.Random) -> None:
        machine = self._hand.pick(rng, self._cluster.machines)
        if machine is not None:
            machine.sync_s = rng.choice(((0.005, 0.03), (0.05, 0.3), (0.5, 3.0)))
            self._hand.note("slow-disk", machine, about=f"{machine.sync_s} s a sync")
            self._calm_later(rng.uniform(0.5, 4.0), machine)

    def _hang_disk(self, rng: random.Random) -> None:
        machine = self._hand.pick(rng, self._cluster.machines)
        if machine is not None:
            self._hand.note("hang-disk", machine)
            machine.disk.hang()
            self._calm_later(rng.uniform(0.2, 4.0), machine)

    def _disk_full(self, rng: random.Random) -> None:
        machine = self._hand.pick(rng, self._cluster.machines)
        if machine is not None:
            disk = machine.disk
            used = disk.total_bytes() - disk.free_bytes()
            disk.capacity_bytes = used + rng.choice((0, 200, 3000))
            self._hand.note("disk-full", machine)
            self._calm_later(rng.uniform(0.3, 3.0), machine)

    def _descriptors(self, rng: random.Random) -> None:
        """Others have taken all descriptors, or nearly all."""
        machine = self._hand.pick(rng, self._cluster.machines)
        if machine is not None:
            share = rng.choice((0.2, 0.7, 1.0))
            self._hand.note("descriptors", machine, about=f"{share}")
            machine.disk.starves = lambda: rng.random() < share
            self._calm_later(rng.uniform(0.2, 4.0), machine)

    def _calm_later(self, wait_s: float, machine: Machine) -> None:
        self._hand.later(wait_s, lambda: self.calm(machine))

    # --- calls ------------------------------------------------------------------------------------

    def _failing_call(self, operation: str, rng: random.Random) -> None:
        """The next one of the operation fails. The node may end for it (storage/DESIGN 2.2), and of
        a sync or a write must; what its logs hold is not to be trusted then."""
        machine = self._victim(rng)
        if machine is None:
            return
        path = rng.choice((TOPICS, _METADATA, ".ckpt", ""))
        disk = machine.disk
        self._budget.lost(machine, lambda: disk.will_fail(operation), operation)
        self._hand.note(f"{operation}-error", machine, about=path)
        machine.failing_calls = True
        disk.fail_next(operation, code=errno.EIO, path=path)

    def _unwritable(self, rng: random.Random) -> None:
        """Every write of a small file fails that is kept open and says how far logs are durable.
        When all have gone down some time later, a log has lost its end, too."""
        machine = self._victim(rng)
        path = rng.choice(IN_PLACE)
        node = None if machine is None else machine.disk.node(path)
        if machine is None or node is None:
            return
        self._hand.note("unwritable", machine, about=path)
        machine.disk.make_unwritable(path)
        self._hurt(machine, path, lambda: machine.disk.node(path) is node and node.is_unwritable)
        self._hand.later(rng.uniform(0.5, 3.0), lambda: self._writable_again(machine, rng))

    def _writable_again(self, machine: Machine, rng: random.Random) -> None:
        self.calm(machine)
        logs = [path for path, _ in machine.disk.files() if path.endswith(".log")]
        log = self._choose(logs, rng)
        if log is None or not self._budget.may_lose(machine):
            return
        self._hand.all_down(rng, is_power=False, first=machine)
        content = machine.disk.content(log)
        self._age_file(machine, log, content[: max(0, len(content) - rng.randint(1, _SECTOR))])

    # --- files ------------------------------------------------------------------------------------

    def _rot(self, rng: random.Random) -> None:
        """Bits flip in a file."""
        self._harm(rng, self._rot_file)

    def _rot_file(self, machine: Machine, path: str, rng: random.Random) -> None:
        node = machine.disk.node(path)
        size = 0 if node is None else len(node.content)
        self._flip(machine, path, rng.choice((0, 0, max(0, size - _SECTOR))), rng)

    def _flip(self, machine: Machine, path: str, start: int, rng: random.Random) -> None:
        disk = machine.disk
        node = disk.node(path)
        if node is None or not node.content:
            return
        self._hand.note("rot", machine, about=f"{path} from {start} of {len(node.content)}")
        before = bytes(node.content)
        disk.rot(path, rng, start=start, bits=rng.choice((1, 8, 64)))
        changed = [at for at, byte in enumerate(node.content) if byte != before[at]]
        rotten = slots_around(node, changed)
        self._hurt(machine, path, lambda: disk.node(path) is node and has_any(node, rotten))

    def _rot_logs(self, rng: random.Random) -> None:
        """Bits flip in a log of a running node."""
        machine = self._victim(rng)
        if machine is None:
            return
        logs = [path for path, _ in machine.disk.files() if path.endswith(".log")]
        if logs:
            self._flip(machine, logs[rng.randrange(len(logs))], 0, rng)

    def _rot_trails(self, rng: random.Random) -> None:
        """Bits flip in a log whose records are deleted from its start; most often nobody sees it
        before the next start."""
        machine = self._victim(rng)
        if machine is None:
            return
        logs = [path for path, _ in machine.disk.files() if path.startswith(_TRAILS)]
        logs = [path for path in logs if path.endswith(".log")]
        if logs:
            self._flip(machine, rng.choice(logs), 0, rng)
            if rng.random() < _SAME_AGAIN:
                machine.kill()

    def _rot_headers(self, rng: random.Random) -> None:
        """A bit flips where no checksum covers it: in the leader epoch of a batch, or in its base
        offset. The newest batches tell most, and low bits look like the truth. Who judges reads the
        newest from this very disk: of that the offset stays."""
        machine = self._victim(rng)
        if machine is None:
            return
        logs = [(path, node) for path, node in machine.disk.files() if path.endswith(".log")]
        logs = [each for each in logs if each[0].startswith(TOPICS) and each[1].content]
        if not logs:
            return
        ours = [each for each in logs if not each[0].startswith(_INTERNAL)]
        path, node = rng.choice(ours if ours and rng.random() < _CLIENTS else logs)
        starts = batches(bytes(node.content))
        batch = rng.choice((starts[-1], rng.choice(starts)))
        field = rng.choice((EPOCH, EPOCH, BASE_OFFSET))
        if batch == starts[-1]:
            field = EPOCH
        bit = rng.choice((rng.randrange(4), rng.randrange(31)))
        at = batch + field.stop - 1 - bit // 8
        if (node, at, bit) in self._flipped:  # it would be as it was
            return
        self._flipped.add((node, at, bit))
        self._hand.note("rot", machine, about=f"{path} byte {at} of the batch at {batch}")
        node.flip(at, 1 << bit % 8)
        rotten = slots_around(node, [at])
        disk = machine.disk
        self._hurt(machine, path, lambda: disk.node(path) is node and has_any(node, rotten))

    def _unreadable(self, rng: random.Random) -> None:
        """Sectors of a file answer EIO."""
        self._harm(rng, self._unreadable_sectors)

    def _unreadable_sectors(self, machine: Machine, path: str, rng: random.Random) -> None:
        disk = machine.disk
        node = disk.node(path)
        if node is None or not node.content:
            return
        sectors = (len(node.content) + _SECTOR - 1) // _SECTOR
        first = rng.choice((rng.randrange(sectors), sectors - 1))
        end = min(sectors, first + rng.choice((1, 8)))
        self._hand.note("unreadable", machine, about=f"{path} sector {first} of {sectors}")
        disk.make_unreadable(path, first * _SECTOR, end * _SECTOR)
        self._hurt(machine, path, lambda: disk.node(path) is node and bool(node.unreadable))

    def _loss(self, rng: random.Random) -> None:
        """A file is gone, or a partition's directory, or that of the metadata."""
        self._harm(rng, self._lose)

    def _lose(self, machine: Machine, path: str, rng: random.Random) -> None:
        what = rng.choice(("file", "file", "partition", "partition", "metadata"))
        if what == "metadata":
            path = _METADATA
        elif what == "partition" and path.startswith(TOPICS):
            path = "/".join(path.split("/")[:2])
        self._hand.note("loss", machine, about=path)
        machine.failing_calls = machine.is_up
        machine.disk.lose(path)
        # A process that has the file open does not notice; the next one must.
        lives = machine.lives
        self._hurt(machine, path, lambda: machine.lives == lives)

    def _age(self, rng: random.Random) -> None:
        """A file becomes again what it was some time ago: writes of it were lost."""
        self._age_later(rng, lambda path: [path])

    def _age_copies(self, rng: random.Random) -> None:
        """So do two that say the same, for the case that one of them is bad."""
        self._age_later(rng, with_copy)

    def _age_later(self, rng: random.Random, those_of: Callable[[str], list[str]]) -> None:
        machine = self._victim(rng)
        if machine is None:
            return
        disk = machine.disk
        old = {path: bytes(node.content) for path, node in disk.files()}
        wait = rng.choice((0.2, 1.0, 4.0)) * rng.uniform(0.5, 1.5)
        self._hand.later(wait, lambda: self._grow_old(machine, old, rng, those_of))

    def _grow_old(
        self,
        machine: Machine,
        old: dict[str, bytes],
        rng: random.Random,
        those_of: Callable[[str], list[str]],
    ) -> None:
        if not self._budget.may_lose(machine):
            return
        files = machine.disk.files()
        changed = [path for path, node in files if old.get(path, node.content) != node.content]
        path = self._choose([path for path in changed if those_of(path)], rng)
        if path is None:
            return
        machine.kill()
        for each in those_of(path):
            if each in changed:
                self._age_file(machine, each, old[each])

    def _age_file(self, machine: Machine, path: str, content: bytes) -> None:
        self._hand.note("age", machine, about=path)
        if machine.disk.node(path) is not None:
            machine.disk.overwrite(path, content)
        if path == incarnation.NAME:
            machine.has_lost_itself = True  # its count of starts says that the disk is an old copy
        lives = machine.lives
        self._hurt(machine, path, lambda: machine.lives == lives)

    def _exchange(self, rng: random.Random) -> None:
        """Two files of the same name, of two partitions, each lie where the other was."""
        machine = self._victim(rng)
        if machine is None:
            return
        if rng.random() < _ORDERLY:
            machine.stop()
            self._hand.later(_TO_STOP_S, lambda: self._exchange_two(machine, rng))
        else:
            self._exchange_two(machine, rng)

    def _exchange_two(self, machine: Machine, rng: random.Random) -> None:
        if not self._budget.may_lose(machine):
            return
        disk = machine.disk
        one = self._choose([path for path, _ in disk.files() if twins(machine, path)], rng)
        if one is None:
            return
        other = rng.choice(twins(machine, one))
        machine.kill()  # unless it has stopped
        self._hand.note("exchange", machine, about=f"{one} and {other}")
        mine = disk.content(one)
        disk.overwrite(one, disk.content(other))
        disk.overwrite(other, mine)
        lives = machine.lives
        for path in (one, other):
            self._hurt(machine, path, lambda: machine.lives == lives)

    # --- whose, which, and when -------------------------------------------------------------------

    def _victim(self, rng: random.Random) -> Machine | None:
        """A machine whose disk may be harmed: most often one whose disk is harmed already."""
        hurt = self._budget.hurt()
        if hurt and rng.random() < _SAME_AGAIN:
            return hurt[rng.randrange(len(hurt))]
        machine = self._hand.pick(rng, self._cluster.members)
        return machine if machine is not None and self._budget.may_lose(machine) else None

    def _file(self, rng: random.Random) -> tuple[Machine | None, str | None]:
        machine = self._victim(rng)
        if machine is None:
            return None, None
        return machine, self._choose([path for path, _ in machine.disk.files()], rng)

    def _choose(self, paths: Sequence[str], rng: random.Random) -> str | None:
        """One of the files: every kind as likely as the others, but for logs."""
        kinds: dict[str, list[str]] = {}
        for path in paths:
            kind = kind_of(path)
            if kind is not None:
                kinds.setdefault(kind.name, []).append(path)
        if not kinds:
            return None
        logs = kinds.get(".log")
        found = logs if logs and rng.random() < _LOGS else kinds[rng.choice(sorted(kinds))]
        # There are more partitions of the cluster's own than of clients.
        ours = [path for path in found if not path.startswith(_INTERNAL)]
        if ours and rng.random() < _CLIENTS:
            found = ours
        path = found[rng.randrange(len(found))]
        # The newest holds what was acknowledged last; the oldest is what retention would remove.
        directory = path.rpartition("/")[0]
        beside = [each for each in found if each.rpartition("/")[0] == directory]
        return rng.choice((max(beside), min(beside), path))

    def _harm(self, rng: random.Random, harm: Harm) -> None:
        """Harm a file of a running node, of one that has just gone down, or while all are down:
        then it starts before the others most often, who might tell it what it lacks."""
        machine, path = self._file(rng)
        if machine is None or path is None:
            return
        when = rng.choice(("running", "down", "power", "all down", "all down", "down again"))
        is_power = self._is_durable and rng.random() < 0.5
        alone_s = rng.uniform(*_ALONE_S)
        if when == "down":
            machine.kill()
        elif when == "power" and machine.has_power and self._is_durable:
            machine.power_cut()
        elif when == "all down":
            self._hand.all_down(rng, is_power=is_power, first=machine)
        elif when == "down again":
            self._harm_alone(machine, path, rng, harm, alone_s=alone_s, is_power=is_power)
            return
        harm(machine, path, rng)

    def _rot_alone(self, rng: random.Random) -> None:
        """Bits flip in a file of a node that waited for a quorum, as it is killed for it."""
        machine, path = self._file(rng)
        if machine is not None and path is not None:
            alone_s = rng.uniform(*_ALONE_S)
            self._harm_alone(machine, path, rng, self._rot_file, alone_s=alone_s, is_power=False)

    def _harm_alone(
        self,
        machine: Machine,
        path: str,
        rng: random.Random,
        harm: Harm,
        *,
        alone_s: float,
        is_power: bool,
    ) -> None:
        self._hand.all_down(rng, is_power=is_power, first=machine, alone_s=alone_s)
        self._hand.later(alone_s, lambda: self._harm_again(machine, path, rng, harm))

    def _harm_again(self, machine: Machine, path: str, rng: random.Random, harm: Harm) -> None:
        """It was alone for a while, and goes down once more with whoever has come by then."""
        if self._budget.may_lose(machine):
            self._hand.all_down(rng, is_power=False, first=machine)
            harm(machine, path, rng)

    def _hurt(self, machine: Machine, path: str, is_there: IsThere) -> None:
        """Tell those who judge."""
        kind = kind_of(path)
        if path == _METADATA or (kind is not None and kind.essential):
            machine.has_lost_itself = True
        key = self._partition_of(path)
        if key is not None:
            self._oracle.damaged.add((machine.number, key))
            is_there = self._while_kept(machine, key, is_there)
        if (key is None and path.startswith(TOPICS)) or (kind is not None and kind.derived):
            is_there = _in_this_life(machine, is_there)
        self._budget.lost(machine, is_there, path)

    def _while_kept(self, machine: Machine, key: PartitionKey, seen: IsThere) -> IsThere:
        """Of what was deleted while a node was away it keeps the files, and reads none."""
        return lambda: self._oracle.is_kept(machine, key) and seen()

    def _partition_of(self, path: str) -> PartitionKey | None:
        """The partition that keeps the file; None for other files, and those nobody reads."""
        newest = self._oracle.metadata.newest
        if newest is None or not path.startswith(TOPICS):
            return None
        directory = "/".join(path.split("/")[:2])
        for topic in newest.topics.values():
            for number in topic.partitions:
                if partition_path(topic.name, topic.topic_id, number) == directory:
                    return topic.topic_id, number
        return None


def _in_this_life(machine: Machine, seen: IsThere) -> IsThere:
    lives = machine.lives
    return lambda: machine.lives == lives and seen()
