"""Ctrl-C: what was stored is told, and an end without an end is no failure."""

from __future__ import annotations

import fcntl
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import IO

import pytest

from paceline_cluster.errors import Exit
from paceline_cluster.testing import BlockingPaceline

pytestmark = pytest.mark.paceline(nodes=1)
HANG_S = 120


def wait_until_read(producer: subprocess.Popen[bytes]) -> None:
    """Until what was written has been taken out of the pipe."""
    assert producer.stdin is not None
    while bytes_in(producer.stdin):
        time.sleep(0.02)


def bytes_in(pipe: IO[bytes]) -> int:
    count: int = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"    "))[0]
    return count


def started(*words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "paceline_cluster.cli.main", *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0)


def test_produce_tells_how_much_is_stored(paceline: BlockingPaceline, tmp_path: Path) -> None:
    """It said 'interrupted', and nobody knew where to go on."""
    paceline.create_topic("orders", partitions=1)
    [address] = paceline.addresses("native")
    acked = tmp_path / "acked"
    with started(
        "produce", "orders", "--bootstrap", address, "--acked-file", str(acked)
    ) as producer:
        assert producer.stdin is not None
        producer.stdin.write(b"a\nb\nc\n")
        paceline.wait_for_high_watermark("orders", offset=3)
        while acked.read_bytes().count(b"\n") < 3:
            time.sleep(0.02)  # the acknowledgement is on its way
        producer.send_signal(signal.SIGINT)
        _, said = producer.communicate(timeout=HANG_S)
    assert producer.returncode == Exit.INTERRUPTED
    assert said.splitlines()[-1] == b"paceline: interrupted: 3 records are stored"


def test_a_second_one_gives_up_what_no_node_acknowledges(paceline: BlockingPaceline) -> None:
    """Records are tried for two minutes."""
    paceline.create_topic("orders", partitions=1)
    [address] = paceline.addresses("native")
    with started("produce", "orders", "--bootstrap", address) as producer:
        assert producer.stdin is not None
        assert producer.stderr is not None
        producer.stdin.write(b"a\n")
        paceline.wait_for_high_watermark("orders", offset=1)
        paceline.kill(0)
        for line in (b"b\n", b"c\n"):  # when the second is read, the first was sent
            producer.stdin.write(line)
            wait_until_read(producer)
        producer.send_signal(signal.SIGINT)
        waiting = producer.stderr.readline()
        assert re.fullmatch(rb"waiting for (1 record|2 records); Ctrl-C again gives up\n", waiting)
        producer.send_signal(signal.SIGINT)
        _, said = producer.communicate(timeout=60)
    assert producer.returncode == Exit.INTERRUPTED
    last = said.splitlines()[-1]
    assert last.startswith(b"paceline: interrupted: 1 record is stored; ")
    told = re.findall(
        rb"; (\d) more (?:was|were) (?:sent and may be|given up and not) stored", last
    )
    assert sum(map(int, told)) in (1, 2)  # the node may have gone before either was sent


@pytest.mark.parametrize("group", [(), ("--group", "g")])
def test_consume_ends_alike_with_and_without_a_group(
    paceline: BlockingPaceline, group: tuple[str, ...]
) -> None:
    paceline.create_topic("orders", partitions=1)
    with paceline.connect() as client, client.producer() as producer:
        producer.send("orders", b"a")
    [address] = paceline.addresses("native")
    with started("consume", "orders", *group, "--bootstrap", address) as consumer:
        assert consumer.stdout is not None
        assert consumer.stdout.read(2) == b"a\n"
        consumer.send_signal(signal.SIGINT)
        _, said = consumer.communicate(timeout=HANG_S)
    assert consumer.returncode == Exit.OK, said
    assert b"interrupted" not in said


@pytest.mark.parametrize("group", [(), pytest.param(("--group", "g"), marks=pytest.mark.slow)])
def test_a_reader_that_has_seen_enough_is_no_failure(
    paceline: BlockingPaceline, group: tuple[str, ...]
) -> None:
    """As in 'paceline consume orders | head'."""
    paceline.create_topic("orders", partitions=1)
    with paceline.connect() as client, client.producer() as producer:
        producer.send("orders", b"a")
        [address] = paceline.addresses("native")
        with started("consume", "orders", *group, "--bootstrap", address) as consumer:
            assert consumer.stdout is not None
            assert consumer.stdout.read(2) == b"a\n"
            consumer.stdout.close()
            producer.send("orders", b"b")
            _, said = consumer.communicate(timeout=HANG_S)
    assert (consumer.returncode, b"rror" in said) == (Exit.OK, False), said


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("group", [(), ("--group", "g")])
def test_consume_ends_while_nobody_reads_what_it_writes(
    paceline: BlockingPaceline, group: tuple[str, ...], number: signal.Signals
) -> None:
    """It stood in a full pipe and heard no signal, as in 'paceline consume orders | less'."""
    paceline.create_topic("orders", partitions=1)
    lines = [b"%d" % each * 5000 for each in range(10)]
    with paceline.connect() as client, client.producer() as producer:
        producer.send_many("orders", lines)
    [address] = paceline.addresses("native")
    words = ("consume", "orders", *group, "--bootstrap", address)
    with started(*words) as consumer:
        assert consumer.stdout is not None
        assert consumer.stderr is not None
        room = fcntl.fcntl(consumer.stdout, fcntl.F_SETPIPE_SZ, 4096)
        while bytes_in(consumer.stdout) < room:
            time.sleep(0.02)
        consumer.send_signal(number)
        try:
            assert consumer.wait(timeout=30) == Exit.OK
        finally:
            consumer.kill()
        assert b"interrupted" not in consumer.stderr.read()
    if group:  # what nobody was shown whole is for whoever comes next
        with started(*words, "--count", "10") as consumer:
            shown, _ = consumer.communicate(timeout=HANG_S)
        assert shown.split() == lines
