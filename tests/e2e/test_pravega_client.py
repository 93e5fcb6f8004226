"""The published Pravega client, unmodified, on real processes (wire/segment/DESIGN 6).

It writes Events and bytes and reads them with a reader group of two, while the node is killed that
leads a segment it writes to and the table that its readers agree by. ``PACELINE_PRAVEGA_EVENTS``
(default 10000) sizes it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import Cluster, wait_until

EVENTS = int(os.environ.get("PACELINE_PRAVEGA_EVENTS", "10000"))
APP = Path(__file__).parent / "pravega_app.py"
HANG_S = 120

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("pravega_client") is None,
    reason="the pravega client has no wheel for this machine (CPython 3.10 or 3.11, glibc 2.35)",
)


class App:
    """A running application: ``said`` is what it has printed so far."""

    def __init__(self, process: subprocess.Popen[bytes], errors: Path) -> None:
        self.process = process
        self.errors = errors
        self.said: list[dict[str, Any]] = []
        self._listening = threading.Thread(target=self._listen)
        self._listening.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(json.loads(line))

    def tell(self) -> None:
        """Close its standard input, which both ``write`` and ``read`` wait for."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def require_alive(self) -> None:
        assert self.process.poll() in (None, 0), self.errors.read_text(errors="replace")[-4000:]

    def end(self) -> list[dict[str, Any]]:
        """All that it said, once it has ended well."""
        code = self.process.wait(HANG_S)
        self._listening.join()
        assert code == 0, self.errors.read_text(errors="replace")[-4000:]
        return self.said

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._listening.join()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


@contextmanager
def app(cluster: Cluster, what: str, node: int, *words: str) -> Iterator[App]:
    """The application, with ``node`` as its controller."""
    host, port = cluster.address(node, "pravega")
    errors = cluster.base / f"{'-'.join((what, *words))}.err"
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            # Where the client's native code dies, a trace says in what call.
            [sys.executable, "-X", "faulthandler", str(APP), what, f"{host}:{port}", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
    running = App(process, errors)
    try:
        yield running
    finally:
        running.close()


def test_the_client_writes_and_reads_while_a_leader_is_killed(cluster: Cluster) -> None:
    with app(cluster, "make", 0) as making:
        [made] = making.end()
    # True, or False for what was there already.
    assert made["made"] == [True, False, True, True, False]
    assert (made["scopes"], made["streams"]) == (["shop"], ["film", "orders"])
    assert (made["same"], made["tail"]) == (True, 3_000_000)

    before = {each["partition"]: each for each in cluster.describe("shop_orders")}
    [tables] = cluster.describe("__tables")
    victim = tables["leader"]
    led = [number for number, each in before.items() if each["leader"] == victim]
    assert led, f"node {victim} leads no segment: {before}"
    read = _flow(cluster, victim)

    # Each Event once; of each key in order, as its segment has one reader at a time.
    events = [f"k{number % 20}:{number}" for number in range(EVENTS)]
    assert sorted(read["a"] + read["b"]) == sorted([*events, "big"])
    for name, found in read.items():
        assert found, f"reader {name} read nothing"
        for key in {event.partition(":")[0] for event in found}:
            numbers = [int(each.partition(":")[2]) for each in found if each.startswith(f"{key}:")]
            assert numbers == sorted(numbers), (name, key)
    # The kill fell into the writing, of a segment's leader (T3).
    after = {each["partition"]: each for each in cluster.describe("shop_orders")}
    for number in led:
        assert after[number]["leader_epoch"] > before[number]["leader_epoch"]

    cluster.run("node", "restart", str(victim))
    with app(cluster, "end", victim) as ending:
        assert ending.end() == [{"unsealed": True, "full": True, "done": [True] * 5, "left": []}]


def _flow(cluster: Cluster, victim: int) -> dict[str, list[str]]:
    """Write and read, with the kill in between; what each reader read."""
    controller = (victim + 1) % 3
    with ExitStack() as stack:
        readers = {
            name: stack.enter_context(app(cluster, "read", controller, name)) for name in "ab"
        }
        writer = stack.enter_context(app(cluster, "write", controller, str(EVENTS)))

        def is_so(fact: bool) -> bool:
            for each in (writer, *readers.values()):
                each.require_alive()
            return fact

        def count() -> int:
            return sum(len(said["events"]) for each in readers.values() for said in each.said)

        wait_until("both readers read", lambda: is_so(all(r.said for r in readers.values())))
        writer.tell()
        wait_until("more is under way", lambda: is_so(len(writer.said) > 0))
        os.kill(cluster.node(victim)["pid"], signal.SIGKILL)
        assert [said["stored"] for said in writer.end()][-1] == EVENTS + 1
        assert writer.said[0]["stored"] < EVENTS // 2
        wait_until("all is read", lambda: is_so(count() >= EVENTS + 1))
        for reader in readers.values():
            reader.tell()
        return {
            name: [event for said in reader.end() for event in said["events"]]
            for name, reader in readers.items()
        }
