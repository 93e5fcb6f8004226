"""A producer of Cursus transactions that goes on through everything: each command is said again, to
whoever coordinates by then, until it is answered for good.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Sequence
from hashlib import sha256

import trio

from tests.integration.node.machines import open_stream

PATIENCE_S = 90.0
REPLY_S = 6.0
_PAUSE_S = 0.05
_ELSEWHERE = "NOT_COORDINATOR"
_AGAIN = frozenset(
    {
        *("coordinator_not_available", "leader_not_available", "no_raft_leader"),
        *("request_timed_out", "not_enough_replicas"),
        *("transaction_commit_failed", "transaction_sync_failed", "init_producer_failed"),
    }
)


class Refused(Exception):
    """An answer that saying it again would not change."""


def may_be_said_again(answer: str) -> bool:
    """Whether a command that was answered so, not OK, is to be said again."""
    return answer.split()[1] in (_ELSEWHERE, *_AGAIN)


class Coordinator:
    """The way to whoever coordinates one transactional id or group."""

    def __init__(self, addresses: Sequence[tuple[str, int]], key: str) -> None:
        self._addresses = addresses
        self._key = key
        self._at: tuple[str, int] | None = None

    async def say(self, line: str) -> str:
        """The answer of the coordinator, whoever that is in the end. Raises Refused."""
        with trio.fail_after(PATIENCE_S):
            while True:
                answer = await self._try(line)
                if answer is not None and answer.startswith("OK"):
                    return answer
                if answer is not None and not may_be_said_again(answer):
                    raise Refused(f"{line}: {answer}")
                if answer is not None and answer.split()[1] == _ELSEWHERE:
                    self._at = None
                await trio.sleep(_PAUSE_S)

    async def _try(self, line: str) -> str | None:
        if self._at is None:
            self._at = await self._find()
        answer = None if self._at is None else await self.ask(self._at, line)
        if answer is None:
            self._at = None
        return answer

    async def _find(self) -> tuple[str, int] | None:
        for address in self._addresses:
            answer = await self.ask(address, f"FIND_COORDINATOR {self._key}")
            if answer is not None and answer.startswith("OK"):
                fields = dict(word.partition("=")[::2] for word in answer.split()[1:])
                return fields["host"], int(fields["port"])
        return None

    async def ask(self, address: tuple[str, int], line: str) -> str | None:
        """One command over a connection of its own; None when nobody answers."""
        with contextlib.suppress(OSError, trio.BrokenResourceError), trio.move_on_after(REPLY_S):
            async with await open_stream(address) as stream:
                return await exchange(stream, line)
        return None


async def exchange(stream: trio.abc.Stream, line: str) -> str | None:
    """What is answered to one command; None when the connection ends before."""
    body = line.encode()
    await stream.send_all(struct.pack(">I", len(body)) + body)
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack(">I", data[:4])[0]:
        more = await stream.receive_some(65536)
        if not more:
            return None
        data += more
    return data[4:].decode()


class Bookkeeper:
    """One transactional id, and the one member of a group whose offsets go with it."""

    def __init__(
        self, addresses: Sequence[tuple[str, int]], name: str, topic: str, group: str
    ) -> None:
        self._name, self._topic, self._group = name, topic, group
        self._transactions = Coordinator(addresses, f"transactional_id={name}")
        self._groups = Coordinator(addresses, f"group={group}")
        self._sequence = 0

    async def open(self) -> None:
        told = await self._transactions.say(f"INIT_PRODUCER_ID transactional_id={self._name}")
        epoch = told.partition("epoch=")[2]
        producer = f"txn-{sha256(self._name.encode()).hexdigest()[:16]}"
        self._who = f"transactional_id={self._name} producerId={producer} epoch={epoch}"
        joined = await self._groups.say(
            f"JOIN_GROUP topic={self._topic} group={self._group} member=keeper"
        )
        self._member = " ".join(joined.split()[1:3])

    async def transact(self, number: int, partitions: int, *, commits: bool) -> None:
        """One record in each partition, and an offset."""
        say = self._transactions.say
        await say(f"BEGIN_TXN {self._who}")
        for partition in range(partitions):
            self._sequence += 1
            place = f"topic={self._topic} partition={partition} seqNum={self._sequence}"
            await say(f"TXN_PUBLISH {self._who} {place} message={number}")
        place = f"topic={self._topic} group={self._group} {self._member} P0:{number}"
        await say(f"SEND_OFFSETS_TO_TXN {self._who} {place}")
        await say(f"END_TXN {self._who} result={'commit' if commits else 'abort'}")

    async def committed(self) -> int:
        """The offset of partition 0 that the group has committed."""
        line = f"FETCH_OFFSET topic={self._topic} group={self._group} partition=0"
        return int((await self._groups.say(line)).removeprefix("OK offset="))
