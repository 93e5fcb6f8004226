"""Raw V1 sockets, ``acks=all enc=pct``, leaders killed meanwhile: nothing acknowledged is missing.

Writers repeat what was not answered, so a record may be there twice, but only one whose first
writing got no OK.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import pytest

from tests.e2e.cluster import Cluster, wait_until
from tests.e2e.v1 import V1Client, V1Error

TOPIC = "orders"
WRITERS = 4
RETRIABLE = {"REPLICATION_TIMEOUT", "NOT_LEADER", "UNAVAILABLE"}
KILLS = 2
RECORDS_BETWEEN = 150


@dataclass
class Writer:
    """One keyed counter: writes 0, 1, 2 ... and goes on to the next node when one fails."""

    name: str
    addresses: list[tuple[str, int]]
    stop: threading.Event
    acked: dict[int, tuple[int, int]] = field(default_factory=dict)
    repeated: set[int] = field(default_factory=set)
    client: V1Client | None = None
    turns: int = 0

    def run(self) -> None:
        counter = 0
        while not self.stop.is_set():
            self._write(counter)
            counter += 1
        if self.client is not None:
            self.client.close()

    def _write(self, counter: int) -> None:
        value = f"{self.name}, {counter}|hw={counter}".encode()
        while True:
            try:
                if self.client is None:
                    self.client = V1Client(self.addresses[self.turns % len(self.addresses)])
                self.acked[counter] = self.client.produce(TOPIC, self.name.encode(), value)
                return
            except V1Error as error:
                if error.code not in RETRIABLE:
                    raise
            except OSError:
                self._drop()
            self.turns += 1
            self.repeated.add(counter)

    def _drop(self) -> None:
        if self.client is not None:
            self.client.close()
        self.client = None


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_acknowledged_records_survive_kills(shared_cluster: Cluster) -> None:
    cluster = shared_cluster
    rng = random.Random(7)
    cluster.run("topic", "create", TOPIC, "--partitions", "3")
    addresses = [cluster.address(node, "v1") for node in range(3)]
    stop = threading.Event()
    writers = [Writer(f"w{number}", addresses, stop) for number in range(WRITERS)]
    threads = [threading.Thread(target=writer.run) for writer in writers]
    for thread in threads:
        thread.start()
    epochs_before = {p["partition"]: p["leader_epoch"] for p in cluster.describe(TOPIC)}
    led_by_victims: set[int] = set()
    acked_at_kills = []
    try:
        for _ in range(KILLS):
            _more(writers)
            partition = rng.randrange(3)
            victim = cluster.json("node", "kill", f"leader-of:{TOPIC}/{partition}")["node"]
            led_by_victims.add(partition)
            acked_at_kills.append(_total(writers))
            _more(writers)
            time.sleep(rng.uniform(0, 1))  # how long the victim stays away is part of the fault
            cluster.run("node", "restart", str(victim))
        _more(writers)
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    cluster.run("health", "--exit-when-healthy")
    assert acked_at_kills[0] > 0
    assert _total(writers) > acked_at_kills[-1]
    epochs = {p["partition"]: p["leader_epoch"] for p in cluster.describe(TOPIC)}
    assert all(epochs[partition] > epochs_before[partition] for partition in led_by_victims)
    _require_complete(cluster, writers)


def _total(writers: list[Writer]) -> int:
    return sum(len(writer.acked) for writer in writers)


def _more(writers: list[Writer]) -> None:
    """Wait until each writer has got further acknowledgements."""
    wanted = {writer.name: len(writer.acked) + RECORDS_BETWEEN // WRITERS for writer in writers}
    wait_until("acknowledgements", lambda: all(len(w.acked) >= wanted[w.name] for w in writers))


def _require_complete(cluster: Cluster, writers: list[Writer]) -> None:
    """Every acknowledged record is where its acknowledgement said, and in order per key."""
    with V1Client(cluster.address(0, "v1")) as client:
        stored = {partition: client.consume_all(TOPIC, partition) for partition in range(3)}
    places = {
        (partition, offset): (key, value)
        for partition, records in stored.items()
        for offset, key, value in records
    }
    times = Counter(value for records in stored.values() for _, _, value in records)
    for writer in writers:
        for counter, place in writer.acked.items():
            value = f"{writer.name}, {counter}|hw={counter}".encode()
            assert places.get(place) == (writer.name.encode(), value), (place, counter)
            assert times[value] == 1 or counter in writer.repeated, (value, times[value])
        offsets = [writer.acked[counter][1] for counter in sorted(writer.acked)]
        assert offsets == sorted(offsets), f"{writer.name} out of order"
