"""The copier, the same for every client: consume, transform, produce, in transactions.

A client is an adapter with a method for each step. The methods are async, whatever they run on:
trio for the native client, asyncio for aiokafka, and they simply block for those that know neither.
"""

from __future__ import annotations

import faulthandler
import json
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from tests.e2e.exactly_once.journal import Journal, Slices, Told
from tests.e2e.exactly_once.judge import Copy, encode

CALL_S = 60.0
"""How long a client may go on trying one step."""
TRANSACTION_TIMEOUT_S = 60
SESSION_S = 6
"""Of group members: a killed one holds its successor up for so long, and each move of the group's
coordinator begins it anew."""
MANY = 1_000_000
"""More transactions than a member has."""
_REPEATS = 10


@dataclass(frozen=True)
class Course:
    """All that a copier is told. It is ``member`` of so many ``members`` of its group. ``ends``:
    where the input ends. Each transaction copies at most ``batch`` records, and each
    ``abort_every``-th is aborted on purpose."""

    servers: list[str]
    group: str
    member: int
    members: int
    input: str
    output: str
    ends: list[int]
    batch: int
    abort_every: int
    journal: str

    @property
    def name(self) -> str:
        """Of the copier among all; its transactional id."""
        return f"{self.group}-{self.member}"

    @property
    def first_attempt(self) -> int:
        """The numbers of a group's transactions differ."""
        return self.member * MANY + 1

    def is_done(self, at: Mapping[int, int]) -> bool:
        """Whether the partitions that it was given, if any, are copied: then it leaves them to the
        others, who find nothing more to do."""
        return bool(at) and all(offset >= self.ends[each] for each, offset in at.items())

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")


class Read(NamedTuple):
    """Where an input record lies."""

    partition: int
    offset: int


class Adapter(ABC):
    """One client. What it raises of ``failures`` ends a transaction; anything else is a bug of the
    copier, and ends it."""

    failures: tuple[type[BaseException], ...]

    def __init__(self, course: Course) -> None:
        self.course = course

    @abstractmethod
    async def open(self) -> None:
        """Connect, take the transactional id over and join the group."""

    @abstractmethod
    async def close(self) -> None:
        """Let go of everything; raises nothing of ``failures``."""

    @abstractmethod
    async def take(self, most: int) -> list[Read]:
        """The next records, none after a moment without any. All of one assignment."""

    @abstractmethod
    async def rewind(self) -> dict[int, int]:
        """Go back to the committed offsets, which are returned; empty while nothing is assigned."""

    @abstractmethod
    async def begin(self) -> None: ...

    @abstractmethod
    async def send(self, partition: int, value: bytes) -> None: ...

    @abstractmethod
    async def send_offsets(self, offsets: Mapping[int, int]) -> None: ...

    @abstractmethod
    async def flush(self) -> None: ...

    @abstractmethod
    async def commit(self) -> None: ...

    @abstractmethod
    async def abort(self) -> None: ...

    def may_abort(self, error: BaseException) -> bool:
        """Whether the client says that this failure is one to be aborted."""
        return False

    def may_repeat(self, error: BaseException) -> bool:
        """Whether the client says that an end that failed so is to be said again."""
        return False


async def copy(adapter: Adapter, journal: Journal) -> None:
    """Copy until the group's committed offsets are the ends of all that it was given."""
    is_done = False
    while not is_done:
        try:
            await adapter.open()
            is_done = await _go_on(adapter, journal)
        except adapter.failures as error:
            journal.stopped(_text(error))
        finally:
            await adapter.close()


async def _go_on(adapter: Adapter, journal: Journal) -> bool:
    """Until all is copied, or False when the client has to begin anew."""
    course = adapter.course
    at: dict[int, int] = {}
    while not course.is_done(at):
        reads = await adapter.take(course.batch)
        if not reads:
            at = await adapter.rewind()
            continue
        slices = slices_of(reads)
        told = await _transact(adapter, journal, reads, slices)
        if told is Told.UNKNOWN:
            return False
        if told is Told.ABORTED:
            await adapter.rewind()
    return True


async def _transact(
    adapter: Adapter, journal: Journal, reads: Sequence[Read], slices: Slices
) -> Told:
    number = journal.begin(slices)
    on_purpose = number % adapter.course.abort_every == 0
    told, why = Told.UNKNOWN, ""
    try:
        await adapter.begin()
        for read in reads:
            await adapter.send(read.offset % 2, encode(Copy(number, *read)))
        await adapter.send_offsets({at: end for at, (_, end) in slices.items()})
        if on_purpose:
            await adapter.flush()
            await _repeated(adapter, adapter.abort)
            told = Told.ABORTED
        else:
            await _repeated(adapter, adapter.commit)
            told = Told.COMMITTED
    except adapter.failures as error:
        told, why = await _give_up(adapter, error)
    journal.end(number, told, why)
    return told


async def _repeated(adapter: Adapter, end: Callable[[], Awaitable[None]]) -> None:
    """A commit or an abort, again as often as the client asks for that."""
    for _ in range(_REPEATS):
        try:
            await end()
        except adapter.failures as error:
            if not adapter.may_repeat(error):
                raise
        else:
            return
    await end()


async def _give_up(adapter: Adapter, error: BaseException) -> tuple[Told, str]:
    """Abort what has failed, if the client says so, and only then it is certainly aborted."""
    why = _text(error)
    if adapter.may_abort(error):
        try:
            await _repeated(adapter, adapter.abort)
        except adapter.failures as another:
            return Told.UNKNOWN, f"{why}; then {_text(another)}"
        return Told.ABORTED, why
    return Told.UNKNOWN, why


def slices_of(reads: Sequence[Read]) -> Slices:
    """From where to where, by partition. Raises ValueError at a gap or a repetition."""
    slices: Slices = {}
    for partition, offset in reads:
        first, end = slices.get(partition, (offset, offset))
        if offset != end:
            raise ValueError(f"{partition}/{offset} was read where {end} was expected")
        slices[partition] = first, offset + 1
    return slices


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:300]


def begin(words: Sequence[str]) -> tuple[Course, Journal]:
    """The course that a copier's command line names. SIGUSR1 shows where every thread is."""
    faulthandler.register(signal.SIGUSR1, file=sys.stderr, all_threads=True)
    course = Course(**json.loads(Path(words[1]).read_text(encoding="utf-8")))
    return course, Journal(Path(course.journal), course.first_attempt)
