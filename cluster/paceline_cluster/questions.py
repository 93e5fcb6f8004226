"""What ``paceline check`` asks of a survey of the cluster: one function a question, pure but for
the clock by which certificates end. Their docstrings are the commands' help.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from paceline.counted import counted
from paceline.documents.survey import Survey
from paceline.health import CheckName, date_of, unhealthy
from paceline.wire.native.data import StatusReply
from paceline_cluster.verdicts import (
    Finding,
    Measure,
    Status,
    Thresholds,
    Verdict,
    finding_of,
    measured,
)

_DAY_S = 24 * 3600


def _answers(seen: Survey) -> Iterator[tuple[int, StatusReply]]:
    for view in seen.nodes:
        if view.status is not None:
            yield view.id, view.status


def _silent(seen: Survey) -> Iterator[Finding]:
    """Nodes of which it cannot be said."""
    if seen.start_with:
        yield from (Finding(Status.UNKNOWN, each.reason) for each in seen.findings())
        return
    for view in seen.nodes:
        if view.status is None:
            told = "; ".join(view.problems())
            yield Finding(Status.UNKNOWN, told, view.what_to_do(), node=view.id)


def health(seen: Survey) -> Verdict:
    """Say what 'paceline health' says: everything that is to be mended."""
    found = unhealthy(seen.findings())
    return Verdict("health", "the cluster is healthy", tuple(map(finding_of, found)))


def quorum(
    seen: Survey, expect: int | None, warning: float | None, critical: float | None
) -> Verdict:
    """Ask whether the metadata quorum has a controller, all its voters, and nodes that keep up."""
    newest = seen.newest()
    others = [finding_of(each) for each in seen.findings() if each.name == CheckName.QUORUM]
    others += _silent(seen)
    if newest is None:
        return Verdict("quorum", "", tuple(others))
    count = len(newest.voters)
    if expect is not None and count != expect:
        todo = "'paceline quorum describe' shows them"
        others.append(
            Finding(
                Status.CRITICAL, f"{counted(count, 'node votes', 'nodes vote')}, not {expect}", todo
            )
        )
    commit = max(status.commit_offset for _, status in _answers(seen))
    limits = Thresholds(warning, critical)
    measures = [
        Measure("lag", max(0, commit - status.image_offset), "", limits, node)
        for node, status in _answers(seen)
    ]
    return measured(
        "quorum",
        f"{counted(count, 'node votes', 'nodes vote')}, and node {seen.controller} leads",
        [*measures, Measure("voters", count)],
        lambda each: (
            f"node {each.node} is {each.value:g} metadata records behind",
            "see whether it reaches the controller",
        ),
        others,
    )


def partitions(seen: Survey, warning: float | None, critical: float | None) -> Verdict:
    """Ask whether all partitions are led, and have their replicas in sync.

    A partition without leader, or with less replicas in sync than min.insync.replicas, is critical
    in any case, and so is that there is no controller: they refuse writes.
    """
    newest = seen.newest()
    if newest is None:
        return Verdict("partitions", "", tuple(_silent(seen)))
    leaderless = seen.leaderless()
    hard = {CheckName.LEADERS, CheckName.MIN_ISR}
    if seen.controller is None:
        hard.add(CheckName.QUORUM)
    return measured(
        "partitions",
        f"all {newest.partition_count} partitions are led and in sync"
        if not newest.under_replicated_count
        else f"{newest.under_replicated_count} of {newest.partition_count} under-replicated",
        [
            Measure(
                "under_replicated",
                newest.under_replicated_count,
                thresholds=Thresholds(warning, critical),
            ),
            Measure("under_min_isr", newest.under_min_isr_count),
            *([] if leaderless is None else [Measure("leaderless", leaderless)]),
            Measure("partitions", newest.partition_count),
        ],
        lambda each: (
            f"{each.value:g} of {newest.partition_count} partitions under-replicated",
            "start the nodes that have the other replicas; they catch up by themselves",
        ),
        [finding_of(each) for each in seen.findings() if each.name in hard],
    )


def disk(seen: Survey, warning: float | None, critical: float | None) -> Verdict:
    """Ask how much of the nodes' disks is free, and whether they are full or slow."""
    wrong = (CheckName.DISK_SPACE, CheckName.DISK_SPEED)
    others = [finding_of(each) for each in seen.findings() if each.name in wrong]
    others += _silent(seen)
    limits = Thresholds(warning, critical, is_floor=True)
    measures = []
    for node, status in _answers(seen):
        if status.disk_bytes > 0:
            part = 100 * status.disk_free_bytes / status.disk_bytes
            measures.append(Measure("disk_free", round(part, 1), "%", limits, node))
        else:
            others.append(Finding(Status.UNKNOWN, f"node {node} does not know its disk", node=node))
    least = min((each.value for each in measures), default=0)
    return measured(
        "disk",
        f"at least {least:g} % of each disk is free",
        measures,
        lambda each: (
            f"node {each.node} has {each.value:g} % of its disk free",
            "make room: shorter retention, 'paceline topic trim', or a larger disk",
        ),
        others,
    )


def certificates(seen: Survey, warning: float | None, critical: float | None) -> Verdict:
    """Ask how long the nodes' certificates are good, and whether new ones could be used."""
    limits = Thresholds(warning, critical, is_floor=True)
    now = time.time()
    ends = {(node, each.setting): each.ends for node, each in seen.certificates()}
    measures = [
        Measure(setting, round((until - now) / _DAY_S, 2), "", limits, node)
        for (node, setting), until in ends.items()
    ]
    refused = [
        finding_of(each)
        for each in seen.findings()
        if each.name == CheckName.CERTIFICATES and "not in force" in each.reason
    ]
    least = min((each.value for each in measures), default=0)
    return measured(
        "certificates",
        f"good for {least:g} days" if measures else "nothing is encrypted",
        measures,
        lambda each: (
            f"node {each.node}: {each.name} ends on {date_of(ends[each.node or 0, each.name])}",
            "write new files and send the node SIGHUP",
        ),
        [*refused, *_silent(seen)],
    )


def event_loop(seen: Survey, warning: float | None, critical: float | None) -> Verdict:
    """Ask how long a node's process stood still; nodes that do lose their sessions."""
    limits = Thresholds(warning, critical)
    measures = [
        Measure("loop_delay", status.loop_delay_ms / 1000, "s", limits, node)
        for node, status in _answers(seen)
        if status.loop_delay_ms >= 0
    ]
    most = max((each.value for each in measures), default=0)
    return measured(
        "event-loop",
        f"no node stood still for more than {most:g} s",
        measures,
        lambda each: (
            f"node {each.node} stood still for {each.value:g} s",
            "give it more of a processor, or raise broker.session_ms to four times that",
        ),
        _silent(seen),
    )
