"""Addresses of a local cluster's listeners (paceline_node/DESIGN 3.3): node 0's bases, node i 1000
higher."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import random
import socket
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import trio

from paceline_cluster.errors import BadSetting
from paceline_node.settings.addresses import has_http2

HOST = "127.0.0.1"
BASE_PORTS: dict[str, int] = {
    "v1": 9092,
    "native": 7400,
    "peer": 7401,
    "http": 7480,
    "segment": 12345,
    "cursus": 9000,
    "kafka": 9192,
    **({"pravega": 9090} if has_http2() else {}),
}
STEP = 1000
NUMBERS = range(1, 65536)
_LOWEST = 20_000
"""Below lie the ports of much that others run, and those that tests here number themselves."""
_LOWEST_AT_NEED = 10_240
_ROOM = 1000
_LOOK_AGAIN_S = 0.02

NodePorts = dict[str, int]


def fixed_ports(node_ids: Iterable[int], *, offset: int = 0) -> dict[int, NodePorts]:
    """The documented ports of each node, all shifted by ``offset``."""
    return {
        node: {name: base + STEP * node + offset for name, base in BASE_PORTS.items()}
        for node in node_ids
    }


CHOOSE_OTHERS = "choose other ports with --any-port or --port-offset N"


def require_free(ports: Mapping[int, NodePorts], *, remedy: str = CHOOSE_OTHERS) -> None:
    """Raise BadSetting naming the first port that cannot be bound, and what to do about it."""
    for node, listeners in ports.items():
        for name, port in listeners.items():
            if port not in NUMBERS:
                raise BadSetting(
                    f"port {port} ({name} listener of node {node}): expected a number from "
                    f"{NUMBERS[0]} to {NUMBERS[-1]}; {remedy}"
                )
            problem = _bind_problem(port)
            if problem is not None:
                raise BadSetting(
                    f"port {port} ({name} listener of node {node}) {problem}; end what uses it, "
                    f"or {remedy}"
                )


def are_free(ports: Mapping[int, NodePorts]) -> bool:
    """Whether every one of them can be bound now."""
    try:
        require_free(ports)
    except BadSetting:
        return False
    return True


def _bind_problem(port: int) -> str | None:
    try:
        _bind(port).close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return "is in use"
        return f"cannot be used ({error.strerror})"
    return None


def _bind(port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((HOST, port))
    except OSError:
        sock.close()
        raise
    return sock


@contextlib.asynccontextmanager
async def choosing() -> AsyncIterator[IO[str]]:
    """Whoever else of this user chooses ports, in this process or another, does so only after the
    block ends, when those chosen in it are bound; so two that start at once never choose alike.
    Yields the file that is locked; it remembers the port that was chosen last."""
    with _lock_file() as lock:
        while not _is_locked(lock):  # noqa: ASYNC110 - another process tells nobody that it is done
            await trio.sleep(_LOOK_AGAIN_S)
        yield lock


@contextlib.asynccontextmanager
async def free_ports(node_ids: Iterable[int]) -> AsyncIterator[dict[int, NodePorts]]:
    """Free ports for each node from :func:`random_range`, those behind the ones that were chosen
    last: the ports of a cluster that is stopped for a while are the last to be chosen again. The
    block is one of :func:`choosing`."""
    async with choosing() as memory:
        yield _choose(node_ids, memory)


def _is_locked(file: IO[str]) -> bool:
    """Whether the lock is this opening's now. Waiting for it in the kernel would keep the loop from
    ending what holds it, and could not be cancelled."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.asynccontextmanager
async def planned(
    node_ids: Iterable[int], *, any_port: bool, offset: int
) -> AsyncIterator[dict[int, NodePorts]]:
    """Free ports if ``any_port``, else the documented ones, each of them free now. Raises
    BadSetting."""
    if any_port:
        async with free_ports(node_ids) as plan:
            yield plan
        return
    plan = fixed_ports(node_ids, offset=offset)
    require_free(plan)
    yield plan


def _lock_file(what: str = "ports") -> IO[str]:
    path = Path(tempfile.gettempdir()) / f"paceline-{what}-{os.getuid()}.lock"
    # The directory is everybody's: whoever laid a link here would have another file cut to nothing.
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.fdopen(os.open(path, flags, 0o600), "r+", encoding="ascii")
    except OSError as error:
        raise BadSetting(
            f"{path}, where the ports chosen last are remembered, cannot be opened "
            f"({error.strerror}): remove it, or name another directory by TMPDIR"
        ) from error


def free_numbers(count: int, *, besides: Iterable[int] = ()) -> list[int]:
    """``count`` free ports from :func:`random_range`; none of ``besides``, which are chosen
    already. They are of those that nodes have not had for longest: the ports of a node that is
    down for a moment are free, too, and it wants them back. For the same reason they lie behind
    those that were chosen here last, by this process or another: nobody need have bound those yet.
    Raises BadSetting."""
    taken = set(besides)
    with _lock_file() as nodes:
        unused = _longest_unused(_last_chosen(nodes), random_range())
    with _lock_file("numbers") as memory:
        fcntl.flock(memory, fcntl.LOCK_EX)  # for the moment that trying some ports takes
        last = _last_chosen(memory)
        for usable in (unused, random_range()):
            free = (port for port in _free_behind(last, usable) if port not in taken)
            chosen = list(itertools.islice(free, count))
            if len(chosen) == count:
                _remember(memory, chosen)
                return chosen
    raise BadSetting(f"no free port found between {usable[0]} and {usable[-1]}")


def _remember(memory: IO[str], chosen: Sequence[int]) -> None:
    if chosen:
        memory.truncate(0)
        memory.write(str(chosen[-1]))
        memory.flush()


def _longest_unused(last: int, usable: range) -> Sequence[int]:
    """A quarter of ``usable``, behind what the next nodes will get; all of it where it is not known
    what they got."""
    if last not in usable:
        return usable
    count = len(usable)
    first = usable.index(last) + count // 8
    return [usable[(first + step) % count] for step in range(count // 4)]


def _choose(node_ids: Iterable[int], memory: IO[str]) -> dict[int, NodePorts]:
    usable = random_range()
    plan: dict[int, NodePorts] = {node: {} for node in node_ids}
    wanted = [(ports, name) for ports in plan.values() for name in BASE_PORTS]
    chosen = list(itertools.islice(_free_behind(_last_chosen(memory), usable), len(wanted)))
    if len(chosen) < len(wanted):
        raise BadSetting(f"no free port found between {usable.start} and {usable.stop}")
    for (ports, name), port in zip(wanted, chosen, strict=True):
        ports[name] = port
    _remember(memory, chosen)
    return plan


def _last_chosen(memory: IO[str]) -> int:
    """-1 where none is known."""
    memory.seek(0)
    text = memory.read().strip()
    return int(text) if text.isdecimal() else -1


def _free_behind(last: int, usable: Sequence[int]) -> Iterator[int]:
    """The free ones of ``usable``, from the one behind ``last`` on and round; from any where it is
    not among them."""
    first = (
        usable.index(last) + 1 if last in usable else random.SystemRandom().randrange(len(usable))
    )
    for step in range(len(usable)):
        port = usable[(first + step) % len(usable)]
        if _bind_problem(port) is None:
            yield port


def random_range() -> range:
    """The ports to choose from, outside the range of outgoing connections where that leaves room:
    a port of a node that is down for a moment stays free, then."""
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
    except OSError:
        text = "32768 60999"
    first, last = map(int, text.split()[:2])
    return beside(first, last)


def beside(first: int, last: int) -> range:
    """As :func:`random_range`, where outgoing connections have the ports ``first`` to ``last``."""
    choices = (range(_LOWEST, first), range(last + 1, 65536), range(_LOWEST_AT_NEED, first))
    return next((each for each in choices if len(each) >= _ROOM), range(_LOWEST, 65536))
