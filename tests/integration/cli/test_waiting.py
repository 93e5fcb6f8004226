"""``consume`` that is to end, of partitions that have no leader: it waits, and says for what."""

from __future__ import annotations

import contextlib
import re

import pytest

from paceline.types import NodeId
from paceline_cluster.errors import Exit
from paceline_cluster.testing import BlockingPaceline
from tests.integration.cli.test_interrupting import HANG_S, started

WAITS = r"waiting for (.*orders/1 \(|a leader that does not answer, of orders|the cluster \()"
"""On a busy machine others may be slow to answer, too."""
pytestmark = pytest.mark.paceline(nodes=3)


@pytest.mark.timeout(HANG_S)
def test_who_waits_for_a_leader_is_told_so_and_when_it_goes_on(paceline: BlockingPaceline) -> None:
    """It was silent for as long as the leader was away."""
    with paceline.connect() as client:
        client.admin.create_topic("orders", assignment=[[NodeId(0)], [NodeId(2)]])
        with client.producer() as producer:
            for number in range(4):
                producer.send("orders", b"%d" % number, partition=number % 2)
    paceline.kill(2)
    address = paceline.addresses("native")[0]
    words = ("--exit-at-end", "--bootstrap", address)
    # One that waits in silence is ended before it is waited for.
    with started("consume", "orders", *words) as consumer, contextlib.ExitStack() as stack:
        stack.callback(consumer.kill)
        assert consumer.stderr is not None
        told = consumer.stderr.readline().decode()
        assert re.match(WAITS, told), told
        assert told.endswith("; 'paceline health' says what is wrong\n")
        assert consumer.poll() is None
        paceline.restart(2)
        out, rest = consumer.communicate(timeout=HANG_S)
    assert consumer.returncode == Exit.OK
    *more, last = rest.decode().splitlines()
    assert last == "reading goes on"
    assert all(each == last or re.match(WAITS, each) for each in more), more
    assert sorted(out.split()) == [b"0", b"1", b"2", b"3"]


@pytest.mark.paceline(nodes=1)
def test_a_topic_that_is_not_there_is_not_waited_for(paceline: BlockingPaceline) -> None:
    """It is looked for longer than a second, as one that may just have been made."""
    address = paceline.addresses("native")[0]
    with started("consume", "nothing", "--exit-at-end", "--bootstrap", address) as consumer:
        out, said = consumer.communicate(timeout=HANG_S)
    assert (consumer.returncode, out) == (Exit.DATA, b"")
    waited, wrong, _ = said.partition(b"paceline: nothing: no such topic\n")
    assert wrong
    assert b"no such topic" not in waited


def test_a_partition_that_is_not_read_is_not_waited_for(paceline: BlockingPaceline) -> None:
    with paceline.connect() as client:
        client.admin.create_topic("orders", assignment=[[NodeId(0)], [NodeId(2)]])
        with client.producer() as producer:
            producer.send("orders", b"a", partition=0)
    paceline.kill(2)
    address = paceline.addresses("native")[0]
    words = ("--exit-at-end", "--partition", "0", "--bootstrap", address)
    with started("consume", "orders", *words) as consumer:
        out, said = consumer.communicate(timeout=HANG_S)
    assert out == b"a\n"
    assert b"orders/1" not in said
