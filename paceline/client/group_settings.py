"""What a program may say about its membership in a consumer group."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.assignors.registry import Assignor
from paceline.errors import ConfigurationError
from paceline.types import TopicPartition
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """``session_timeout_s``: a member not heard of for so long loses its partitions to the others
    (nodes set bounds; heartbeats are sent three times as often). ``rebalance_timeout_s``: how long
    a member may take to give up its partitions, callbacks included. ``assignors`` by preference;
    the group uses one that all members know. ``instance_id`` makes a static member: it may restart
    within its session without any partition moving, and does not leave when it is closed.

    ``auto_commit_s``: how often what is done is committed; None: only when the program does it, but
    for where partitions begin with ``OutOfRange.LATEST``, which a restart would not find again.
    Either way nothing is committed before the next record was asked for.

    ``max_poll_interval_s``: a program that has not asked for the next record for so long (it hangs)
    leaves the group, and its partitions go to others; it joins again when it asks. None: never.
    """

    session_timeout_s: float = 10.0
    rebalance_timeout_s: float = 60.0
    assignors: tuple[Assignor, ...] = (Assignor.RANGE,)
    instance_id: str | None = None
    auto_commit_s: float | None = 5.0
    max_poll_interval_s: float | None = 300.0

    def __post_init__(self) -> None:
        if not self.assignors:
            raise ConfigurationError("assignors: at least one is needed")
        if not 0 < self.session_timeout_s <= self.rebalance_timeout_s:
            raise ConfigurationError(
                f"session_timeout_s {self.session_timeout_s}: expected above 0 and at most "
                f"rebalance_timeout_s {self.rebalance_timeout_s}"
            )
        if self.auto_commit_s is not None and self.auto_commit_s <= 0:
            raise ConfigurationError("auto_commit_s must be above 0, or None")
        if self.max_poll_interval_s is not None and self.max_poll_interval_s <= 0:
            raise ConfigurationError("max_poll_interval_s must be above 0, or None")
        if self.instance_id == "":
            raise ConfigurationError("instance_id must not be empty; None is a dynamic member")


class RebalanceListener:
    """Told when partitions come and go; override what is of interest.

    Each call is awaited before the partitions move, within the rebalance timeout; an error ends the
    consumer. No record is handed out meanwhile; heartbeats go on.
    """

    async def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """These are read from now on; the consumer may seek and pause them here."""

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """These will be given up; their offsets may still be committed here."""

    async def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """These are gone: the group gave up on this member, others may read them already."""
