"""A machine beside its log: it follows, loads, leads, and never says too much."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from paceline.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
    PacelineError,
)
from paceline_node.state_machines.machine import EVERYTHING, Deferred, Entry, Journal
from paceline_node.state_machines.replica import MachineReplica, Phase
from tests.sim.groups.replicated_log import ReplicatedLog
from tests.sim.groups.world import Clock


class Register:
    """A machine that remembers the last value of each key."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.journal: Journal | None = None
        self.resigned: list[PacelineError] = []
        self.began_empty: bool | None = None
        self.alarm = float("inf")
        self.rung = 0

    def apply(self, entry: Entry) -> None:
        if entry.value is None:
            self.values.pop(entry.key, None)
        else:
            self.values[entry.key] = entry.value

    def reset(self) -> None:
        self.values.clear()

    def lead(self, journal: Journal, *, log_is_empty: bool) -> None:
        self.journal, self.began_empty = journal, log_is_empty

    def resign(self, error: PacelineError) -> None:
        self.journal = None
        self.resigned.append(error)

    def next_alarm(self) -> float:
        return self.alarm

    def on_alarm(self) -> None:
        self.rung += 1
        self.alarm += 10.0

    def put(self, key: bytes, value: bytes | None) -> None:
        assert self.journal is not None
        self.journal.write(key, [Entry(key, value)])


class Three:
    """Three replicas; node 0 leads and is loaded."""

    def __init__(self) -> None:
        self.cluster = ReplicatedLog(3)
        self.machines = [Register() for _ in self.cluster.nodes]
        self.replicas = [
            MachineReplica(f"n{log.number}", log, machine, Clock())
            for log, machine in zip(self.cluster.nodes, self.machines, strict=True)
        ]
        for replica in self.replicas:
            replica.role_changed()
        self.fold()

    def fold(self) -> None:
        for replica in self.replicas:
            while replica.step():
                pass

    def copy(self, *numbers: int) -> None:
        for number in numbers:
            self.cluster.replicate(number)

    def commit(self) -> None:
        """Everything reaches everybody, and they know."""
        for _ in range(20):
            self.copy(0, 1, 2)
        self.fold()

    def elect(self, number: int) -> None:
        for each in self.cluster.elect(number):
            self.replicas[each].role_changed()


def noting(notes: list[str]) -> Callable[[], None]:
    return lambda: notes.append("called")


def test_followers_fold_what_is_committed_and_no_more() -> None:
    three = Three()
    three.machines[0].put(b"k", b"1")
    three.copy(1)
    three.fold()
    assert [machine.values for machine in three.machines] == [{b"k": b"1"}, {}, {}]
    three.commit()
    assert [machine.values for machine in three.machines] == [{b"k": b"1"}] * 3
    three.machines[0].put(b"k", None)
    three.commit()
    assert [machine.values for machine in three.machines] == [{}] * 3


def test_a_new_leader_waits_until_its_whole_log_is_committed() -> None:
    three = Three()
    three.machines[0].put(b"k", b"1")
    three.copy(1)
    three.elect(1)
    three.fold()
    heir = three.replicas[1]
    assert heir.phase is Phase.LOADING
    assert three.machines[1].values == {b"k": b"1"}
    with pytest.raises(CoordinatorLoadInProgress):
        heir.check_leading()
    notes: list[str] = []
    heir.watch(noting(notes))
    three.commit()
    assert notes == ["called"]
    assert heir.phase is Phase.LEADING
    heir.check_leading()
    assert three.machines[1].began_empty is False


def test_an_empty_log_is_led_at_once() -> None:
    three = Three()
    assert three.replicas[0].phase is Phase.LEADING
    assert three.machines[0].began_empty is True


def test_what_was_never_committed_is_forgotten() -> None:
    three = Three()
    three.machines[0].put(b"k", b"1")
    three.commit()
    three.machines[0].put(b"k", b"2")
    three.machines[0].put(b"l", b"3")
    three.elect(2)
    assert isinstance(three.machines[0].resigned[0], NotCoordinator)
    three.commit()
    assert [machine.values for machine in three.machines] == [{b"k": b"1"}] * 3
    assert three.replicas[0].applied == 1


def test_a_log_that_began_anew_is_folded_anew() -> None:
    """It has the same offsets and epochs, and lacks the tombstone of what was folded."""
    three = Three()
    three.machines[0].put(b"gone", b"old")
    three.machines[0].put(b"k", b"1")
    three.commit()
    three.cluster.cut_off(2)
    three.cluster.shrink(2)
    three.machines[0].put(b"gone", None)
    three.machines[0].put(b"k", b"2")
    three.commit()
    three.cluster.nodes[0].compact()
    three.cluster.reconnect(2)
    three.commit()
    assert [machine.values for machine in three.machines] == [{b"k": b"2"}] * 3
    three.elect(2)
    three.commit()
    assert three.replicas[2].phase is Phase.LEADING
    assert three.machines[2].values == {b"k": b"2"}


def test_a_deposed_leader_stops_without_being_told() -> None:
    three = Three()
    log = three.cluster.nodes[0]
    three.cluster.cut_off(0)
    three.elect(1)
    log.session_valid = False
    with pytest.raises(CoordinatorNotAvailable):
        three.replicas[0].check_leading()
    with pytest.raises(CoordinatorNotAvailable):
        three.machines[0].put(b"k", b"1")
    assert three.machines[0].values == {}


def test_a_write_that_is_refused_changes_nothing() -> None:
    three = Three()
    three.cluster.shrink(1)
    three.cluster.shrink(2)
    with pytest.raises(CoordinatorNotAvailable):
        three.machines[0].put(b"k", b"1")
    assert three.machines[0].values == {}
    assert three.replicas[0].write_count == 0


def test_answers_wait_for_the_last_write_of_their_scope_alone() -> None:
    three = Three()
    replica = three.replicas[0]
    three.machines[0].put(b"a", b"1")
    three.machines[0].put(b"b", b"1")
    assert (replica.uncommitted(b"a"), replica.uncommitted(b"b")) == (0, 1)
    assert replica.uncommitted(b"c") is None
    assert replica.uncommitted(EVERYTHING) == 1
    epoch = replica.led_epoch
    assert not replica.is_committed(0, epoch)
    three.commit()
    assert replica.uncommitted(b"a") is None
    assert replica.uncommitted(EVERYTHING) is None
    assert replica.is_committed(1, epoch)
    assert not replica.is_committed(1, epoch + 1)


def test_what_was_written_in_an_ended_leadership_is_not_told_in_the_next() -> None:
    three = Three()
    replica = three.replicas[0]
    three.machines[0].put(b"a", b"1")
    epoch = replica.led_epoch
    three.elect(1)
    three.commit()
    three.elect(0)
    three.commit()
    assert replica.phase is Phase.LEADING
    assert not replica.is_committed(0, epoch)


def test_a_replica_that_is_given_up_tells_its_machine() -> None:
    three = Three()
    three.replicas[0].close()
    assert isinstance(three.machines[0].resigned[0], NotCoordinator)
    three.replicas[1].close()
    assert not three.machines[1].resigned, "a follower had nobody to tell"


def test_a_deferred_answer_comes_once_before_or_after_it_is_asked_for() -> None:
    early: Deferred[int] = Deferred()
    notes: list[str] = []
    early.deliver(1)
    early.then(noting(notes))
    late: Deferred[int] = Deferred()
    late.then(noting(notes))
    late.deliver(2)
    assert notes == ["called", "called"]
    with pytest.raises(AssertionError):
        late.deliver(3)


def test_alarms_ring_while_the_machine_may_decide_and_no_longer() -> None:
    """A coordinator that was suspended goes on before it hears that another one has taken over."""
    three = Three()
    replica, machine = three.replicas[0], three.machines[0]
    machine.alarm = 10.0
    replica.ring(9.9)
    assert (machine.rung, replica.next_ring(9.9, 0.1)) == (0, 10.0)
    replica.ring(10.0)
    assert (machine.rung, replica.next_ring(10.0, 0.1)) == (1, 20.0)
    three.cluster.nodes[0].session_valid = False
    assert replica.next_ring(19.9, 0.1) == 20.0
    replica.ring(20.0)
    assert machine.rung == 1
    assert replica.next_ring(20.0, 0.1) == pytest.approx(20.1)
    three.cluster.nodes[0].session_valid = True
    replica.ring(20.1)
    assert machine.rung == 2
    three.elect(1)
    replica.ring(40.0)
    assert (machine.rung, replica.next_ring(40.0, 0.1)) == (2, float("inf"))


def test_a_follower_that_is_cut_below_what_was_committed_folds_anew() -> None:
    """Behind an unclean election. The log had grown again by the time it looked."""
    three = Three()
    cluster = three.cluster
    cluster.cut_off(2)
    cluster.shrink(2)
    for number in range(4):
        three.machines[0].put(b"%d" % number, b"before")
        three.copy(1)
    three.fold()
    assert len(three.machines[1].values) == 4
    for number in cluster.elect_unclean(2):
        three.replicas[number].role_changed()
    while three.replicas[2].step():
        pass
    cluster.replicate(1)  # cut
    cluster.replicate(1)  # in sync
    for number in range(6):
        three.machines[2].put(b"%d" % number, b"after")
        three.copy(1)
        three.copy(1)
    three.fold()
    assert three.machines[1].values == three.machines[2].values
