"""Why a partition got another leader, for metrics and logs: read off the two registrations."""

from __future__ import annotations

import enum

from paceline.types import NO_NODE
from paceline_node.controller.image import Broker, Image
from paceline_node.controller.metadata_records import PartitionRegistration
from paceline_node.controller.partition_change import RECOVERY_UNCLEAN


class ElectionReason(enum.Enum):
    """Values are the label of the metric ``leader_elections``."""

    UNCLEAN = "unclean"  # nobody complete was left; records may be lost
    LEADERLESS = "leaderless"  # there was no leader, now somebody may lead again
    FENCED = "fenced"  # the former leader is gone or fenced
    SHUTDOWN = "shutdown"  # the former leader hands over before it stops
    DEGRADED = "degraded"  # the former leader's disk is slow or full
    PREFERRED = "preferred"  # back to the first replica, by the balancer or on request
    REQUESTED = "requested"  # to another one, on request
    RENEWED = "renewed"  # the same leader in a new epoch


def election_reason(
    before: PartitionRegistration, after: PartitionRegistration, image: Image
) -> ElectionReason | None:
    """Why ``after`` has the leader it has; ``image`` is the state with it. None when it has none,
    or when nothing was elected."""
    if after.leader == NO_NODE or after.leader_epoch == before.leader_epoch:
        return None
    complete = (*before.isr, *before.elr)
    if after.recovery == RECOVERY_UNCLEAN and after.leader not in complete:
        return ElectionReason.UNCLEAN
    if before.leader == NO_NODE:
        return ElectionReason.LEADERLESS
    if after.leader == before.leader:
        return ElectionReason.RENEWED
    return _why_not(image.brokers.get(before.leader)) or (
        ElectionReason.PREFERRED if after.leader == after.replicas[0] else ElectionReason.REQUESTED
    )


def _why_not(former: Broker | None) -> ElectionReason | None:
    """What keeps the former leader from leading, if anything does."""
    if former is None or former.fenced:
        return ElectionReason.FENCED
    if former.in_controlled_shutdown:
        return ElectionReason.SHUTDOWN
    if former.degraded:
        return ElectionReason.DEGRADED
    return None
