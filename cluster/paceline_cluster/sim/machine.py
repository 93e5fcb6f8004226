"""A simulated machine: a disk, an address, and at most one process of the production node on it.

Every process has an ``Env`` of its own, which dies with it: after a kill the node's tasks are still
cancelled, one by one, but nothing they do reaches the disk or the network any more.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

import trio

from paceline.errors import ConfigurationError, PacelineError, StorageError
from paceline_cluster.sim.fabric import Fabric, SimListener
from paceline_cluster.sim.loop import PROCESS, TaskGroup
from paceline_node.app.boot import DirectoryInUse
from paceline_node.app.node import EXIT_DISK_FAILED, Node, NodeAddresses
from paceline_node.app.process import EXIT_BUG, EXIT_CONFIGURATION, EXIT_DIRECTORY_IN_USE
from paceline_node.env import Env, File, RunBlocking
from paceline_node.listeners.serving import PortInUse
from paceline_node.storage.memory_disk import MemoryDisk

T = TypeVar("T")
_REFUSALS = (EXIT_DISK_FAILED, EXIT_CONFIGURATION)
_UNCONCERNED = (0, 4)
"""Stopped in order; replaced by a newer registration."""
_PATIENCE = 3
"""How often in a row a process may end before it serves, before its operator replaces the disk."""
EPOCH_MS = 1_700_000_000_000
"""Wall clock at virtual time 0."""


class ProcessEnded(BaseException):
    """The simulated process ended itself (``Host.exit``)."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


class SimHost:
    """Clock, threads (none: work runs at once) and process."""

    def __init__(self, life: Life) -> None:
        self._life = life

    def now(self) -> float:
        return trio.current_time()

    @property
    def stopwatch(self) -> None:
        """Threads' work runs in tasks here, and virtual time stands still in a step."""
        return

    def wall_ms(self) -> int:
        return self._life.machine.wall_ms()

    def boot_id(self) -> str:
        machine = self._life.machine
        return f"machine-{machine.number}-boot-{machine.boots}"

    def pid(self) -> int:
        return 1000 * (self._life.machine.number + 1) + self._life.number

    def environ(self) -> dict[str, str]:
        return {}

    async def run_blocking(self, work: Callable[[], T]) -> T:
        await trio.lowlevel.checkpoint()
        return work()

    def apart(self) -> RunBlocking:
        return self.run_blocking

    def exit(self, code: int) -> NoReturn:
        self._life.exited(code)
        raise ProcessEnded(code)

    def buggify(self, site: str) -> bool:
        return self._life.machine.buggify(site)


class SimNetwork:
    """The network as one host sees it."""

    def __init__(self, fabric: Fabric, host: str, is_alive: Callable[[], bool]) -> None:
        self._fabric = fabric
        self._host = host
        self._is_alive = is_alive

    async def connect(self, host: str, port: int) -> trio.abc.Stream:
        self._check()
        return await self._fabric.connect(self._host, host, port)

    async def listen(self, host: str, port: int) -> list[trio.abc.Listener[trio.abc.Stream]]:
        self._check()
        await trio.lowlevel.checkpoint()
        return [self._fabric.listen(self._host, port)]

    def bound_port(self, listener: trio.abc.Listener[trio.abc.Stream]) -> int:
        assert isinstance(listener, SimListener), "not a listener of this network"
        return listener.port

    def _check(self) -> None:
        if not self._is_alive():
            raise OSError(101, "the process has ended")


class ProcessDisk:
    """The machine's disk as one process sees it: once that has died, nothing reaches it."""

    def __init__(self, disk: MemoryDisk, is_alive: Callable[[], bool]) -> None:
        self._disk = disk
        self._is_alive = is_alive

    def _living(self) -> MemoryDisk:
        if not self._is_alive():
            raise OSError(5, "the process has ended")
        return self._disk

    def create(self, path: str) -> File:
        return self._living().create(path)

    async def open(self, path: str) -> File:
        return await self._living().open(path)

    def exists(self, path: str) -> bool:
        return self._living().exists(path)

    def list(self, path: str) -> list[str]:
        return self._living().list(path)

    def mkdir(self, path: str) -> None:
        self._living().mkdir(path)

    def remove(self, path: str) -> None:
        self._living().remove(path)

    def remove_tree(self, path: str) -> None:
        self._living().remove_tree(path)

    def rename(self, old: str, new: str) -> None:
        self._living().rename(old, new)

    async def sync(self, files: Sequence[File]) -> None:
        await self._living().sync(files)

    async def fsync_dir(self, path: str) -> None:
        await self._living().fsync_dir(path)

    def free_bytes(self) -> int:
        return self._living().free_bytes()

    def total_bytes(self) -> int:
        return self._living().total_bytes()

    def device_id(self) -> int:
        return self._disk.device_id()

    def lock(self) -> None:
        self._living().lock()

    def close(self) -> None:
        if self._is_alive():
            self._disk.close()


@dataclass(eq=False)
class Life:
    """One process of the node: from its start to its end."""

    machine: Machine
    number: int
    node: Node = field(init=False)
    tasks: TaskGroup = field(init=False)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    ended: trio.Event = field(default_factory=trio.Event)
    is_alive: bool = True
    is_serving: bool = False
    exit_code: int | None = None
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self.tasks = TaskGroup(f"n{self.machine.number}")

    @property
    def is_running(self) -> bool:
        """Alive, and not stopped by SIGSTOP."""
        return self.is_alive and not self.tasks.is_held

    def exited(self, code: int) -> None:
        """The process ended itself: its kernel closes what it had."""
        self.exit_code = code
        if self.is_alive and not self.machine.is_excused(code):
            self.error = RuntimeError(f"it ended itself with code {code} on a sound disk")
        self.machine.process_gone(self)

    async def run(self) -> None:
        """The process. Never raises: what it failed with is kept in :attr:`error`."""
        PROCESS.set(self.tasks)
        failure: BaseException | None = None
        try:
            with self.scope:
                await self.node.run(task_status=_Serving(self))
        except* ProcessEnded:
            failure = None
        except* trio.Cancelled:
            raise
        except* BaseException as group:  # noqa: BLE001  the oracle judges it
            failure = group
        finally:
            if self.is_alive:
                self.exit_code = 0 if failure is None else _exit_code(failure)
                if failure is not None and not self.machine.is_excused(self.exit_code):
                    self.error = failure
                    self.machine.tell_why(failure)
                self.machine.process_gone(self)
            self.ended.set()


def _exit_code(error: BaseException) -> int:
    """What ``paceline-node`` ends with."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    match error:
        case DirectoryInUse():
            return EXIT_DIRECTORY_IN_USE
        case ConfigurationError() | PortInUse():
            return EXIT_CONFIGURATION
        case StorageError() | OSError():
            return EXIT_DISK_FAILED
        case PacelineError():
            return EXIT_CONFIGURATION
    return EXIT_BUG


class _Serving:
    """Told by the node that it serves."""

    def __init__(self, life: Life) -> None:
        self._life = life

    def started(self, value: NodeAddresses | None = None) -> None:
        self._life.is_serving = True


class Machine:
    """``host`` is its address. The disk outlives the processes; ``boots`` counts power-ons."""

    def __init__(
        self,
        number: int,
        host: str,
        fabric: Fabric,
        rng: random.Random,
        make_node: Callable[[Machine, Env], Node],
        note: Callable[[str], None],
    ) -> None:
        self.number = number
        self.host = host
        self.fabric = fabric
        self.disk = MemoryDisk()
        self.boots = 1
        self.lives = 0
        self.life: Life | None = None
        self.has_power = True
        self.wall_offset_ms = 0
        self.sync_s: tuple[float, float] = (0.0001, 0.0006)
        self.sites: frozenset[str] = frozenset()
        self.must_wipe = False
        self.is_being_wiped = False
        self.wipes = 0
        self.down_until = 0.0
        """Virtual time before which nobody starts it again."""
        self.failing_calls = False
        """A call was made to fail, so the next process that ends itself may."""
        self.has_lost_itself = False
        """A file was hurt without which a process may refuse to start."""
        self._refusals = 0
        self.went_down: Callable[[Machine], None] = _nobody_cares
        self._rng = rng
        self._make_node = make_node
        self._note = note
        self.disk.sync_delay_s = lambda: self._rng.uniform(*self.sync_s)

    def __repr__(self) -> str:
        return f"<Machine {self.number} {'up' if self.is_up else 'down'}>"

    @property
    def is_up(self) -> bool:
        """Whether a process lives here, stopped by SIGSTOP or not."""
        return self.life is not None and self.life.is_alive

    @property
    def is_running(self) -> bool:
        return self.life is not None and self.life.is_running

    @property
    def node(self) -> Node | None:
        """The node of the living process."""
        return self.life.node if self.life is not None and self.life.is_alive else None

    def is_excused(self, exit_code: int) -> bool:
        """Whether a process may end itself so: only for what its disk did."""
        if exit_code in _REFUSALS:
            return self.failing_calls or self.has_lost_itself or self.disk.has_failed
        return exit_code in _UNCONCERNED

    def wall_ms(self) -> int:
        return EPOCH_MS + self.wall_offset_ms + int(trio.current_time() * 1000)

    def buggify(self, site: str) -> bool:
        return site in self.sites and self._rng.random() < 0.25

    # --- what happens to it -----------------------------------------------------------------------

    def start(self, nursery: trio.Nursery) -> Life:
        """Power on if need be, and start a process."""
        assert not self.is_up, f"{self} has a process already"
        if not self.has_power:
            self.has_power = True
            self.boots += 1
            self.fabric.power_on(self.host)
        self.lives += 1
        life = self.life = Life(self, self.lives)
        net = SimNetwork(self.fabric, self.host, lambda: life.is_alive)
        disk = ProcessDisk(self.disk, lambda: life.is_alive)
        env = Env(SimHost(life), disk, net, random.Random(self._rng.getrandbits(64)))
        life.node = self._make_node(self, env)
        self._note(f"n{self.number} starts")
        nursery.start_soon(life.run, name=f"n{self.number}.{self.lives}")
        return life

    def kill(self) -> None:
        """SIGKILL: the page cache stays, the kernel closes the connections."""
        if self.life is not None and self.life.is_alive:
            self._note(f"n{self.number} killed")
            self.process_gone(self.life)

    def power_cut(self) -> None:
        """The machine loses power: what was not synced may be lost, nobody is told."""
        self._note(f"n{self.number} loses power")
        self.fabric.power_off(self.host)
        self.has_power = False
        if self.life is not None:
            self._end(self.life)
        self.disk.power_cut(self._rng)

    def stop(self) -> None:
        """SIGTERM: an orderly end."""
        if self.life is not None and self.life.is_running:
            self._note(f"n{self.number} is told to stop")
            self.life.node.stop()

    def suspend(self) -> None:
        """SIGSTOP."""
        if self.life is not None and self.life.is_running:
            self._note(f"n{self.number} suspended")
            self.life.tasks.hold()

    def resume(self) -> None:
        """SIGCONT."""
        if self.life is not None and self.life.tasks.is_held:
            self._note(f"n{self.number} resumed")
            self.life.tasks.release()

    def process_gone(self, life: Life) -> None:
        """The process is no more; the kernel closes its connections."""
        if life.is_alive:
            self._end(life)
            if self.has_power:
                self.fabric.end_process(self.host)
            if life.exit_code is not None:
                self._note(f"n{self.number} exits with {life.exit_code}")
                self._consider(life)

    def _consider(self, life: Life) -> None:
        """As an operator does whose node will not start: replace the disk."""
        if life.exit_code in _REFUSALS and self.has_lost_itself:
            self._refusals = 0 if life.is_serving else self._refusals + 1
            if self._refusals >= _PATIENCE:
                self._note(f"n{self.number} will not start: its disk is going to be replaced")
                self.must_wipe = True
        self.failing_calls = False

    def disk_was_replaced(self) -> None:
        """The disk is empty, and sound."""
        self.wipes += 1
        self.must_wipe = False
        self.disk_is_whole()

    def disk_is_whole(self) -> None:
        """Nothing of what was wrong with the disk is left: it excuses nothing any more."""
        self.failing_calls = self.has_lost_itself = False
        self._refusals = 0

    def tell_why(self, error: BaseException) -> None:
        """Keep the traceback of a process that failed."""
        for line in traceback.format_exception(error):
            for part in line.rstrip().splitlines():
                self._note(part)

    def _end(self, life: Life) -> None:
        life.is_alive = False
        self.disk.kill()
        if life.tasks.is_held:
            life.tasks.release()
        life.scope.cancel()
        self.went_down(self)


def _nobody_cares(_: Machine) -> None:
    """Nobody starts it again."""


def failure_of(life: Life) -> str | None:
    """What a process failed with that it should not have, in one line."""
    error: Any = life.error
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return None if error is None else f"{type(error).__name__}: {error}"
