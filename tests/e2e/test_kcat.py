"""kcat as Debian ships it: librdkafka of some years ago, on the command line."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from tests.e2e.cluster import HANG_S, Cluster, wait_until
from tests.e2e.test_kafka_clients import CODECS, bootstrap, make_topic

pytestmark = pytest.mark.skipif(
    shutil.which("kcat") is None, reason="kcat is not installed (Debian: apt-get install kcat)"
)
PER_CODEC = 200


def kcat(cluster: Cluster, *words: str, stdin: bytes = b"") -> bytes:
    done = subprocess.run(
        ["kcat", "-b", bootstrap(cluster), *words],
        input=stdin,
        capture_output=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def line(codec: str, number: int) -> bytes:
    return b"%s-%03d %s" % (codec.encode(), number, b"x" * 100)


def test_kcat(shared_cluster: Cluster) -> None:
    make_topic(shared_cluster, "kc", partitions=3)
    for codec in CODECS:
        lines = b"\n".join(line(codec, number) for number in range(PER_CODEC))
        kcat(shared_cluster, "-P", "-t", "kc", "-z", codec, "-X", "acks=all", stdin=lines)
    written = sorted(line(codec, number) for codec in CODECS for number in range(PER_CODEC))
    read = kcat(shared_cluster, "-C", "-t", "kc", "-e", "-q", "-o", "beginning")
    assert sorted(read.splitlines()) == written
    sizes = stored_bytes(shared_cluster)
    assert sizes < 0.6 * sum(map(len, written)), "kcat was let to compress"

    def all_in_sync() -> bool:
        told = json.loads(kcat(shared_cluster, "-L", "-J", "-t", "kc"))
        [topic] = told["topics"]
        assert sorted(part["partition"] for part in topic["partitions"]) == [0, 1, 2]
        nodes = [broker["id"] for broker in told["brokers"]]
        return nodes == [0, 1, 2] and all(len(part["isrs"]) == 3 for part in topic["partitions"])

    wait_until("three nodes and all in sync", all_in_sync)

    # Groups of kcat: -G is the balanced consumer.
    words = ("-G", "kcat-group", "-e", "-q", "-X", "auto.offset.reset=earliest", "kc")
    assert sorted(kcat(shared_cluster, *words).splitlines()) == written
    assert kcat(shared_cluster, *words) == b"", "it had committed what it read"


def stored_bytes(cluster: Cluster) -> int:
    folders = [cluster.partition_dir(0, "kc", number) for number in range(3)]
    return sum(path.stat().st_size for folder in folders for path in folder.glob("*.log"))


def test_offsets_by_time(shared_cluster: Cluster) -> None:
    make_topic(shared_cluster, "kt", partitions=1)
    kcat(shared_cluster, "-P", "-t", "kt", stdin=b"a\nb\nc")
    [first, *_] = kcat(
        shared_cluster, "-C", "-t", "kt", "-e", "-q", "-o", "beginning", "-f", "%T\n"
    ).split()
    found = kcat(shared_cluster, "-Q", "-t", f"kt:0:{int(first)}")
    assert found.split() == [b"kt", b"[0]", b"offset", b"0"]
    later = int(first) + 3_600_000
    assert kcat(shared_cluster, "-Q", "-t", f"kt:0:{later}").split()[-1] in (b"-1", b"3")
    since = kcat(shared_cluster, "-C", "-t", "kt", "-e", "-q", "-o", f"s@{int(first)}")
    assert since == b"a\nb\nc\n"
