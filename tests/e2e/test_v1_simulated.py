"""A lone broker process whose followers are played by clients (listeners/DESIGN 4.5, I5 and I6)."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import PACELINE, Cluster, wait_until
from tests.e2e.v1 import V1Client, V1Error, fields

TIMEOUT = "REPLICATION_TIMEOUT|acks=all timeout"
FAR = 1_000_000
REFUSED = "BAD_REQUEST|replica id not configured"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    made.up(
        *("--nodes", "1", "--set", "topics.replication_factor=3"),
        *("--set", "topics.min_insync_replicas=2", "--set", "topics.partitions=1"),
        *("--set", "v1.ack_timeout_ms=1000"),
    )
    yield made
    made.purge()


def outcome(client: V1Client, command: str, arguments: str) -> str:
    """The payload of a reply, or the error that it is."""
    try:
        return client.call(command, arguments)
    except V1Error as error:
        return str(error)


def offset_of(payload: str) -> int:
    return int(fields(payload)["offset"])


class Follower(threading.Thread):
    """Acknowledges slot 1 again and again, on a connection of its own."""

    def __init__(self, address: tuple[str, int], offset: int) -> None:
        super().__init__()
        self._address = address
        self._offset = offset
        self.stop = threading.Event()
        self.replies: list[str] = []

    def run(self) -> None:
        with V1Client(self._address) as client:
            while not self.stop.wait(0.02):
                self.replies.append(outcome(client, "REPLICA_FETCH", f"orders 0 1 {self._offset}"))

    def begin(self) -> None:
        """Start, and wait for the first reply: a write waits for a second only."""
        self.start()
        wait_until("the follower is answered", lambda: bool(self.replies))

    def end(self) -> None:
        self.stop.set()
        self.join()


def test_i5_and_i6(cluster: Cluster, tmp_path: Path) -> None:
    address = cluster.address(0, "v1")
    with V1Client(address) as client:
        # I5: only what another connection acknowledges while the write waits makes it an OK.
        assert outcome(client, "PRODUCE", "orders k:a acks=all") == TIMEOUT
        second = client.call("PRODUCE", "orders k:b")
        assert offset_of(second) == 1
        told = client.call("REPLICA_FETCH", "orders 0 1 1")
        assert told.startswith("replica=1 acked_offset=1 hw=1 "), told
        follower = Follower(address, 2)
        follower.begin()
        answer = outcome(client, "PRODUCE", "orders k:c acks=all")
        follower.end()
        assert offset_of(answer) == 2, answer
        assert any(reply.startswith("replica=1 acked_offset=2 ") for reply in follower.replies)
        assert outcome(client, "PRODUCE", "orders k:d acks=all") == TIMEOUT

        # I6: a second node ends the simulation, also under a write that waits.
        joiner = _join(cluster, tmp_path / "joiner")
        try:
            wait_until("the simulation ends", lambda: _is_over(client))
            follower = Follower(address, FAR)
            follower.begin()
            answer = outcome(client, "PRODUCE", "orders k:e acks=all")
            follower.end()
            assert answer == TIMEOUT
            assert set(follower.replies) == {REFUSED}
        finally:
            joiner.send_signal(signal.SIGTERM)
            joiner.wait(60)


def _is_over(client: V1Client) -> bool:
    """Whether slots are no client's to acknowledge any more. A write waits before each look."""
    answer = outcome(client, "PRODUCE", "orders k:x acks=all")
    assert answer == TIMEOUT, "nobody acknowledged it"
    return outcome(client, "REPLICA_FETCH", "orders 0 1 0") == REFUSED


def _join(cluster: Cluster, folder: Path) -> subprocess.Popen[bytes]:
    """A second broker process, which joins the first."""
    peer = ":".join(map(str, cluster.address(0, "peer")))
    folder.mkdir()
    config = folder / "node.toml"
    config.write_text(
        'listeners = ["native://127.0.0.1:0", "peer://127.0.0.1:0"]\n'
        f'[node]\nid = 1\ndata_dir = "{folder}"\n'
        f'[cluster]\nbootstrap = ["0@{peer}"]\ntiming = "local"\n'
        f'secret_file = "{cluster.dir / "cluster.secret"}"\n'
    )
    with (folder / "node.log").open("ab") as log:
        return subprocess.Popen(
            [*PACELINE, "node", "run", "--config", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=cluster.env,
        )
