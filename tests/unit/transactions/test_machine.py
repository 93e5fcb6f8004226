"""Random lives of transactional ids and sinks against a plain model: what was decided stays."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from paceline.errors import CoordinatorNotAvailable, PacelineError
from paceline.wire.peer.names import PartitionName
from paceline_node.transaction_names import Family, ProducerIdentity, TransactionKey
from paceline_node.transactions.limits import TransactionLimits
from paceline_node.transactions.records import State
from paceline_node.transactions.sinks import Attempt
from tests.unit.transactions.desk import Desk

KEYS = tuple(TransactionKey(Family.KAFKA, name) for name in ("a", "b"))
KEY = st.sampled_from(KEYS)
RUN = st.sampled_from(("r1", "r2", "r3"))
BATCH = st.integers(0, 3)
Decided = dict[tuple[TransactionKey, int], bool]


class Lives(RuleBasedStateMachine):
    """``decided`` remembers how each transaction was seen to end; ``known`` is every identity ever
    given out, newest last; ``committed`` the sinks' batches and what they held."""

    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk(TransactionLimits(ids_kept_s=10**9, sinks_kept_s=10**9))
        self.known: dict[TransactionKey, list[ProducerIdentity]] = {key: [] for key in KEYS}
        self.decided: Decided = {}
        self.attempts: list[tuple[str, int, str]] = []
        self.last_batch = -1

    # --- producers --------------------------------------------------------------------------------

    @rule(key=KEY)
    def init(self, key: TransactionKey) -> None:
        try:
            identity = self.desk.init(key)
        except PacelineError:
            return
        assert identity not in self.known[key], "an identity is given out twice"
        self.known[key].append(identity)

    @rule(key=KEY, partition=st.integers(0, 2), age=st.integers(0, 1))
    def add(self, key: TransactionKey, partition: int, age: int) -> None:
        if len(self.known[key]) <= age:
            return
        who = self.known[key][-1 - age]
        try:
            self.desk.engine.producers.add_partitions(key, who, [PartitionName("t", partition)])
        except PacelineError:
            return
        assert age == 0, "one who was replaced has opened a transaction"

    @rule(key=KEY, commits=st.booleans(), bumps=st.booleans(), age=st.integers(0, 1))
    def end(self, key: TransactionKey, *, commits: bool, bumps: bool, age: int) -> None:
        if len(self.known[key]) <= age:
            return
        who = self.known[key][-1 - age]
        producers = self.desk.engine.producers
        before = self.desk.engine.store.transactions[key]
        try:
            ended = producers.end(key, who, commits=commits, bumps=bumps)
        except PacelineError:
            return
        assert ended is not None
        if before.state is State.ONGOING:
            self.decided[key, before.serial] = commits
        elif before.ended_identity == who:
            assert self.decided[key, before.serial] is commits, "an end was turned"
        if ended.identity not in self.known[key]:
            self.known[key].append(ended.identity)

    @rule(key=KEY)
    def finish(self, key: TransactionKey) -> None:
        if self.desk.engine.ending(key) is not None:
            self.desk.finish(key)

    # --- sinks ------------------------------------------------------------------------------------

    @rule(run=RUN, batch=BATCH)
    def begin_attempt(self, run: str, batch: int) -> None:
        attempt = Attempt("sink", "q", run, batch, 0, 0)
        try:
            opened = self.desk.engine.sinks.begin(attempt, 60_000, next(self.desk.spares))
        except PacelineError:
            return
        assert batch > self.last_batch, "a committed batch is written again"
        self.attempts.append((run, batch, opened.name))

    @precondition(lambda self: self.attempts)
    @rule(data=st.data(), run=RUN, batch=BATCH)
    def commit_group(self, data: st.DataObject, run: str, batch: int) -> None:
        chosen = data.draw(st.lists(st.sampled_from(self.attempts), max_size=3, unique=True))
        names = [name for _, _, name in chosen]
        keys = [TransactionKey(Family.SINK, name) for name in names]
        try:
            self.desk.engine.sinks.commit("sink", run, batch, names)
        except PacelineError:
            return
        assert batch > self.last_batch, "a batch is committed twice"
        self.last_batch = batch
        for each_run, each_batch, name in self.attempts:
            key = TransactionKey(Family.SINK, name)
            found = self.desk.engine.store.transactions.get(key)
            if key in keys:
                assert (each_run, each_batch) == (run, batch)
                assert found is not None
                assert found.state is State.PREPARE_COMMIT
            elif each_batch <= batch:
                assert found is None or found.state is not State.ONGOING, "it was left open"

    @rule()
    def finish_sinks(self) -> None:
        for key in self.desk.engine.endings():
            if key.family is Family.SINK:
                self.desk.finish(key)

    # --- trouble ----------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from((1, 20, 70)))
    def wait(self, seconds: int) -> None:
        self.desk.advance(seconds)

    @rule()
    def fail_over(self) -> None:
        self.desk.fail_over()

    @rule(key=KEY)
    def fail_to_write(self, key: TransactionKey) -> None:
        before = dict(self.desk.engine.store.transactions)
        self.desk.refuses = True
        try:
            if self.known[key]:
                who = self.known[key][-1]
                self.desk.engine.producers.end(key, who, commits=True, bumps=True)
        except (CoordinatorNotAvailable, PacelineError):
            pass
        self.desk.refuses = False
        assert self.desk.engine.store.transactions == before

    # --- what always holds ------------------------------------------------------------------------

    @invariant()
    def what_was_decided_stays(self) -> None:
        for key, found in self.desk.engine.store.transactions.items():
            if found.state.is_prepared or found.state.is_complete:
                was = self.decided.setdefault((key, found.serial), found.commits)
                assert was is found.commits, (key, found)

    @invariant()
    def the_state_is_the_fold_of_the_log(self) -> None:
        self.desk.check_fold()

    @invariant()
    def what_is_open_has_an_alarm(self) -> None:
        if self.desk.engine.store.ongoing:
            assert self.desk.engine.next_alarm() <= self.desk.time + 60.001


Lives.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestLives = Lives.TestCase
