"""What all nodes say of themselves, and one judgement of the cluster from it.

The same wherever it is asked for: by ``paceline health``, ``status`` and ``check``, or at
``/api/health`` of a node.

A cluster is *ready* when every node runs, all agree on a controller, all are registered and not
fenced, and every partition, internal ones included, has a leader. It is *healthy* when besides no
partition lacks replicas.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from paceline.documents.nodes import UNREACHABLE, controller_of, newest_of, shown_state
from paceline.health import (
    OF_CLUSTER,
    OF_NODE,
    RUNNING,
    SERVING,
    Check,
    CheckName,
    ClusterFacts,
    Level,
    date_of,
    judge_cluster,
    unhealthy,
    with_passed,
)
from paceline.values import dataclass
from paceline.wire.native.data import StatusReply
from paceline.wire.native.status_details import CertificateStanding, RangeStanding

STOPPED = "stopped"
"""Of a process that has ended."""
SUSPENDED = "suspended"
"""Of a process that was told to stand still."""


@dataclass(frozen=True, slots=True)
class SeenNode:
    """One node as seen from where it is asked; ``process`` is what is known of its process, None
    when that may run on another machine."""

    id: int
    address: str
    process: str | None
    status: StatusReply | None
    error: str = ""
    complaint: str = ""
    """Of a node of this machine that says nothing: its log's last warning or error; why it ended.
    """
    ended: bool = False
    """Its process is gone, and nobody stopped it."""
    is_closed: bool = False
    """It serves, and does not tell whoever asks: he has to log in, or lacks the right."""

    @property
    def is_dead(self) -> bool:
        """Whether it surely serves nobody."""
        return self.process in (STOPPED, SUSPENDED)

    @property
    def state(self) -> str:
        """One word: what the node says of itself, or why it says nothing."""
        if self.is_dead:
            return str(self.process)
        if self.is_closed:
            return "no-access"
        return UNREACHABLE if self.status is None else self.status.state

    @property
    def refusal(self) -> str:
        """Of one that does not tell whoever asks why, in words that are the same of all nodes."""
        return self.error

    def advice(self) -> str:
        """What whoever asks can do about that refusal."""
        return ""

    def problems(self) -> list[str]:
        """Why this node is not plainly running."""
        if self.state == RUNNING:
            return []
        if self.is_closed:
            return [f"node {self.id} runs, and does not say how it is ({self.refusal})"]
        told = self.why()
        what_to_do = _NEXT.get(self.process, "").format(self.id)
        return [f"node {self.id} is {self.state}" + (f" ({told})" if told else "") + what_to_do]

    def why(self) -> str:
        """What is known of why it is so; may be empty."""
        details = [self.error] if self.status is None else [", ".join(self.status.reasons)]
        if self.ended:
            details.append("nobody stopped it")
        if self.complaint:
            details.append(f"its log said last: {self.complaint}")
        return "; ".join(filter(None, details))

    def what_to_do(self) -> str:
        """About its problems."""
        if self.is_closed:
            return self.advice()
        return _NEXT.get(self.process, ": see its log").removeprefix(": ").format(self.id)

    def checks(self) -> Iterator[Check]:
        """What this node finds wrong with itself; without an answer, that there is none."""
        for each in self.problems():
            name = CheckName.NODES if self.status is None else CheckName.STATE
            yield Check(name, Level.CRITICAL, each, self.what_to_do(), self.id)
        for found in () if self.status is None else self.status.findings:
            if found.name != CheckName.STATE:
                reason = f"node {self.id}: {found.reason}"
                yield Check(found.name, found.level, reason, found.what_to_do, self.id)


_NEXT: dict[str | None, str] = {
    STOPPED: ": start it with 'paceline node restart {}'",
    SUSPENDED: ": let it go on with 'paceline node resume {}'",
}


@dataclass(frozen=True, slots=True)
class Survey:
    """The answers of all nodes, in order of their ids. ``start_with``: where the whole cluster is
    stopped, the command that starts it."""

    nodes: tuple[SeenNode, ...]
    start_with: str = ""
    internal_topics: int | None = None
    """How many of the topics are the brokers' own, where that was asked."""

    @property
    def controller(self) -> int | None:
        """The node that most answers name as controller, None when none is known."""
        return controller_of(self._answers())

    def newest(self) -> StatusReply | None:
        """The answer with the newest metadata: counts of partitions are taken from it."""
        return newest_of(self._answers())

    def states(self) -> dict[int, str]:
        """How each node is shown: as it says itself, but for what it is to do."""
        drained = self._drained()
        return {
            view.id: shown_state(view.state, is_drained=view.id in drained) for view in self.nodes
        }

    def _drained(self) -> list[int]:
        newest = self.newest()
        return [] if newest is None else [int(b.node_id) for b in newest.brokers if b.drained]

    def _answers(self) -> list[StatusReply]:
        return [view.status for view in self.nodes if view.status is not None]

    def leaderless(self) -> int | None:
        """How many partitions nobody leads; None where that is not known.

        Metadata know of a node's end only once its session is over, and without a controller never:
        what is left are the partitions that the nodes which answer lead themselves. A node that is
        silent only here may lead others, as long as the controller has not fenced it.
        """
        newest = self.newest()
        if newest is None:
            return None
        silent = [view for view in self.nodes if view.status is None]
        led = sum(status.leading_count for status in self._answers())
        nobody = max(newest.leaderless_count, newest.partition_count - led)
        if not silent or nobody == newest.leaderless_count:
            return newest.leaderless_count
        active = {int(each.node_id) for each in newest.brokers if not each.fenced}
        if self.controller is not None and not active & {view.id for view in silent}:
            return newest.leaderless_count
        return nobody if all(view.is_dead for view in silent) else None

    def all_lead(self) -> bool:
        """Whether nodes lead all partitions that have leaders: one that is elected learns of it
        a moment later."""
        newest = self.newest()
        led = sum(status.leading_count for status in self._answers())
        return newest is not None and led + newest.leaderless_count >= newest.partition_count

    def findings(self) -> list[Check]:
        """What is wrong with nodes and cluster, as ``paceline.health`` judges it."""
        if self.start_with:
            return [self._stopped()]
        of_nodes = [check for view in self.nodes for check in view.checks()]
        newest = self.newest()
        return of_nodes if newest is None else [*of_nodes, *self._of_cluster(newest)]

    def _stopped(self) -> Check:
        """One thing is to be done, however many nodes there are: none of them serves alone."""
        whys = [(f"node {view.id}: ", view.why()) for view in self.nodes]
        told = ". ".join(f"{whose}{why}" for whose, why in whys if why)
        todo = f"start it with {self.start_with}"
        reason = "the cluster is stopped" + (f" ({told})" if told else "")
        return Check(CheckName.NODES, Level.CRITICAL, f"{reason}: {todo}", todo)

    def checks(self) -> list[Check]:
        """The same, with the checks that pass: of each node that answers, and of the cluster."""
        found = self.findings()
        passed: list[Check] = []
        for view in self.nodes:
            own = [each for each in found if each.node == view.id and each.name not in OF_CLUSTER]
            if view.status is not None:
                passed += with_passed(own, OF_NODE, view.id)
        rest = [each for each in found if each.name in OF_CLUSTER]
        return [*passed, *with_passed(rest, OF_CLUSTER if self.newest() else ())]

    def reasons(self) -> list[str]:
        """Everything that keeps the cluster from being healthy; empty when it is."""
        closed = {view.id for view in self.nodes if view.is_closed}
        found = [each for each in unhealthy(self.findings()) if each.node not in closed]
        # A node that does not run says why in one sentence.
        down = {each.node for each in found if each.name == CheckName.STATE}
        return [
            *self._refusals(),
            *(
                each.reason
                for each in found
                if each.node not in down or each.name == CheckName.STATE or each.name not in SERVING
            ),
        ]

    def _refusals(self) -> Iterator[str]:
        """What is to be done is the same of all nodes that refuse so, and told once."""
        closed: dict[str, list[SeenNode]] = {}
        for view in self.nodes:
            if view.is_closed:
                closed.setdefault(view.refusal, []).append(view)
        for refusal, views in closed.items():
            ids = ", ".join(str(view.id) for view in views)
            todo = views[0].advice()
            if len(views) == 1:
                yield f"node {ids} runs, and does not say how it is ({refusal}): {todo}"
            else:
                yield f"nodes {ids} run, and do not say how they are ({refusal}): {todo}"

    def ranges(self) -> list[tuple[int, RangeStanding]]:
        """What replicas lost, and what becomes of it, by node. What was given up keeps no cluster
        from being healthy."""
        answers = [(view.id, view.status) for view in self.nodes if view.status is not None]
        return [(node, each) for node, status in answers for each in status.ranges]

    def certificates(self) -> list[tuple[int, CertificateStanding]]:
        """Until when certificates are good, by node; none where nothing is encrypted."""
        answers = [(view.id, view.status) for view in self.nodes if view.status is not None]
        return [(node, each) for node, status in answers for each in status.certificates]

    def is_closed(self) -> bool:
        """Whether all nodes serve, and none tells how it is."""
        return bool(self.nodes) and all(view.is_closed for view in self.nodes)

    def is_ready(self) -> bool:
        """Whether every node answers and the quorum and all partitions have leaders."""
        found = {each.name for each in self.findings()}
        return self.newest() is not None and not found & _BLOCKING

    def _of_cluster(self, newest: StatusReply) -> Iterator[Check]:
        active = frozenset(int(each.node_id) for each in newest.brokers if not each.fenced)
        leaderless = self.leaderless()
        facts = ClusterFacts(
            members=[view.id for view in self.nodes],
            active=active,
            topics=newest.topic_count,
            partitions=newest.partition_count,
            leaderless=newest.leaderless_count if leaderless is None else leaderless,
            under_min_isr=newest.under_min_isr_count,
            under_replicated=newest.under_replicated_count,
            controllers=[int(status.controller) for status in self._answers()],
            any_session=any(
                all(each.name != CheckName.SESSION for each in status.findings)
                for status in self._answers()
            ),
            drained=self._drained(),
        )
        # Of a node that is silent its own view says why it is none of the active brokers.
        silent = {view.id for view in self.nodes if view.status is None}
        return (
            each
            for each in judge_cluster(facts)
            if each.level and not (each.name == CheckName.NODES and each.node in silent)
        )

    def is_healthy(self) -> bool | None:
        """None where it is not known: nothing is found but that nodes do not tell whoever asks."""
        if not self.reasons():
            return True
        closed = {view.id for view in self.nodes if view.is_closed}
        found = unhealthy(self.findings())
        return None if all(each.node in closed for each in found) else False


_BLOCKING = {
    CheckName.NODES,
    CheckName.STATE,
    CheckName.QUORUM,
    CheckName.INTERNAL_TOPICS,
    CheckName.LEADERS,
}
"""What keeps a cluster from being ready."""


def health_document(seen: Survey) -> dict[str, Any]:
    """What ``health`` says: the verdict with its reasons, lost ranges, ends of certificates."""
    reasons = seen.reasons()
    return {
        "healthy": seen.is_healthy(),
        "reasons": reasons,
        "checks": [each.to_json() for each in seen.checks()],
        "controller": seen.controller,
        "ranges": [{"node": node, **asdict(each)} for node, each in seen.ranges()],
        "certificates": [
            {"node": node, "setting": each.setting, "until": date_of(each.ends)}
            for node, each in seen.certificates()
        ],
    }
