"""What the oracle knows to be committed, against what a replica holds."""

from __future__ import annotations

from paceline_cluster.sim.committed import BatchId, CommittedLog

ONE, TWO, THREE = (BatchId(n, n + 1, 0, 100 + n) for n in range(3))


def known() -> CommittedLog:
    committed = CommittedLog()
    committed.extend([ONE, TWO, THREE], 3)
    return committed


def test_another_batch_or_none_is_noticed() -> None:
    committed = known()
    assert committed.conflict([ONE, TWO, THREE]) is None
    assert committed.missing([ONE, TWO, THREE], 0) is None
    assert committed.conflict([ONE, TWO._replace(crc=7)]) is not None
    assert committed.missing([ONE, THREE], 0) == f"lacks {TWO}"
    assert committed.missing([THREE], 2) is None
    assert committed.conflict([ONE, BatchId(3, 4, 0, 9)]) is None  # not committed yet


def test_what_compaction_left_is_not_compared_and_all_behind_it_is() -> None:
    committed = known()
    left = BatchId(0, 2, 0, 7)
    assert committed.conflict([left, THREE]) is not None
    committed.compacted_to = 2
    assert committed.conflict([left, THREE]) is None
    assert committed.missing([left, THREE], 0) is None
    assert committed.conflict([left, THREE._replace(crc=7)]) is not None
    assert committed.missing([left], 0) == f"lacks {THREE}"


def test_what_a_damaged_leader_committed_unseen_is_what_the_first_sound_replica_holds() -> None:
    committed = CommittedLog()
    committed.extend([ONE], 3)
    assert committed.conflict([ONE, TWO, THREE]) is None
    assert committed.conflict([TWO._replace(crc=7)]) is not None
    assert committed.missing([ONE, THREE], 0) == f"lacks {TWO}"
    committed.extend([], 5)
    assert committed.conflict([BatchId(4, 5, 0, 9)]) is None
    assert committed.conflict([BatchId(4, 5, 0, 8)]) is not None
    assert committed.conflict([BatchId(2, 4, 0, 9)]) is not None  # the third is known
