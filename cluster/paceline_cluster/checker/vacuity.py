"""Asks whether a run proves anything: did the faults fall inside the writing? (DESIGN 2.1). Pure.

Every fault needs acknowledgements before and after it. A fault that takes a partition's leader
needs more: acknowledgements of an older and of a newer leader epoch around it, and batches of older
and of newer leaders in the log in the end.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field

from paceline.values import dataclass
from paceline_cluster.checker import events
from paceline_cluster.checker.findings import Findings, Kind
from paceline_cluster.checker.records import RecordsJudge


@dataclass(slots=True)
class _Proof:
    """What is still to be shown of a fault; ``moves`` are partitions with the last acknowledged
    epoch before it, and the first higher one after it (-1: none yet)."""

    event: events.Fault
    acks_before: int
    acks_after: int = 0
    before: dict[str, int] = field(default_factory=dict)
    after: dict[str, int] = field(default_factory=dict)


class VacuityJudge:
    """Sees acknowledgements and faults in order."""

    def __init__(self, findings: Findings, counts: Counter[str], records: RecordsJudge) -> None:
        self._findings = findings
        self._counts = counts
        self._records = records
        self._acks = 0
        self._epochs: dict[str, int] = {}
        self._open: list[_Proof] = []
        self._proofs: list[_Proof] = []

    def acknowledged(self, at: str, epoch: int) -> None:
        """A batch of this leader epoch was acknowledged in a partition."""
        self._acks += 1
        self._epochs[at] = max(epoch, self._epochs.get(at, -1))
        if not self._open:
            return
        for proof in self._open:
            proof.acks_after += 1
            if epoch > proof.before.get(at, epoch):
                proof.after.setdefault(at, epoch)
        self._open = [
            proof
            for proof in self._open
            if not proof.acks_after or len(proof.after) < len(proof.before)
        ]

    def fault(self, event: events.Fault) -> None:
        self._counts["faults"] += 1
        before = {at: self._epochs.get(at, -1) for at in event.moves}
        proof = _Proof(event, self._acks, before=before)
        self._open.append(proof)
        self._proofs.append(proof)

    def finish(self) -> None:
        """Name every fault that proves nothing, and partitions that were not read back."""
        if not self._acks:
            self._vacuous("nothing was acknowledged")
        for at in self._records.unread():
            self._vacuous(f"{at} has acknowledged writes and was not read in the end")
        for proof in self._proofs:
            self._judge(proof)

    def _judge(self, proof: _Proof) -> None:
        event = proof.event
        name = f"fault {event.fault} ({event.kind} of {event.target})"
        if not proof.acks_before:
            self._vacuous(f"{name}: nothing was acknowledged before it")
        if not proof.acks_after:
            self._vacuous(f"{name}: nothing was acknowledged after it")
        for at, before in proof.before.items():
            after = proof.after.get(at)
            stored = self._records.epochs(at)
            if before < 0:
                self._vacuous(f"{name}: nothing was acknowledged in {at} before it")
            elif after is None:
                self._vacuous(
                    f"{name}: nothing was acknowledged in {at} by a leader after epoch {before}"
                )
            elif stored is not None and not _around(stored, before):
                self._vacuous(
                    f"{name}: {at} holds batches of the leader epochs {sorted(stored)}, not of "
                    f"{before} or before it and of later ones"
                )

    def _vacuous(self, text: str) -> None:
        self._findings.add(Kind.VACUOUS, text)


def _around(stored: set[int], epoch: int) -> bool:
    """Not of this very epoch and the one that followed: what leaders acknowledged weakly may be
    lost."""
    return bool(stored) and min(stored) <= epoch < max(stored)
