"""One Cursus connection as a client has it; what its answers say of what was asked for.

Answers are taken at their word (listeners/DESIGN 1.2): a refusal says that nothing was done, unless
it says that the time is over or the broker failed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import trio

from paceline.errors import Outcome, PacelineError
from paceline.wire.cursus.batch import MAGIC, CursusRecord, parse_batch
from paceline.wire.cursus.errors import CursusError, class_of, parse_refusal
from paceline.wire.cursus.frames import FrameReader, framed
from paceline_cluster.sim.cluster import CURSUS_PORT, SimCluster
from paceline_cluster.sim.foreign_clients.links import Address, Connection, Links

_OPEN = frozenset(("request_timed_out", "request_cancelled", "broker_error"))
_ELSEWHERE = "LEADER_IS "


def is_open(error: PacelineError) -> bool:
    """Whether what was asked for may have been done."""
    if isinstance(error, CursusError):
        return error.word in _OPEN
    return error.outcome is Outcome.UNKNOWN


def is_fencing(error: PacelineError) -> bool:
    """Whether somebody newer has taken the place of who asked."""
    return isinstance(error, CursusError) and class_of(error.word) == "fencing"


class Stored(NamedTuple):
    """A batch's acknowledgement."""

    last_offset: int
    last_sequence: int


class CursusLink(Connection):
    """Frames out, frames in."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        super().__init__(stream)
        self._frames = FrameReader()

    async def ask(self, line: str) -> Mapping[str, str]:
        """The fields of the OK. Raises CursusError for a refusal, and ConnectionLost."""
        return fields_of(await self.say(line))

    async def say(self, line: str) -> str:
        """As :meth:`ask`: the whole OK."""
        return _accepted(await self.exchange(line, lambda: self._told(line.encode())))

    async def produce(self, body: bytes) -> Stored:
        """Send a batch, or a PUBLISH; what its acknowledgement says. Raises as :meth:`ask`."""
        answer = await self.exchange("a batch", lambda: self._told(body))
        if not answer.startswith(b"{"):
            _accepted(answer)
            raise AssertionError(f"{answer!r} is no acknowledgement")
        told = json.loads(answer)
        if told["status"] == "ERROR":
            raise parse_refusal(told["error"])
        assert told["status"] == "OK", f"a batch was stored in parts: {told}"
        return Stored(told["last_offset"], told["seq_end"])

    async def consume(self, line: str) -> Sequence[CursusRecord]:
        """The records that a CONSUME answers. Raises as :meth:`ask`."""
        return records_of(await self.exchange(line, lambda: self._told(line.encode())))

    async def send(self, body: bytes) -> None:
        """Send what is answered by a stream of frames."""
        self.is_usable = False
        await self.stream.send_all(framed(body))

    async def frame(self) -> bytes:
        """The next frame; an empty one is a stream's keepalive."""
        while (body := self._frames.next_frame()) is None:
            self._frames.feed(await self.receive())
        return body

    async def _told(self, body: bytes) -> bytes:
        await self.stream.send_all(framed(body))
        return await self.frame()


CursusLinks = Links[CursusLink]


def cursus_links(cluster: SimCluster, host: str, rng: random.Random) -> CursusLinks:
    """All connections of a client that lives on ``host``."""
    return Links(cluster, host, CURSUS_PORT, CursusLink, rng)


class AnyNode:
    """One of the nodes, and the same one until it is of no use."""

    def __init__(self, links: CursusLinks) -> None:
        self._links = links
        self._address: Address | None = None

    async def link(self) -> CursusLink:
        """A connection to it. Raises ConnectionLost, with nothing sent."""
        self._address = self._address or self._links.anywhere()
        return await self._links.to(self._address)

    def forget(self) -> None:
        """Go to any of them the next time."""
        self._address = None


class Leaders:
    """Who leads the partitions of a topic, as any node tells; asked for again when it is wrong."""

    def __init__(self, links: CursusLinks, topic: str) -> None:
        self._links = links
        self._topic = topic
        self._known: list[Address | None] = []

    async def of(self, number: int) -> Address | None:
        """The leader of a partition, None when there is none. Raises PacelineError."""
        if not self._known:
            link = await self._links.to_any()
            told = (await link.ask(f"METADATA topic={self._topic}"))["leaders"]
            self._known = [Address.parse(each) if each else None for each in told.split(",")]
        return self._known[number]

    def forget(self) -> None:
        """What is known has turned out to be wrong."""
        self._known.clear()


async def coordinator_of(links: CursusLinks, key: str) -> Address:
    """Where the coordinator of ``group=`` or ``transactional_id=`` is. Raises PacelineError."""
    link = await links.to_any()
    told = await link.ask(f"FIND_COORDINATOR {key}")
    return Address(told["host"], int(told["port"]))


def records_of(answer: bytes) -> Sequence[CursusRecord]:
    """The records of a data frame. Raises CursusError for a refusal."""
    if not answer.startswith(MAGIC):
        _accepted(answer)
        raise AssertionError(f"{answer!r} is no batch")
    return parse_batch(answer).records


def fields_of(line: str) -> Mapping[str, str]:
    """The ``k=v`` words of an answer."""
    return dict(word.partition("=")[::2] for word in line.split()[1:])


def leader_told(error: CursusError) -> Address | None:
    """Where a refusal says that the leader is."""
    _, found, address = error.detail.partition(_ELSEWHERE)
    return Address.parse(address.split()[0]) if found and address else None


def _accepted(answer: bytes) -> str:
    line = answer.decode()
    if line.startswith("OK"):
        return line
    raise parse_refusal(line)
