"""Asks every node how it is, and judges the cluster from the answers.

A cluster is *ready* when every node runs, all agree on a controller, all are registered and not
fenced, and every partition, internal ones included, has a leader. It is *healthy* when besides no
partition lacks replicas.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import trio

from paceline.client.endpoint import Endpoint
from paceline.documents.nodes import UNREACHABLE, controller_of, newest_of, shown_state
from paceline.errors import AuthenticationFailed, AuthorizationFailed, PacelineError
from paceline.health import (
    OF_CLUSTER,
    OF_NODE,
    RUNNING,
    SERVING,
    Check,
    CheckName,
    ClusterFacts,
    Level,
    judge_cluster,
    unhealthy,
    with_passed,
)
from paceline.values import dataclass
from paceline.wire.native.data import StatusReply
from paceline.wire.native.standings import CertificateStanding, RangeStanding
from paceline_cluster import processes, refused
from paceline_cluster.log_lines import last_complaint, last_words
from paceline_cluster.node_calls import ask_status, ask_to_stop, count_internal_topics
from paceline_cluster.processes import ProcessState
from paceline_cluster.state import ClusterState, NodeEntry


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node as seen from here; ``process`` is None when it may run on another machine."""

    id: int
    address: str
    process: ProcessState | None
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
        return self.process in (ProcessState.STOPPED, ProcessState.SUSPENDED)

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
        return self.error.removeprefix(f"{Endpoint.parse(self.address)}: ")

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
            return refused.what_to_do(self.refusal)
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


_NEXT: dict[ProcessState | None, str] = {
    ProcessState.STOPPED: ": start it with 'paceline node restart {}'",
    ProcessState.SUSPENDED: ": let it go on with 'paceline node resume {}'",
}


@dataclass(frozen=True, slots=True)
class Survey:
    """The answers of all nodes, in order of their ids. ``start_with``: where the whole cluster is
    stopped, the command that starts it."""

    nodes: tuple[NodeView, ...]
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
        closed: dict[str, list[NodeView]] = {}
        for view in self.nodes:
            if view.is_closed:
                closed.setdefault(view.refusal, []).append(view)
        for refusal, views in closed.items():
            ids = ", ".join(str(view.id) for view in views)
            todo = refused.what_to_do(refusal)
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


async def survey(state: ClusterState) -> Survey:
    """Ask all nodes of a local cluster at once."""
    seen = await _ask_all(
        [(entry.id, state.native(entry), _process_of(entry)) for entry in state.nodes]
    )
    return Survey(tuple(_with_complaint(view, state.node(view.id)) for view in seen.nodes))


def _with_complaint(view: NodeView, entry: NodeEntry) -> NodeView:
    # A node serves clients only once it follows the quorum: until then only its log can tell.
    if view.state == UNREACHABLE:
        return replace(view, complaint=last_complaint(entry.log_path))
    # Whoever stops a node forgets its pid.
    if view.process is ProcessState.STOPPED and entry.pid is not None:
        return replace(view, ended=True, complaint=last_words(entry.log_path))
    return view


async def survey_addresses(addresses: Sequence[str]) -> Survey:
    """Ask the cluster behind any of the addresses: all brokers that the first answer names.

    Raises the last PacelineError when none answers.
    """
    last: PacelineError | None = None
    for address in addresses:
        try:
            status = await ask_status(address)
        except PacelineError as error:
            last = error
            continue
        asked = Endpoint.parse(address)
        pattern = Endpoint(asked.host, asked.port, None, asked.tls)
        found = [(broker.node_id, pattern.for_broker(broker)) for broker in status.brokers]
        return await _ask_all(
            [(int(node), where.url, None) for node, where in found if where is not None]
        )
    assert last is not None, "a cluster reference has at least one address"
    raise last


def _process_of(entry: NodeEntry) -> ProcessState:
    return processes.state_of(entry.pid, entry.pid_started)


async def _ask_all(nodes: Iterable[tuple[int, str, ProcessState | None]]) -> Survey:
    views: list[NodeView] = []

    async def ask(node_id: int, address: str, process: ProcessState | None) -> None:
        if process in (ProcessState.STOPPED, ProcessState.SUSPENDED):
            views.append(NodeView(node_id, address, process, None))
            return
        try:
            status = await ask_status(address)
        except (AuthorizationFailed, AuthenticationFailed) as error:
            views.append(NodeView(node_id, address, process, None, str(error), is_closed=True))
        except PacelineError as error:
            views.append(NodeView(node_id, address, process, None, str(error)))
        else:
            views.append(NodeView(node_id, address, process, status))

    async with trio.open_nursery() as nursery:
        for node in nodes:
            nursery.start_soon(ask, *node)
    return Survey(tuple(sorted(views, key=lambda view: view.id)))


async def with_internal_topics(seen: Survey) -> Survey:
    """The same, with how many topics are the brokers' own, where a node tells."""
    newest = seen.newest()
    asked = [view for view in seen.nodes if view.status is not None and view.status is newest]
    for view in asked:
        with contextlib.suppress(PacelineError):  # it has ended meanwhile
            return replace(seen, internal_topics=await count_internal_topics(view.address))
    return seen


async def tell_to_stop(state: ClusterState, entries: Iterable[NodeEntry]) -> None:
    """Tell each of these nodes that the whole cluster stops; one that does not answer is passed
    over, since SIGTERM follows anyway."""

    async def tell(address: str) -> None:
        try:
            await ask_to_stop(address)
        except PacelineError:
            return

    async with trio.open_nursery() as nursery:
        for entry in entries:
            nursery.start_soon(tell, state.native(entry))
