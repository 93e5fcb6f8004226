"""The copier over Cursus.

Its published client for Python has no transactions, so the commands are said without it; the
connections it reads by, and what it decodes them with, are the published client's.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from hashlib import sha256

import trio
from cursus.connection.sync_conn import SyncConnection
from cursus.errors import CursusError
from cursus.protocol.decoder import decode_batch
from cursus.protocol.encoder import encode_message

from paceline.wire.cursus.frames import FrameReader, framed
from tests.e2e.exactly_once.copying import Adapter, Course, Read, begin, copy
from tests.e2e.exactly_once.journal import Journal
from tests.integration.faults.cursus_bookkeeper import (
    PATIENCE_S,
    REPLY_S,
    Coordinator,
    Refused,
    exchange,
    may_be_said_again,
)

BEAT_S = 3.0
NOTHING_S = 0.2
WINDOW = 256
"""So many commands are said before the first is answered."""


class Line(Coordinator):
    """A coordinator whose connection is kept as long as it answers."""

    def __init__(self, addresses: list[tuple[str, int]], key: str) -> None:
        super().__init__(addresses, key)
        self._to: tuple[str, int] | None = None
        self._stream: trio.SocketStream | None = None

    async def ask(self, address: tuple[str, int], line: str) -> str | None:
        answer = None
        try:
            with (
                contextlib.suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError),
                trio.move_on_after(REPLY_S),
            ):
                if self._stream is None or self._to != address:
                    self.close()
                    self._stream = await trio.open_tcp_stream(*address)
                    self._to = address
                answer = await exchange(self._stream, line)
        finally:
            if answer is None:
                self.close()  # what it may still say answers another command
        return answer

    async def say_all(self, lines: Sequence[str]) -> None:
        """Say commands that may be repeated, without waiting for the answers in between; what was
        not answered for good is said again, in order. Raises Refused, also where one behind a
        command that has to be repeated was carried out, for then their order is lost."""
        left = list(lines)
        with trio.fail_after(PATIENCE_S):
            while left:
                window = left[:WINDOW]
                done = carried_out(window, await self._hear_all(window))
                left = left[done:]
                if done < len(window):
                    # Said alone until it is answered: it finds the coordinator, or hears why not.
                    await self.say(left.pop(0))

    async def _hear_all(self, lines: Sequence[str]) -> list[str]:
        """The answers to commands, as far as they come over the connection that is kept."""
        answers: list[str] = []
        stream = self._stream
        if stream is None:
            return answers
        reader = FrameReader()
        try:
            with (
                contextlib.suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError),
                trio.move_on_after(REPLY_S),
            ):
                await stream.send_all(b"".join(framed(line.encode()) for line in lines))
                while len(answers) < len(lines) and (data := await stream.receive_some(65536)):
                    reader.feed(data)
                    while (body := reader.next_frame()) is not None:
                        answers.append(body.decode())
        finally:
            if len(answers) < len(lines):
                self.close()
        return answers

    def close(self) -> None:
        """Let the connection go; idempotent."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.socket.close()


def carried_out(lines: Sequence[str], answers: Sequence[str]) -> int:
    """How many of the commands, from the first on, need not be said again. Raises Refused."""
    done = [answer.startswith("OK") for answer in answers]
    for line, answer, is_done in zip(lines, answers, done, strict=False):
        if not is_done and not may_be_said_again(answer):
            raise Refused(f"{line}: {answer}")
    first = (*done, False).index(False)
    if any(done[first:]):
        raise Refused(f"{lines[first]}: {answers[first]}, but not what was said after it")
    return first


class Cursus(Adapter):
    failures = (Refused, CursusError, trio.TooSlowError)

    def __init__(self, course: Course) -> None:
        super().__init__(course)
        addresses = [(host, int(port)) for host, _, port in map(_split, course.servers)]
        key = f"transactional_id={course.name}"
        self._transactions = Line(addresses, key)
        self._beats = Line(addresses, f"group={course.group}")
        self._member = ""
        self._unsent: list[str] = []
        self._groups = Line(addresses, f"group={course.group}")
        self._sequence = 0
        self.own: list[int] = []
        self._positions: dict[int, int] = {}
        self._waiting: dict[int, list[Read]] = {}
        self._connections: dict[int, SyncConnection] = {}

    # --- life -------------------------------------------------------------------------------------

    async def open(self) -> None:
        course = self.course
        told = await self._transactions.say(f"INIT_PRODUCER_ID transactional_id={course.name}")
        epoch = told.partition("epoch=")[2].split()[0]
        producer = f"txn-{sha256(course.name.encode()).hexdigest()[:16]}"
        self._who = f"transactional_id={course.name} producerId={producer} epoch={epoch}"
        self._group = f"topic={course.input} group={course.group}"
        await self._join()

    async def _join(self) -> None:
        joined = await self._groups.say(f"JOIN_GROUP {self._group} member={self.course.name}")
        self._member = " ".join(joined.split()[1:3])
        shared = joined.partition("assignments=[")[2].partition("]")[0]
        self.own = [int(each) for each in shared.replace(",", " ").split()]
        await self.rewind()

    async def beat(self) -> None:
        """Keep the member alive however long a transaction takes; what is refused is heard before
        the next one."""
        while True:
            await trio.sleep(BEAT_S)
            if self._member:
                with contextlib.suppress(*self.failures):
                    await self._beats.say(f"HEARTBEAT {self._group} {self._member}")

    async def close(self) -> None:
        self._member = ""
        for line in (self._transactions, self._groups):
            line.close()
        for each in self._connections.values():
            each.close()
        self._connections.clear()

    # --- reading ----------------------------------------------------------------------------------

    async def take(self, most: int) -> list[Read]:
        try:
            await self._groups.say(f"HEARTBEAT {self._group} {self._member}")
        except Refused:
            await self._join()
            return []
        for at in sorted(self.own, key=self._positions.__getitem__):
            if not self._waiting.get(at):
                self._waiting[at] = await trio.to_thread.run_sync(self._consume, at)
            reads, self._waiting[at] = self._waiting[at][:most], self._waiting[at][most:]
            if reads:
                self._positions[at] = reads[-1].offset + 1
                return reads
        await trio.sleep(NOTHING_S)
        return []

    def _consume(self, partition: int) -> list[Read]:
        """What lies at the position, from whichever node has it; none when that is not told."""
        try:
            place = f"topic={self.course.input} partition={partition}"
            reading = f"offset={self._positions[partition]} isolation=read_committed"
            command = f"CONSUME {place} {reading} member={self.course.name}"
            connection = self._connection(partition)
            connection.write_frame(encode_message("", command))
            messages, _, _ = decode_batch(connection.read_frame())
        except CursusError:
            self._connections.pop(partition, SyncConnection("")).close()
            return []
        return [Read(partition, each.offset) for each in messages]

    def _connection(self, partition: int) -> SyncConnection:
        if partition not in self._connections:
            for server in self.course.servers:
                asked = SyncConnection(server)
                try:
                    asked.connect()
                    asked.write_frame(encode_message("", f"METADATA topic={self.course.input}"))
                    told = asked.read_frame().decode()
                except CursusError:
                    continue
                finally:
                    asked.close()
                leaders = told.partition("leaders=")[2].split()[0].split(",")
                found = SyncConnection(leaders[partition])
                found.connect()
                self._connections[partition] = found
                break
            else:
                raise CursusError("no node answers METADATA")
        return self._connections[partition]

    async def rewind(self) -> dict[int, int]:
        """Those of all partitions, once its own are copied: a member that died keeps its own for a
        while, and nobody would take them over."""
        self._positions = {at: await self.committed(at) for at in self.own}
        self._waiting = {}
        if self.own and not self.course.is_done(self._positions):
            return dict(self._positions)
        return {at: await self.committed(at) for at in range(len(self.course.ends))}

    async def committed(self, partition: int) -> int:
        """The group's offset."""
        told = await self._groups.say(f"FETCH_OFFSET {self._group} partition={partition}")
        return int(told.removeprefix("OK offset="))

    # --- a transaction ----------------------------------------------------------------------------

    async def begin(self) -> None:
        self._unsent = []
        await self._transactions.say(f"BEGIN_TXN {self._who}")

    async def send(self, partition: int, value: bytes) -> None:
        """Sent by :meth:`flush`: a command has one record, and is answered when nodes have it."""
        self._sequence += 1
        place = f"topic={self.course.output} partition={partition} seqNum={self._sequence}"
        self._unsent.append(f"TXN_PUBLISH {self._who} {place} message={value.decode()}")

    async def send_offsets(self, offsets: Mapping[int, int]) -> None:
        await self.flush()
        pairs = ",".join(f"P{at}:{to}" for at, to in offsets.items())
        where = f"{self._group} {self._member} {pairs}"
        await self._transactions.say(f"SEND_OFFSETS_TO_TXN {self._who} {where}")

    async def flush(self) -> None:
        """Send the records, in order."""
        unsent, self._unsent = self._unsent, []
        await self._transactions.say_all(unsent)

    async def commit(self) -> None:
        await self._transactions.say(f"END_TXN {self._who} result=commit")

    async def abort(self) -> None:
        await self._transactions.say(f"END_TXN {self._who} result=abort")

    def may_abort(self, error: BaseException) -> bool:
        return isinstance(error, Refused)


def _split(address: str) -> tuple[str, str, str]:
    return address.rpartition(":")


async def _copy(copier: Cursus, journal: Journal) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(copier.beat)
        await copy(copier, journal)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    course, journal = begin(sys.argv)
    trio.run(_copy, Cursus(course), journal)
