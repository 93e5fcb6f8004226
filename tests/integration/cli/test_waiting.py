"""``consume`` that is to end, of partitions that have no leader: it waits, and says for what."""

from __future__ import annotations

import contextlib

import pytest

from paceline.types import NodeId
from paceline_cluster.errors import Exit
from paceline_cluster.testing import BlockingPaceline
from tests.integration.cli.test_interrupting import HANG_S, started

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
        assert told.startswith("waiting for orders/1 ("), told
        assert told.endswith("); 'paceline health' says what is wrong\n")
        assert consumer.poll() is None
        paceline.restart(2)
        out, rest = consumer.communicate(timeout=HANG_S)
    assert consumer.returncode == Exit.OK
    assert rest == b"reading goes on\n"
    assert sorted(out.split()) == [b"0", b"1", b"2", b"3"]


def test_a_partition_that_is_not_read_is_not_waited_for(paceline: BlockingPaceline) -> None:
    with paceline.connect() as client:
        client.admin.create_topic("orders", assignment=[[NodeId(0)], [NodeId(2)]])
        with client.producer() as producer:
            producer.send("orders", b"a", partition=0)
    paceline.kill(2)
    address = paceline.addresses("native")[0]
    words = ("--exit-at-end", "--partition", "0", "--bootstrap", address)
    with started("consume", "orders", *words) as consumer:
        assert consumer.communicate(timeout=HANG_S) == (b"a\n", b"")
