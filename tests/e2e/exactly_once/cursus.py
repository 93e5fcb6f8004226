"""The copier over Cursus.

Its published client for Python has no transactions, so the commands are said one by one; the
connections it reads by, and what it decodes them with, are the published client's.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from hashlib import sha256

import trio
from cursus.connection.sync_conn import SyncConnection
from cursus.errors import CursusError
from cursus.protocol.decoder import decode_batch
from cursus.protocol.encoder import encode_message

from tests.e2e.exactly_once.copying import Adapter, Course, Read, begin, copy
from tests.integration.faults.cursus_bookkeeper import Coordinator, Refused


class Cursus(Adapter):
    failures = (Refused, CursusError, trio.TooSlowError)

    def __init__(self, course: Course) -> None:
        super().__init__(course)
        addresses = [(host, int(port)) for host, _, port in map(_split, course.servers)]
        self._transactions = Coordinator(addresses, f"transactional_id={course.name}")
        self._groups = Coordinator(addresses, f"group={course.group}")
        self._sequence = 0
        self._own: list[int] = []
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
        self._own = [int(each) for each in shared.replace(",", " ").split()]
        await self.rewind()

    async def close(self) -> None:
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
        for at in sorted(self._own, key=self._positions.__getitem__):
            if not self._waiting.get(at):
                self._waiting[at] = await trio.to_thread.run_sync(self._consume, at)
            reads, self._waiting[at] = self._waiting[at][:most], self._waiting[at][most:]
            if reads:
                self._positions[at] = reads[-1].offset + 1
                return reads
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
        offsets = {}
        for at in self._own:
            told = await self._groups.say(f"FETCH_OFFSET {self._group} partition={at}")
            offsets[at] = int(told.removeprefix("OK offset="))
        self._positions, self._waiting = dict(offsets), dict[int, list[Read]]()
        return offsets

    # --- a transaction ----------------------------------------------------------------------------

    async def begin(self) -> None:
        await self._transactions.say(f"BEGIN_TXN {self._who}")

    async def send(self, partition: int, value: bytes) -> None:
        self._sequence += 1
        place = f"topic={self.course.output} partition={partition} seqNum={self._sequence}"
        await self._transactions.say(f"TXN_PUBLISH {self._who} {place} message={value.decode()}")

    async def send_offsets(self, offsets: Mapping[int, int]) -> None:
        pairs = ",".join(f"P{at}:{to}" for at, to in offsets.items())
        where = f"{self._group} {self._member} {pairs}"
        await self._transactions.say(f"SEND_OFFSETS_TO_TXN {self._who} {where}")

    async def flush(self) -> None:
        """Nothing waits to be sent."""

    async def commit(self) -> None:
        await self._transactions.say(f"END_TXN {self._who} result=commit")

    async def abort(self) -> None:
        await self._transactions.say(f"END_TXN {self._who} result=abort")

    def may_abort(self, error: BaseException) -> bool:
        return isinstance(error, Refused)


def _split(address: str) -> tuple[str, str, str]:
    return address.rpartition(":")


if __name__ == "__main__":
    course, journal = begin(sys.argv)
    trio.run(copy, Cursus(course), journal)
