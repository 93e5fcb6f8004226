"""One history told by hand for every finding, and the plain ones that must pass."""

from __future__ import annotations

import dataclasses

import pytest

from paceline_cluster.checker import Kind, Outcome, Verdict, events, judge
from tests.unit.checker.story import AT, Story


def kinds(verdict: Verdict) -> set[Kind]:
    return {kind for kind, count in verdict.finding_counts.items() if count}


def text_of(verdict: Verdict, kind: Kind) -> str:
    [finding] = [each for each in verdict.findings if each.kind is kind]
    return finding.text


@pytest.fixture
def story() -> Story:
    return Story()


def test_a_kept_promise_is_valid(story: Story) -> None:
    first, second = story.stream(), story.stream()
    story.write(first, 3)
    story.write(second, 2)
    story.read("r", 0, 5)
    verdict = judge(story.finish())
    assert verdict.outcome is Outcome.VALID
    assert verdict.counts["acknowledged"] == 5
    assert verdict.counts["read"] == 5
    assert verdict.counts["stored"] == 5
    assert verdict.lines()[0].startswith("valid: ")


def test_unknown_outcomes_may_be_stored_or_not(story: Story) -> None:
    stream = story.stream()
    story.write(stream)
    for stored in (True, False):
        first = story.invoke(stream)
        if stored:
            story.append(stream, first)
        story.unknown(stream, first)
    story.invoke(stream)  # and one without any outcome
    verdict = judge(story.finish())
    assert verdict.outcome is Outcome.VALID
    assert verdict.counts["unknown"] == 3


def test_a_transaction_is_there_wholly_or_not_at_all(story: Story) -> None:
    here, there = story.stream(), story.stream("orders/1")
    for stored in ((), (here, there), (here,)):
        runs = tuple((stream, story.invoke(stream), 1) for stream in (here, there))
        for stream, first, count in runs:
            if stream in stored:
                story.append(stream, first, count)
            story.unknown(stream, first, count)
        story.say(events.Together(story.t, runs))
    story.write(here)
    verdict = judge(story.finish())
    assert kinds(verdict) == {Kind.TORN}
    assert verdict.finding_counts[Kind.TORN] == 1
    assert "orders/1: w1/k 2" in text_of(verdict, Kind.TORN)


def test_lost_acknowledged_write(story: Story) -> None:
    stream = story.stream()
    story.write(stream, 3)
    story.logs[AT].pop()
    verdict = judge(story.finish())
    assert kinds(verdict) == {Kind.LOST}
    assert text_of(verdict, Kind.LOST) == "orders/0: w0/k 2 (told offset 2)"
    assert verdict.outcome is Outcome.INVALID


def test_acknowledged_write_overwritten_by_another(story: Story) -> None:
    """The classic of a bad failover: the offset holds what somebody else wrote."""
    first, second = story.stream(), story.stream()
    story.write(first, 2)
    story.logs[AT].pop()
    story.append(second, story.invoke(second))
    assert kinds(judge(story.finish())) == {Kind.LOST}


def test_loss_of_weakly_acknowledged_writes_is_counted_only(story: Story) -> None:
    strong, weak = story.stream(), story.stream(acks="leader", idempotent=False)
    story.write(strong)
    story.write(weak, 2)
    story.logs[AT][1:] = []
    verdict = judge(story.finish())
    assert verdict.outcome is Outcome.VALID
    assert verdict.counts["weakly_acknowledged_lost"] == 2


def test_what_retention_removed_is_not_lost(story: Story) -> None:
    stream = story.stream()
    story.write(stream, 4)
    told = story.finish()
    [final] = [event for event in told if isinstance(event, events.Final)]
    kept = told[: told.index(final)]
    kept += [
        dataclasses.replace(final, start=3),
        events.FinalRead(1.0, AT, 3, 1, ((stream, 3, 1),)),
    ]
    assert judge(kept).outcome is Outcome.VALID


def test_stored_elsewhere_than_acknowledged(story: Story) -> None:
    stream = story.stream()
    story.write(stream)
    first = story.invoke(stream)
    story.ok(stream, first, 1, story.append(stream, first) + 1)
    assert Kind.MISPLACED in kinds(judge(story.finish()))


def test_duplicate(story: Story) -> None:
    stream = story.stream()
    story.write(stream, 3)
    story.append(stream, 1)
    verdict = judge(story.finish())
    assert kinds(verdict) == {Kind.DUPLICATE}
    assert text_of(verdict, Kind.DUPLICATE) == "orders/0: w0/k 1"


def test_duplicates_without_idempotence_are_counted_only(story: Story) -> None:
    stream = story.stream(idempotent=False)
    story.write(stream, 3)
    story.append(stream, 1, 2)
    verdict = judge(story.finish())
    assert verdict.outcome is Outcome.VALID
    assert verdict.counts["duplicates_allowed"] == 2


def test_duplicate_in_another_partition(story: Story) -> None:
    stream, other = story.stream(), story.stream("orders/1")
    story.write(stream)
    story.write(other)
    story.logs["orders/1"].append(((stream, 0), 1))
    assert Kind.NEVER_WRITTEN in kinds(judge(story.finish()))


def test_reorder(story: Story) -> None:
    stream = story.stream()
    first = story.invoke(stream, 2)
    story.append(stream, first + 1)
    story.append(stream, first)
    story.unknown(stream, first, 2)
    story.write(stream)
    assert kinds(judge(story.finish())) == {Kind.REORDERED}


def test_reorder_is_allowed_where_no_order_was_promised(story: Story) -> None:
    stream = story.stream(ordered=False)
    first = story.invoke(stream, 2)
    story.append(stream, first + 1)
    story.append(stream, first)
    story.unknown(stream, first, 2)
    story.write(stream)
    assert judge(story.finish()).outcome is Outcome.VALID


def test_stored_before_what_was_acknowledged_earlier(story: Story) -> None:
    early, late = story.stream(), story.stream()
    story.append(late, 0)
    first = story.invoke(early)
    story.ok(early, first, 1, story.append(early, first))
    story.ok(late, story.invoke(late), 1, 0)
    assert kinds(judge(story.finish())) == {Kind.REAL_TIME_ORDER}


def test_a_replaced_leader_may_say_anything_of_a_weak_write(story: Story) -> None:
    """It was not told yet that it leads no more, and its write will be cut off."""
    strong, weak = story.stream(), story.stream(acks="leader")
    story.write(strong, 3)
    story.ok(weak, story.invoke(weak), 1, 0)
    assert judge(story.finish()).outcome is Outcome.VALID


def test_refused_but_stored(story: Story) -> None:
    stream = story.stream()
    story.write(stream)
    first = story.invoke(stream)
    story.append(stream, first)
    story.fail(stream, first)
    assert kinds(judge(story.finish())) == {Kind.REFUSED_STORED}


@pytest.mark.parametrize("run", [(0, 7, 1), (9, 0, 1), (events.FOREIGN, 0, 1)])
def test_read_but_never_written(story: Story, run: events.Run) -> None:
    stream = story.stream()
    story.write(stream)
    story.say(events.Read(1.0, "r", AT, 5, 1, (run,)))
    assert Kind.NEVER_WRITTEN in kinds(judge(story.finish()))


def test_read_before_it_was_written(story: Story) -> None:
    stream = story.stream()
    story.say(events.Read(1.0, "r", AT, 0, 1, ((stream, 0, 1),)))
    story.write(stream)
    assert kinds(judge(story.finish())) == {Kind.NEVER_WRITTEN}


def test_read_but_not_committed(story: Story) -> None:
    stream, other = story.stream(), story.stream()
    story.write(stream)
    first = story.invoke(stream)
    story.append(stream, first)
    story.read("r", 0, 2)
    story.unknown(stream, first)
    story.logs[AT].pop()
    story.append(other, story.invoke(other))
    verdict = judge(story.finish())
    assert kinds(verdict) == {Kind.UNCOMMITTED_READ}
    expected = "orders/0 offset 1: read as w0/k 1, holds w1/k 0 in the end"
    assert text_of(verdict, Kind.UNCOMMITTED_READ) == expected


def test_one_offset_with_two_contents(story: Story) -> None:
    stream, other = story.stream(), story.stream()
    story.write(stream)
    story.invoke(other)
    story.say(events.Read(1.0, "r", AT, 0, 1, ((other, 0, 1),)))
    assert Kind.INCONSISTENT in kinds(judge(story.finish()))


def test_gap_in_a_reading(story: Story) -> None:
    stream = story.stream()
    story.write(stream, 4)
    story.read("r", 0, 2)
    story.read("r", 3, 4)
    verdict = judge(story.finish())
    assert kinds(verdict) == {Kind.GAP}
    assert text_of(verdict, Kind.GAP) == "orders/0: r was at offset 2 and was given 3"


def test_hidden_offsets_are_no_gap(story: Story) -> None:
    stream = story.stream()
    story.write(stream, 2)
    story.logs[AT].append(((events.HIDDEN, 0), 1))
    story.write(stream)
    story.read("r", 0, 4)
    assert judge(story.finish()).outcome is Outcome.VALID


def test_gap_at_the_end_of_the_last_reading(story: Story) -> None:
    stream = story.stream()
    story.write(stream, 2)
    story.unknown(stream, story.invoke(stream))
    told = story.finish()
    told[-2] = events.Final(1.0, AT, 0, 3)
    assert kinds(judge(told)) == {Kind.GAP}


def test_reader_goes_back(story: Story) -> None:
    stream = story.stream()
    story.write(stream, 3)
    story.read("r", 0, 2)
    story.read("r", 1, 3)
    assert kinds(judge(story.finish())) == {Kind.WENT_BACK}


def test_reader_may_go_anywhere_after_a_seek(story: Story) -> None:
    stream = story.stream()
    story.write(stream, 3)
    for start, end in ((2, 3), (0, 1)):
        story.say(events.Seek(1.0, "r", AT, start))
        story.read("r", start, end)
    assert judge(story.finish()).outcome is Outcome.VALID


def test_leader_epoch_goes_back_in_the_log(story: Story) -> None:
    stream = story.stream()
    for epoch in (2, 1):
        story.epochs[AT] = epoch
        story.write(stream)
    assert kinds(judge(story.finish())) == {Kind.EPOCH_WENT_BACK}


# --- groups -------------------------------------------------------------------------------------


def _commit(story: Story, offset: int, *, generation: int = -1) -> int:
    op = story.op()
    story.say(events.Commit(story.t, op, "g", AT, offset, generation))
    return op


def _ask(story: Story, told: int) -> None:
    op = story.op()
    story.say(events.AskOffset(story.t, op, "g", AT), events.OffsetTold(story.t, op, told))


def _kinds_with_a_write(story: Story) -> set[Kind]:
    story.write(story.stream())
    return kinds(judge(story.finish()))


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (20, set()),
        (10, {Kind.STALE_OFFSET}),
        (-1, {Kind.STALE_OFFSET}),
        (15, {Kind.OFFSET_FROM_NOWHERE}),
    ],
)
def test_committed_offset(story: Story, told: int, expected: set[Kind]) -> None:
    for offset in (10, 20):
        story.say(events.CommitOk(story.t, _commit(story, offset)))
    _ask(story, told)
    assert _kinds_with_a_write(story) == expected


@pytest.mark.parametrize("told", [-1, 10])
def test_commit_of_unknown_outcome_may_hold_or_not(story: Story, told: int) -> None:
    story.say(events.CommitUnknown(story.t, _commit(story, 10), "RequestTimedOut"))
    _ask(story, told)
    assert _kinds_with_a_write(story) == set()


def test_commit_during_the_question_may_be_told(story: Story) -> None:
    op = story.op()
    story.say(events.AskOffset(story.t, op, "g", AT))
    _commit(story, 10)
    story.say(events.OffsetTold(story.t, op, 10))
    assert _kinds_with_a_write(story) == set()


def test_refused_commit_must_not_be_told(story: Story) -> None:
    story.say(events.CommitFail(story.t, _commit(story, 10), "IllegalGeneration"))
    _ask(story, 10)
    assert _kinds_with_a_write(story) == {Kind.STALE_OFFSET}


def _work(story: Story, *spans: tuple[int, int]) -> None:
    for first, end in spans:
        story.say(events.Worked(story.t, "w", AT, first, end))


def _ask_kept(story: Story, told: int) -> None:
    op = story.op()
    story.say(events.AskKept(story.t, op, "w", AT), events.KeptTold(story.t, op, told))


@pytest.mark.parametrize(("told", "expected"), [(1, set()), (2, {Kind.PASSED_OVER})])
def test_what_nobody_has_worked_through(story: Story, told: int, expected: set[Kind]) -> None:
    story.write(story.stream(), 3)
    _work(story, (0, 1), (2, 3))
    _ask_kept(story, told)
    assert kinds(judge(story.finish())) == expected


def test_offsets_that_hold_nothing_are_nobodys_work(story: Story) -> None:
    stream = story.stream()
    story.write(stream)
    story.logs[AT].append(((events.HIDDEN, 0), 1))
    story.write(stream)
    _work(story, (0, 1), (2, 3))
    _ask_kept(story, 3)
    assert kinds(judge(story.finish())) == set()


@pytest.mark.parametrize(("told", "expected"), [(3, set()), (2, {Kind.SET_BACK})])
@pytest.mark.parametrize("by", ["a commit", "an answer"])
def test_what_was_kept_is_set_back(story: Story, by: str, told: int, expected: set[Kind]) -> None:
    story.write(story.stream(), 3)
    _work(story, (0, 3))
    if by == "a commit":
        story.say(events.Kept(story.t, "w", AT, 3))
    else:
        _ask_kept(story, 3)
    _ask_kept(story, told)
    assert kinds(judge(story.finish())) == expected


def _join(story: Story, generation: int) -> None:
    op = story.op()
    story.say(events.Join(story.t, op, "g", "m"), events.Joined(story.t, op, generation))


def test_generation_goes_back(story: Story) -> None:
    _join(story, 3)
    _join(story, 2)
    assert _kinds_with_a_write(story) == {Kind.GENERATION_WENT_BACK}


def test_generations_of_joins_that_overlap_may_be_told_in_any_order(story: Story) -> None:
    first, second = story.op(), story.op()
    story.say(events.Join(0.0, first, "g", "a"), events.Join(0.0, second, "g", "b"))
    story.say(events.Joined(0.0, second, 2), events.Joined(0.0, first, 1))
    assert _kinds_with_a_write(story) == set()


def test_commit_of_an_old_generation(story: Story) -> None:
    _join(story, 3)
    story.say(events.CommitOk(story.t, _commit(story, 10, generation=2)))
    assert _kinds_with_a_write(story) == {Kind.ZOMBIE_COMMIT}


# --- runs that prove too little ------------------------------------------------------------------


def test_nothing_acknowledged_is_vacuous() -> None:
    verdict = judge(Story().finish())
    assert verdict.outcome is Outcome.VACUOUS


def test_partition_that_nobody_read_back_is_vacuous(story: Story) -> None:
    story.write(story.stream())
    assert kinds(judge(story.told)) == {Kind.VACUOUS}


def test_kill_inside_the_writing_is_proven_by_two_epochs(story: Story) -> None:
    stream = story.stream()
    story.write(stream)
    story.fault(AT)
    story.epochs[AT] = 2
    story.write(stream)
    assert judge(story.finish()).outcome is Outcome.VALID


def test_a_kill_is_proven_though_what_the_next_leader_acknowledged_weakly_was_lost(
    story: Story,
) -> None:
    stream = story.stream(acks="leader", idempotent=False)
    story.write(stream)
    story.fault(AT)
    story.epochs[AT] = 2
    story.write(stream)
    del story.logs[AT][-1]
    story.epochs[AT] = 3
    story.write(stream)
    assert judge(story.finish()).outcome is Outcome.VALID


@pytest.mark.parametrize("lack", ["before", "after", "epoch", "log"])
def test_kill_outside_the_writing_is_vacuous(story: Story, lack: str) -> None:
    stream = story.stream()
    if lack != "before":
        story.write(stream)
    story.fault(AT)
    story.epochs[AT] = 1 if lack == "epoch" else 2
    if lack != "after":
        story.write(stream)
    if lack == "log":
        story.logs[AT] = [(record, 2) for record, _ in story.logs[AT]]
    assert kinds(judge(story.finish())) == {Kind.VACUOUS}


# --- histories that cannot be --------------------------------------------------------------------


@pytest.mark.parametrize(
    "event",
    [
        events.Ok(1.0, 0, 5, 1, 5, 1),
        events.Ok(1.0, 0, 0, 1, 0, 1),
        events.Fail(1.0, 4, 0, 1, "x"),
        events.Invoke(1.0, 0, 0, 1),
        events.Invoke(1.0, 8, 0, 1),
        events.CommitOk(1.0, 77),
        events.OffsetTold(1.0, 77, 0),
        events.Joined(1.0, 77, 0),
        events.FinalRead(1.0, "other/1", 0, 1, ()),
        events.Stream(1.0, 0, "w", "k", AT, "all", True, True),
    ],
)
def test_history_that_contradicts_itself(story: Story, event: events.Event) -> None:
    story.write(story.stream())
    story.say(event)
    assert kinds(judge(story.finish())) == {Kind.BAD_HISTORY}


def test_verdict_as_json_and_text(story: Story) -> None:
    stream = story.stream()
    story.write(stream, 50)
    for _ in range(30):
        story.append(stream, 3)
    verdict = judge(story.finish())
    assert verdict.finding_counts == {Kind.DUPLICATE: 30}
    data = verdict.to_json()
    assert data["outcome"] == "invalid"
    assert data["finding_counts"] == {"duplicate": 30}
    assert data["findings"][0]["kind"] == "duplicate"
    lines = verdict.lines()
    assert lines[1] == "30 x stored twice by an idempotent producer:"
