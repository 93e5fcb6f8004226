"""Broken bytes for a parser, and what it may do with them.

A target makes valid inputs from a generator; the engine mangles them and gives them to the parser,
which may answer, or refuse with one of the product's own errors, within bounds of time and memory.
Everything comes from a seed, so a finding is repeated by its number.
"""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from paceline.errors import PacelineError

MIB = 1024 * 1024
SLOW_S = 2.0
"""Processor seconds that no input may cost: hundreds of times what the slowest valid one does."""
EACH = 8
"""Inputs of one valid input."""
WEIGH_EVERY = 61
"""One input of so many is given under tracemalloc, which makes everything several times slower."""
_INTERESTING = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000)
_MOST_BYTES = 256 * 1024


@dataclass(frozen=True)
class Target:
    """A parser. ``make`` gives a valid input, ``feed`` parses one; it raises AssertionError when
    the parser contradicts itself. ``refusals`` are errors it may raise besides PacelineError;
    ``most_bytes`` what it may allocate at once for an input of a few KiB."""

    name: str
    make: Callable[[random.Random], bytes]
    feed: Callable[[bytes, random.Random], None]
    refusals: tuple[type[Exception], ...] = ()
    most_bytes: int = 8 * MIB


@dataclass(frozen=True)
class Finding:
    """What an input did that it must not, and how to see it again."""

    target: str
    number: int
    data: bytes
    what: str

    def __str__(self) -> str:
        shown = self.data[:400].hex() + ("..." if len(self.data) > 400 else "")
        return f"{self.target} input {self.number} ({len(self.data)} bytes): {self.what}\n{shown}"


@dataclass
class Tally:
    """Inputs given so far, how many of them were taken, and what was found."""

    given: int = 0
    taken: int = 0
    finding: Finding | None = None


def fuzz(target: Target, numbers: Iterator[int], *, until: float = float("inf")) -> Tally:
    """Give the inputs of these numbers, until one is a finding or the time (monotonic) is over."""
    tally = Tally()
    for number in numbers:
        if time.monotonic() >= until:
            break
        tally.given += 1
        data, rng = _drawn(target, number)
        what = _misbehaviour(target, data, rng, number, tally)
        if what is not None:
            tally.finding = Finding(target.name, number, data, what)
            break
    return tally


def input_of(target: Target, number: int) -> bytes:
    """Input ``number``: of each eight the first is as it was made, the others are it mangled."""
    return _drawn(target, number)[0]


def _drawn(target: Target, number: int) -> tuple[bytes, random.Random]:
    """An input, and what else is drawn for it."""
    made = _made(target, number // EACH)
    rng = random.Random(number)
    return (mangle(made, rng) if number % EACH else made), rng


@lru_cache(maxsize=2)
def _made(target: Target, number: int) -> bytes:
    """To make one costs more than to mangle and to parse it."""
    return target.make(random.Random(f"{target.name}/{number}"))


def _misbehaviour(
    target: Target, data: bytes, rng: random.Random, number: int, tally: Tally
) -> str | None:
    weighed = number % WEIGH_EVERY == 0
    if weighed:
        tracemalloc.start()
    begun = time.perf_counter()
    try:
        target.feed(data, rng)
        tally.taken += 1
    except (PacelineError, *target.refusals):
        pass
    except (Exception, AssertionError) as error:  # noqa: BLE001 - which is what is looked for
        return f"{type(error).__name__}: {error}"
    finally:
        peak = tracemalloc.get_traced_memory()[1] if weighed else 0
        if weighed:
            tracemalloc.stop()
    if time.perf_counter() - begun > SLOW_S and (took_s := _processor_s(target, number)) > SLOW_S:
        return f"it took {took_s:.1f} s of processor time"
    if peak > target.most_bytes:
        return f"it allocated {peak:,} bytes at once, at most {target.most_bytes:,} are expected"
    return None


def _processor_s(target: Target, number: int) -> float:
    """What an input costs, on a machine however busy; to ask costs more than most inputs do."""
    data, rng = _drawn(target, number)
    begun = time.process_time()
    with suppress(Exception):
        target.feed(data, rng)
    return time.process_time() - begun


# --- mangling -------------------------------------------------------------------------------------


def mangle(data: bytes, rng: random.Random) -> bytes:
    """One to four changes: bits, bytes, numbers that may be lengths, pieces moved or cut."""
    mangled = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        rng.choice(_CHANGES)(mangled, rng)
    return bytes(mangled[:_MOST_BYTES])


def _at(data: bytearray, rng: random.Random) -> int:
    """A place; the beginning, where heads are, more often."""
    size = len(data)
    return rng.randrange(min(size, 32)) if rng.random() < 0.3 else rng.randrange(size)


def _flip(data: bytearray, rng: random.Random) -> None:
    if data:
        data[_at(data, rng)] ^= 1 << rng.randrange(8)


def _number(data: bytearray, rng: random.Random) -> None:
    """A number of 1, 2, 4 or 8 bytes at the edges of its range."""
    if not data:
        return
    width = rng.choice((1, 2, 4, 8))
    value = rng.choice(_INTERESTING) if rng.random() < 0.7 else rng.getrandbits(8 * width)
    at = _at(data, rng)
    data[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, "big")


def _insert(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.randbytes(rng.choice((1, 2, 7, 40)))


def _delete(data: bytearray, rng: random.Random) -> None:
    if data:
        at = _at(data, rng)
        del data[at : at + rng.choice((1, 2, 4, 20))]


def _cut(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data) + 1) :]


def _repeat(data: bytearray, rng: random.Random) -> None:
    if data:
        at = _at(data, rng)
        piece = data[at : at + rng.choice((1, 8, 60))]
        data[at:at] = piece * rng.choice((1, 3, 50))


def _swap(data: bytearray, rng: random.Random) -> None:
    if len(data) > 8:
        first, second = sorted(rng.randrange(len(data)) for _ in range(2))
        data[:] = data[second:] + data[first:second] + data[:first]


_CHANGES = (_flip, _flip, _flip, _number, _number, _insert, _delete, _cut, _repeat, _swap)


def pieces(data: bytes, rng: random.Random) -> Iterator[bytes]:
    """The same bytes as a network might deliver them."""
    at = 0
    while at < len(data):
        size = rng.choice((1, 3, 17, 400, len(data)))
        yield data[at : at + size]
        at += size
