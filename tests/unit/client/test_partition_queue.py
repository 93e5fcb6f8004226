"""The pure queue of one partition against a model leader: any losses, refusals and expiries."""

from __future__ import annotations

import contextlib
import random

import pytest

from paceline.client import ProducerSettings
from paceline.client.batching import Batch, Identity
from paceline.client.partition_queue import MAX_PRODUCER_EPOCH, PartitionQueue
from paceline.client.retry import outcome_of
from paceline.errors import (
    ConnectionLost,
    DuplicateSequence,
    InvalidProducerEpoch,
    NotLeader,
    Outcome,
    OutOfOrderSequence,
    PacelineError,
    PolicyViolation,
    RequestTimedOut,
)
from paceline.types import TopicPartition

AT = TopicPartition("orders", 0)


class NoPause:
    def pause_s(self, attempt: int) -> float:
        return 1.0


class LeaderModel:
    """replication/DESIGN 4.4 for one partition, kept apart from the scripted brokers' code."""

    def __init__(self) -> None:
        self.log: list[int] = []  # batch orders
        self.known: dict[int, tuple[int, list[tuple[int, int]]]] = {}  # id: epoch, [(seq, offset)]

    def append(self, order: int, identity: Identity, sequence: int) -> int:
        """Every batch has one record. Returns the offset, raises the refusal."""
        epoch, recent = self.known.get(identity.producer_id, (identity.producer_epoch, []))
        if identity.producer_epoch < epoch:
            raise InvalidProducerEpoch("old")
        if identity.producer_epoch > epoch:
            if sequence:
                raise OutOfOrderSequence("new epoch")
            recent = []
        elif recent:
            for seen, offset in recent[-5:]:
                if seen == sequence:
                    return offset
            if sequence <= recent[-1][0]:
                raise DuplicateSequence("seen")
            if sequence != recent[-1][0] + 1:
                raise OutOfOrderSequence(f"expected {recent[-1][0] + 1}")
        self.log.append(order)
        recent = [*recent, (sequence, len(self.log) - 1)]
        self.known[identity.producer_id] = (identity.producer_epoch, recent)
        return len(self.log) - 1


def make(settings: ProducerSettings | None = None) -> tuple[PartitionQueue, list[Batch]]:
    done: list[Batch] = []
    queue = PartitionQueue(AT, settings or ProducerSettings(), NoPause(), done.append)
    queue.identify(Identity(1, 0))
    return queue, done


def make_known() -> tuple[PartitionQueue, list[Batch]]:
    """A queue whose producer id is in the log already, from an epoch before."""
    queue, done = make()
    first = add(queue, -1)
    take(queue)
    queue.succeeded(first, 0, 0, duplicate=False)
    queue.identify(Identity(1, 0))
    done.clear()
    return queue, done


def add(queue: PartitionQueue, order: int, *, deadline: float = 100.0) -> Batch:
    batch = Batch(AT, order, due_at=0.0, deadline=deadline)
    batch.append(None, b"x", (), 0, 1)
    queue.add(batch)
    return batch


def take(queue: PartitionQueue, now: float = 0.0) -> Batch | None:
    return None if queue.first_due(now) is None else queue.take()


# --- one rule each -------------------------------------------------------------------------------


def test_sequences_count_records_and_wrap() -> None:
    queue, _ = make_known()
    first = add(queue, 1)
    first.extend([b"a", b"b"], None, 0, 2)
    assert take(queue) is first
    second = add(queue, 2)
    assert take(queue) is second
    assert (first.sequence, second.sequence) == (0, 3)
    queue.identify(Identity(1, 1))
    queue._sequence = 2**31 - 1
    third, fourth = add(queue, 3), add(queue, 4)
    assert take(queue) is third
    assert take(queue) is fourth
    assert (third.sequence, fourth.sequence) == (2**31 - 1, 0)


def test_window_holds_five_and_frees_with_answers() -> None:
    queue, _ = make_known()
    batches = [add(queue, order) for order in range(7)]
    sent = [take(queue) for _ in range(6)]
    assert sent == [*batches[:5], None]
    queue.succeeded(batches[2], 0, 0, duplicate=False)
    assert take(queue) is None, "the oldest must stay among the last five"
    queue.succeeded(batches[0], 0, 0, duplicate=False)
    assert take(queue) is batches[5]
    assert take(queue) is None


def test_nothing_overtakes_the_first_batches_of_a_producer_that_no_leader_knows() -> None:
    queue, _ = make()
    first, second, third = (add(queue, order) for order in range(3))
    assert [take(queue), take(queue)] == [first, None]
    queue.failed(first, NotLeader(""), 1.0)
    assert [take(queue, 2.0), take(queue, 2.0)] == [first, None]
    queue.succeeded(first, 0, 0, duplicate=False)
    assert [take(queue, 2.0), take(queue, 2.0)] == [second, third]


def test_a_producer_that_was_silent_for_long_may_have_been_forgotten() -> None:
    queue, _ = make_known()
    add(queue, 0)
    assert take(queue, 1.0) is not None
    batches = [add(queue, order, deadline=1e9) for order in range(1, 4)]
    assert take(queue, 500.0) is batches[0]
    queue.succeeded(queue._in_flight[0], 0, 0, duplicate=False)
    queue.succeeded(queue._in_flight[0], 1, 0, duplicate=False)
    assert [take(queue, 1101.0), take(queue, 1101.0)] == [batches[1], None]
    queue.succeeded(batches[1], 2, 0, duplicate=False)
    more = add(queue, 4, deadline=1e9)
    assert [take(queue, 1102.0), take(queue, 1102.0)] == [batches[2], more]


def test_a_producer_id_is_known_by_any_of_its_epochs() -> None:
    queue, _ = make_known()
    queue.identify(Identity(1, 5))
    batches = [add(queue, order) for order in range(2)]
    assert [take(queue), take(queue)] == batches
    queue.identify(Identity(2, 0))
    add(queue, 3)
    assert take(queue) is None


def test_refused_batches_go_again_in_order_after_a_pause() -> None:
    queue, _ = make_known()
    batches = [add(queue, order) for order in range(3)]
    for _ in batches:
        take(queue)
    queue.failed(batches[2], OutOfOrderSequence(""), 1.0)
    queue.failed(batches[0], NotLeader(""), 1.0)
    queue.failed(batches[1], OutOfOrderSequence(""), 1.0)
    assert take(queue, 1.5) is None
    assert queue.due_at() == 2.0
    assert [take(queue, 2.0) for _ in range(3)] == batches
    assert [batch.sequence for batch in batches] == [0, 1, 2]


def test_out_of_order_without_a_predecessor_fails_and_the_rest_takes_a_new_epoch() -> None:
    queue, done = make_known()
    first, second = add(queue, 1), add(queue, 2)
    take(queue)
    take(queue)
    queue.failed(first, OutOfOrderSequence("lost"), 1.0)
    assert isinstance(first.error, OutOfOrderSequence)
    assert take(queue, 9.0) is None, "the second is still in flight"
    queue.failed(second, OutOfOrderSequence("lost"), 1.0)
    assert take(queue, 9.0) is second
    assert (second.identity, second.sequence) == (Identity(1, 1), 0)
    assert done == [first]


def test_a_batch_of_unknown_outcome_never_takes_a_new_sequence() -> None:
    queue, _ = make_known()
    first, second, third = (add(queue, order) for order in range(3))
    for _ in range(3):
        take(queue)
    queue.failed(second, ConnectionLost("gone"), 1.0)
    queue.failed(first, PolicyViolation("no"), 1.0)
    assert isinstance(first.error, PolicyViolation)
    assert isinstance(second.error, RequestTimedOut)
    assert "outcome unknown" in str(second.error)
    queue.failed(third, OutOfOrderSequence(""), 1.0)
    assert take(queue, 9.0) is third
    assert (third.identity, third.sequence) == (Identity(1, 1), 0)


def test_an_expired_batch_in_flight_holds_the_others_until_it_is_answered() -> None:
    queue, done = make()
    first, second = add(queue, 1, deadline=5.0), add(queue, 2)
    take(queue)
    queue.expire(5.0)
    assert isinstance(first.error, RequestTimedOut)
    assert done == []
    assert take(queue, 6.0) is None
    queue.succeeded(first, 7, 0, duplicate=False)
    assert isinstance(first.error, RequestTimedOut)
    assert first.result is None
    assert done == [first]
    assert take(queue, 6.0) is second
    assert (second.identity, second.sequence) == (Identity(1, 1), 0)


def test_a_batch_that_expires_unsent_leaves_no_hole() -> None:
    queue, _ = make()
    first, second = add(queue, 1, deadline=5.0), add(queue, 2)
    queue.expire(5.0)
    assert first.error is not None
    assert take(queue, 5.0) is second
    assert (second.identity, second.sequence) == (Identity(1, 0), 0)


def test_the_last_epoch_is_followed_by_a_new_producer_id() -> None:
    queue, _ = make()
    queue.identify(Identity(1, MAX_PRODUCER_EPOCH))
    first, second = add(queue, 1), add(queue, 2)
    take(queue)
    queue.failed(first, PolicyViolation("no"), 1.0)
    assert queue.needs_identity
    assert queue.retired_producer_id == 1
    assert take(queue, 9.0) is None
    queue.identify(Identity(2, 0))
    assert take(queue, 9.0) is second
    assert (second.identity, second.sequence) == (Identity(2, 0), 0)


def test_batches_that_fail_together_pause_once() -> None:
    queue, _ = make_known()
    batches = [add(queue, order) for order in range(5)]
    for _ in batches:
        take(queue)
    for batch in batches:
        queue.failed(batch, ConnectionLost("gone"), 1.0)
    assert queue.due_at() == 2.0


def test_late_answers_after_everything_was_given_up_are_ignored() -> None:
    queue, done = make()
    first = add(queue, 1)
    take(queue)
    queue.give_up_all(PolicyViolation("closed"))
    assert isinstance(first.error, RequestTimedOut)
    queue.succeeded(first, 1, 0, duplicate=False)
    queue.failed(first, NotLeader(""), 1.0)
    assert done == [first]
    assert queue.is_idle


# --- anything may happen -------------------------------------------------------------------------


class Network:
    """Requests and answers between a queue and the model leader, in order per connection, until
    one is cut: then requests on their way may still arrive later, answers never do."""

    def __init__(self, queue: PartitionQueue, leader: LeaderModel, rng: random.Random) -> None:
        self.queue = queue
        self.leader = leader
        self.rng = rng
        self.now = 0.0
        self.requests: list[tuple[Batch, int, Identity, int]] = []
        self.answers: list[tuple[Batch, int | PacelineError]] = []
        self.strays: list[tuple[int, Identity, int]] = []

    def send(self) -> None:
        if self.queue.needs_identity:
            self.queue.identify(Identity(self.queue.retired_producer_id + 1, 0))
        batch = take(self.queue, self.now)
        if batch is not None:
            self.requests.append((batch, batch.order, batch.identity, batch.sequence))

    def arrive(self, *, refusal: PacelineError | None = None) -> None:
        if not self.requests:
            return
        batch, order, identity, sequence = self.requests.pop(0)
        answer: int | PacelineError
        try:
            if refusal is not None:
                raise refusal
            answer = self.leader.append(order, identity, sequence)
        except PacelineError as error:
            answer = error
        self.answers.append((batch, answer))

    def answer(self) -> None:
        if not self.answers:
            return
        batch, answer = self.answers.pop(self.rng.randrange(len(self.answers)))
        if isinstance(answer, int):
            self.queue.succeeded(batch, answer, 0, duplicate=False)
        else:
            self.queue.failed(batch, answer, self.now)

    def cut(self) -> None:
        """Some of what was sent arrives, then all unanswered batches fail at the queue. The rest
        may still be on its way."""
        for _ in range(self.rng.randrange(len(self.requests) + 1)):
            self.arrive()
        self.strays += [request[1:] for request in self.requests]
        lost = [batch for batch, *_ in self.requests] + [batch for batch, _ in self.answers]
        self.requests, self.answers = [], []
        for batch in lost:
            self.queue.failed(batch, ConnectionLost("cut"), self.now)

    def stray(self) -> None:
        """A request of a connection long gone arrives; nobody hears the answer."""
        if self.strays:
            with contextlib.suppress(PacelineError):
                self.leader.append(*self.strays.pop(0))


def run_history(seed: int) -> tuple[LeaderModel, list[Batch], list[Batch]]:
    rng = random.Random(seed)
    leader = LeaderModel()
    queue, done = make()
    network = Network(queue, leader, rng)
    batches: list[Batch] = []
    expiry = rng.choice([3.0, 20.0, 1000.0])
    refusing = rng.choice([0, 2, 4])  # arrivals at first: the leader has not begun yet
    for _ in range(300):
        network.now += rng.choice([0.0, 0.1, 0.5])
        move = rng.random()
        if move < 0.25:
            batches.append(add(queue, len(batches), deadline=network.now + expiry))
        elif move < 0.55:
            network.send()
        elif move < 0.75:
            refusal = rng.choice([None] * 40 + [NotLeader("no"), PolicyViolation("no")])
            if refusing:
                refusing -= 1
                refusal = NotLeader("not yet")
            network.arrive(refusal=refusal)
        elif move < 0.95:
            network.answer()
        elif move < 0.98:
            network.cut()
        elif move < 0.99:
            network.stray()
        else:
            queue.expire(network.now)
    for _ in range(5000):
        if queue.is_idle:
            break
        network.now += 0.5
        network.send()
        network.arrive()
        network.answer()
    return leader, batches, done


@pytest.mark.parametrize("block", range(8))
def test_no_batch_is_stored_twice_or_out_of_order_or_lost(block: int) -> None:
    outcomes = {"stored": 0, "failed": 0}
    for seed in range(block * 100, block * 100 + 100):
        leader, batches, done = run_history(seed)
        assert len(done) == len(batches) == len(set(done)), f"seed {seed}"
        assert len(set(leader.log)) == len(leader.log), f"seed {seed}: stored twice"
        assert leader.log == sorted(leader.log), f"seed {seed}: out of order"
        for batch in batches:
            if batch.result is not None:
                outcomes["stored"] += 1
                assert leader.log[batch.result.base_offset] == batch.order, f"seed {seed}"
                continue
            outcomes["failed"] += 1
            assert batch.error is not None, f"seed {seed}"
            if batch.order in leader.log:
                assert outcome_of(batch.error) is Outcome.UNKNOWN, f"seed {seed}: {batch.error}"
    assert outcomes["stored"] > 1000
    assert outcomes["failed"] > 100
