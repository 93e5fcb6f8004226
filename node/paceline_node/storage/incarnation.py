"""Whether a start may be trusted to still hold what its predecessor acknowledged
(DESIGN 2.3), and the file that remembers it.

``incarnation``, framed as in ``checkpoint.py``; the payload is::

    msgpack [boot_seq, broker_epoch, boot_id, clean, tainted, flush_floor (0 strongest .. 3),
             node (cluster id and node id, 20 bytes),
             directory id (16 bytes), metadata offset,
             directory id (16 bytes), metadata offset found,
             syncs]

Versions before named no node, no metadata, not what was found, and no syncs. Another node's file
says nothing of this one: it is as if missing.

The decision is pure. Its life in a process:

1. take the lock, :func:`read`, :func:`judge`. UNDECIDED: recover the logs first, then
   :func:`resolve` with what recovery found;
   before the metadata log may grow: :func:`opened`, :func:`write`;
2. :func:`begin`, :func:`write`; only then register with the controller;
3. registered: :func:`registered`, :func:`write`, and only then append or truncate any log;
4. orderly stop, after every log is closed: :func:`stopped`, :func:`write`, exit.

A process whose disk failed cannot write the file any more. It leaves an empty file ``disk-failed``
(:func:`mark_failed`): the kernel's boot is the same, but its page cache may show what never reached
the disk, so the next start is not trusted (DESIGN 2.3; row 20 of tests/sim/README.md).

``tainted`` is sticky until a registration has succeeded: a start after a power loss that is stopped
in an orderly way before it registered must not look clean to the next one. So is what was ``found``
of the metadata: a start on an old copy of the disk that hears of newer metadata, and ends before it
registered, must not look up to date to the next one.
"""

from __future__ import annotations

import contextlib
import enum
from dataclasses import replace

import msgpack

from paceline.errors import CorruptMessage
from paceline.types import BrokerEpoch
from paceline.values import dataclass
from paceline_node.env import Disk, Env
from paceline_node.settings.flush_mode import FlushMode
from paceline_node.storage import checkpoint
from paceline_node.storage.log_file import is_unreadable

NAME = "incarnation"
FAILED = "disk-failed"
ANY_NODE = b""


_NEVER = BrokerEpoch(-1)


@dataclass(frozen=True, slots=True)
class Witness:
    """What the metadata log of the member ``directory`` held, committed and durable: everything to
    ``offset``. One that ends below it is older than this file, however whole it looks."""

    directory: bytes = bytes(16)
    offset: int = -1

    def of(self, directory: bytes) -> int:
        """How far the log of this member reached; -1: not known."""
        return self.offset if directory == self.directory else -1


NO_WITNESS = Witness()


@dataclass(frozen=True, slots=True)
class Incarnation:
    """What a process leaves behind for the next one on the same data directory.

    ``boot_id`` names the kernel boot and device of the last registered process; ``flush_floor`` is
    the weakest mode in which it acknowledged anything.
    """

    boot_seq: int = 0
    broker_epoch: BrokerEpoch = _NEVER
    boot_id: str = ""
    clean: bool = False
    tainted: bool = False
    flush_floor: FlushMode = FlushMode.GROUP
    metadata: Witness = NO_WITNESS
    found: Witness = NO_WITNESS
    syncs: int = -1
    """What ``durable.marks`` counted, at least (DESIGN 6.2); -1: the process did not count."""

    @property
    def trusted(self) -> bool:
        return not self.tainted


class Verdict(enum.Enum):
    """What a start makes of its predecessor."""

    TRUSTED = "trusted"
    UNTRUSTED = "untrusted"
    UNDECIDED = "undecided"
    """Trusted if recovery finds that every log reaches its durable mark."""


FORMATTED = Incarnation(clean=True)
"""Of a directory that no process has used yet."""


def boot_identity(env: Env) -> str:
    """This kernel boot and the data directory's device; empty where the system names no boot."""
    boot = env.host.boot_id()
    return f"{boot}/{env.disk.device_id()}" if boot else ""


def judge(previous: Incarnation | None, boot_id: str) -> Verdict:
    """Judge a start. ``previous`` is None when the file is missing or corrupt."""
    if previous is None or previous.tainted:
        return Verdict.UNTRUSTED
    if previous.clean:
        return Verdict.TRUSTED
    if boot_id and boot_id == previous.boot_id:
        return Verdict.TRUSTED  # the page cache outlived the process
    if previous.flush_floor.counts_durable:
        return Verdict.UNDECIDED
    return Verdict.UNTRUSTED


def known_syncs(previous: Incarnation | None, noted: int) -> int:
    """How many syncs of the logs' files are known to have succeeded, by what does not lie among
    them: this file, and what was ``noted`` beside the metadata. 0: nothing is known, as where the
    process before did not count. Files that count fewer are an older copy (DESIGN 6.2)."""
    if previous is None or previous.syncs < 0:
        return 0
    return max(previous.syncs, noted)


def resolve(verdict: Verdict, *, reached_durable_mark: bool) -> Verdict:
    """Settle an UNDECIDED verdict with what recovery of all logs found."""
    if verdict is not Verdict.UNDECIDED:
        return verdict
    return Verdict.TRUSTED if reached_durable_mark else Verdict.UNTRUSTED


def opened(previous: Incarnation, found: Witness) -> Incarnation:
    """The state to write before the metadata log may grow. ``found``: where it ends. Of starts that
    did not register the first one counts: it found what the registered process had left."""
    before = previous.found.of(found.directory)
    if before >= 0 and (found.offset < 0 or before < found.offset):
        return previous
    return replace(previous, found=found)


def next_count(previous: Incarnation | None, wall_ms: int) -> int:
    """The count of starts of the process that finds this file."""
    return 1 + (wall_ms if previous is None else previous.boot_seq)


def begin(previous: Incarnation | None, verdict: Verdict, *, wall_ms: int = 0) -> Incarnation:
    """The state to write before registering. Raises ValueError for an undecided verdict.

    Where the file is lost nobody here knows how often this directory was started: the time of day
    stands for it (``wall_ms``), which no count of starts has reached. An old copy of the disk,
    whose file says how old it is, is refused by the controller as ever.
    """
    if verdict is Verdict.UNDECIDED:
        raise ValueError("recover the logs and resolve the verdict first")
    before = previous or Incarnation()
    return replace(
        before,
        boot_seq=next_count(previous, wall_ms),
        tainted=before.tainted or verdict is Verdict.UNTRUSTED,
        clean=False,
    )


def registered(
    current: Incarnation,
    *,
    broker_epoch: BrokerEpoch,
    boot_id: str,
    flush_floor: FlushMode,
    metadata: Witness = NO_WITNESS,
    syncs: int = 0,
) -> Incarnation:
    """The state to write after the controller accepted this process. ``flush_floor`` is the
    weakest mode of any topic it hosts."""
    return replace(
        current,
        broker_epoch=broker_epoch,
        boot_id=boot_id,
        flush_floor=flush_floor,
        metadata=metadata,
        found=NO_WITNESS,
        syncs=syncs,
        tainted=False,
        clean=False,
    )


def lowered(current: Incarnation, flush_floor: FlushMode) -> Incarnation:
    """The state to write before a weaker flush mode takes effect, or after a full flush under a
    stronger one (DESIGN 2.2)."""
    return replace(current, flush_floor=flush_floor)


def stopped(current: Incarnation, metadata: Witness = NO_WITNESS, *, syncs: int = 0) -> Incarnation:
    """The state to write when every log is flushed and closed."""
    syncs = current.syncs if current.syncs < 0 else max(current.syncs, syncs)
    return replace(current, clean=True, metadata=metadata, syncs=syncs)


def mark_failed(disk: Disk) -> None:
    """Leave word that the disk failed, as well as it can be done on such a disk: synchronously, and
    without waiting for it to be durable, since a power loss is noticed anyway."""
    with contextlib.suppress(OSError):
        disk.create(FAILED).close()


def has_failed(disk: Disk) -> bool:
    """Whether a former process left word that the disk failed."""
    try:
        return disk.exists(FAILED)
    except OSError as error:
        if not is_unreadable(error):
            raise
        return True  # no answer is no good sign


def forget_failure(disk: Disk) -> None:
    """The failure is part of a written incarnation (``tainted``) now."""
    try:
        disk.remove(FAILED)
    except OSError as error:  # then every start is untrusted: it costs time, and no record
        if not is_unreadable(error):
            raise


async def write(disk: Disk, incarnation: Incarnation, node: bytes = ANY_NODE) -> None:
    """Replace the file of ``node`` durably."""
    payload = msgpack.packb(
        [
            incarnation.boot_seq,
            incarnation.broker_epoch,
            incarnation.boot_id,
            incarnation.clean,
            incarnation.tainted,
            incarnation.flush_floor.weakness,
            node,
            incarnation.metadata.directory,
            incarnation.metadata.offset,
            incarnation.found.directory,
            incarnation.found.offset,
            incarnation.syncs,
        ]
    )
    await checkpoint.write(disk, NAME, checkpoint.Kind.INCARNATION, payload)


async def read(disk: Disk, node: bytes = ANY_NODE) -> Incarnation | None:
    """The state left behind by ``node``; None when the file is missing, corrupt or another node's:
    an untrusted start."""
    try:
        payload = await checkpoint.read(disk, NAME, checkpoint.Kind.INCARNATION)
        return None if payload is None else _unpack(payload, node)
    except CorruptMessage:
        return None


def _unpack(payload: bytes, node: bytes) -> Incarnation:
    try:
        boot_seq, broker_epoch, boot_id, clean, tainted, floor, *more = msgpack.unpackb(payload)
        if more and ANY_NODE not in (node, more[0]) and more[0] != node:
            raise ValueError("it is another node's")
        metadata = Witness(bytes(more[1]), int(more[2])) if len(more) > 1 else NO_WITNESS
        found = Witness(bytes(more[3]), int(more[4])) if len(more) > 3 else NO_WITNESS
        syncs = int(more[5]) if len(more) > 5 else -1
        return Incarnation(
            boot_seq=int(boot_seq),
            broker_epoch=BrokerEpoch(int(broker_epoch)),
            boot_id=str(boot_id),
            clean=clean is True,
            tainted=tainted is not False,
            flush_floor=FlushMode.of_weakness(floor),
            metadata=metadata,
            found=found,
            syncs=syncs,
        )
    except (IndexError, TypeError, ValueError, msgpack.UnpackException) as error:
        raise CorruptMessage(f"{NAME}: {error}") from None
