"""Consumer groups of real processes: two terminals sharing a topic, and a group that loses its
coordinator, a leader, and for a while a member.

``scripts/show-groups`` runs the second and prints how long processing paused after each kill; the
test itself asserts only that it went on.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paceline.client import blocking
from tests.e2e.cluster import Cluster, wait_until
from tests.e2e.members import Member, OffsetWatch, union

LINES = int(os.environ.get("PACELINE_GROUPS_LINES", "60000"))
REPORT = os.environ.get("PACELINE_GROUPS_REPORT")
"""File that gets one JSON line (T5)."""

PARTITIONS = 12
KEYS = 997
CHUNK = 1000
SLOW_FROM = 0.4
SLOW_CHUNK = 12
SLOW_S = 0.05
GONE_S = 60.0
"""A bound for what takes a second or two (T1)."""


def write_lines(path: Path, start: int, count: int) -> set[str]:
    values = [str(number) for number in range(start, start + count)]
    path.write_text("".join(f"k{int(value) % KEYS}:{value}\n" for value in values))
    return set(values)


def test_two_terminals(shared_cluster: Cluster, tmp_path: Path) -> None:
    cluster, lines = shared_cluster, tmp_path / "lines"
    cluster.run("topic", "create", "orders", "--partitions", "4")
    terminals = [
        Member(cluster, "orders", "g", tmp_path / f"terminal-{number}") for number in range(2)
    ]
    try:
        wait_until("two members that share", lambda: shares(cluster, "g") == [2, 2])
        expected = write_lines(lines, 0, 2000)
        cluster.run("produce", "orders", "--key-delimiter", ":", str(lines))
        wait_until("all read by either", lambda: set(union(terminals).values()) == expected)
        assert all(terminal.seen for terminal in terminals)
        assert terminals[0].stop() == 0
        wait_until("the other takes over", lambda: shares(cluster, "g") == [4])
        expected |= write_lines(lines, 2000, 2000)
        cluster.run("produce", "orders", "--key-delimiter", ":", str(lines))
        wait_until("all read", lambda: set(union(terminals).values()) == expected)
        # Nothing twice: what the first had printed was committed before it left.
        assert not terminals[0].seen.keys() & terminals[1].seen.keys()
        assert "reads orders/0, orders/1, orders/2, orders/3" in terminals[1].errors.read_text()
        refused = cluster.run(
            "group", "offsets", "reset", "g", "--to-earliest", "--execute", exit_code=None
        )
        assert b"member" in refused.stderr.lower()
        assert terminals[1].stop() == 0
    finally:
        for terminal in terminals:
            terminal.kill()
    wait_until("all have left", lambda: _is_empty(cluster, "g"))
    described = cluster.json("group", "describe", "g")
    assert [each["lag"] for each in described["partitions"]] == [0] * 4
    reset_by_hand(cluster, tmp_path)


def shares(cluster: Cluster, group: str) -> list[int]:
    """How many partitions each member has, while the group is stable."""
    result = cluster.run("group", "describe", group, "--output", "json", exit_code=None)
    if result.returncode:
        return []
    described = json.loads(result.stdout)
    if described["state"] != "Stable":
        return []
    return sorted(member["partitions"] for member in described["members"])


def _is_empty(cluster: Cluster, group: str) -> bool:
    described = cluster.json("group", "describe", group)
    return (described["state"], described["members"]) == ("Empty", [])


def reset_by_hand(cluster: Cluster, folder: Path) -> None:
    """Dry run, then the same for real; what one group has exported, another one begins with."""
    exported = folder / "offsets.json"
    before = cluster.json("group", "offsets", "export", "g")
    exported.write_text(json.dumps(before))
    planned = cluster.json("group", "offsets", "reset", "g", "--shift-by", "-5")
    assert not planned["executed"]
    assert all(each["after"] == each["before"] - 5 for each in planned["offsets"])
    assert cluster.json("group", "offsets", "export", "g") == before
    cluster.run("group", "offsets", "reset", "g", "--shift-by", "-5", "--execute")
    lags = [each["lag"] for each in cluster.json("group", "describe", "g")["partitions"]]
    assert lags == [5] * 4
    cluster.run("group", "offsets", "reset", "h", "--from-file", str(exported), "--execute")
    assert (
        cluster.run("consume", "orders", "--group", "g", "--count", "20").stdout.count(b"\n") == 20
    )
    listed = {each["group"]: each for each in cluster.json("group", "list")["groups"]}
    assert (listed["g"]["family"], listed["h"]["state"]) == ("kafka", "Empty")
    cluster.run("group", "delete", "h", exit_code=64)
    cluster.run("group", "delete", "h", "--yes")
    cluster.run("group", "describe", "h", exit_code=65)
    cluster.run("group", "offsets", "reset", "g", exit_code=64)


# --- kills ---------------------------------------------------------------------------------------


class Source(threading.Thread):
    """Feeds a producer numbered lines: as fast as it takes them, but from some line on only a few
    at a time, and no end, until :attr:`hurry` is set, so that the faults fall into the writing
    however long they take. ``fed`` is the next number, in the end how many there were."""

    def __init__(self, producer: subprocess.Popen[bytes], lines: int) -> None:
        super().__init__()
        self._producer = producer
        self._lines = lines
        self.hurry = threading.Event()
        self.fed = 0

    def run(self) -> None:
        stdin = self._producer.stdin
        assert stdin is not None
        try:
            with stdin:
                while self.fed < self._lines or not self.hurry.is_set():
                    slow = self.fed >= self._lines * SLOW_FROM and not self.hurry.wait(SLOW_S)
                    end = self.fed + (SLOW_CHUNK if slow else CHUNK)
                    numbers = range(self.fed, end)
                    stdin.write("".join(f"k{n % KEYS}:{n}\n" for n in numbers).encode())
                    stdin.flush()
                    self.fed = end
        except BrokenPipeError:
            return  # the producer gave up; its exit code is judged elsewhere


@contextmanager
def producing(cluster: Cluster, topic: str, errors: Path, lines: int = LINES) -> Iterator[Source]:
    producer = cluster.start(
        "produce", topic, "--acks", "all", "--key-delimiter", ":", stderr=errors
    )
    source = Source(producer, lines)
    source.start()
    try:
        yield source
        source.hurry.set()
        source.join(300)
        cluster.wait(producer, stderr=errors, timeout_s=300)
    finally:
        producer.kill()
        producer.wait()


def continue_everywhere(source: Source, members: list[Member]) -> float:
    """Wait until of every partition something is processed that was written after now; seconds."""
    mark, begin = source.fed, time.monotonic()

    def went_on() -> bool:
        fresh = {place[0] for place, value in union(members).items() if int(value) >= mark}
        return len(fresh) == PARTITIONS

    wait_until("processing goes on in every partition", went_on, timeout_s=GONE_S)
    return round(time.monotonic() - begin, 2)


def test_a_group_survives_its_coordinator_a_leader_and_a_suspended_member(
    shared_cluster: Cluster, tmp_path: Path
) -> None:
    cluster, topic, group = shared_cluster, "stream", "proof"
    cluster.run("topic", "create", topic, "--partitions", str(PARTITIONS))
    bootstrap = [":".join(map(str, cluster.address(node, "native"))) for node in range(3)]
    members = [
        Member(cluster, topic, group, tmp_path / f"m{number}", "--session-timeout", "2")
        for number in range(4)
    ]
    pauses: dict[str, float] = {}
    try:
        wait_until("four members", lambda: shares(cluster, group) == [3, 3, 3, 3])
        with (
            OffsetWatch(bootstrap, group) as watch,
            producing(cluster, topic, tmp_path / "producer.errors") as source,
        ):
            wait_until("reading has begun", lambda: len(union(members)) > LINES // 20)
            with blocking.connect(bootstrap) as client:
                coordinator = client.admin.groups.coordinator(group)
            cluster.run("node", "kill", str(coordinator))
            pauses["coordinator killed"] = continue_everywhere(source, members)
            cluster.run("node", "restart", str(coordinator))
            wait_until("all replicas in sync", lambda: in_sync(cluster))

            members[0].suspend()
            wait_until("three take over", lambda: shares(cluster, group) == [4, 4, 4])
            pauses["member suspended"] = continue_everywhere(source, members[1:])
            members[0].resume()
            wait_until("it is back", lambda: shares(cluster, group) == [3, 3, 3, 3])

            killed = cluster.json("node", "kill", f"leader-of:{topic}/0")["node"]
            pauses["leader killed"] = continue_everywhere(source, members)
            cluster.run("node", "restart", str(killed))
        wait_until("every record is processed", lambda: len(union(members)) >= source.fed)
        assert [member.stop() for member in members] == [0] * 4
    finally:
        for member in members:
            member.kill()
    together = union(members)
    assert sorted(map(int, together.values())) == list(range(source.fed))
    for partition in range(PARTITIONS):
        offsets = sorted(offset for number, offset in together if number == partition)
        assert offsets == list(range(len(offsets))), f"partition {partition} has gaps"
    assert watch.looks > 10
    assert watch.falls == []
    described = cluster.json("group", "describe", group)
    assert [each["lag"] for each in described["partitions"]] == [0] * PARTITIONS
    report(members, source.fed, pauses, watch.looks)


def in_sync(cluster: Cluster) -> bool:
    status = cluster.json("status")
    return bool(status["under_replicated_partitions"] == status["leaderless_partitions"] == 0)


def report(members: list[Member], records: int, pauses: dict[str, float], looks: int) -> None:
    processed = sum(len(member.seen) + member.repeated for member in members)
    facts = {
        "records": records,
        "processed": processed,
        "more_than_once": processed - records,
        "pauses_s": pauses,
        "offsets_looked_at": looks,
    }
    print(json.dumps(facts))
    if REPORT:
        with Path(REPORT).open("a", encoding="utf-8") as file:
            file.write(json.dumps(facts) + "\n")
