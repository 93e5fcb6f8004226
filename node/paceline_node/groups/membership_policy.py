"""What a family's membership policy is to the engine.

A policy owns what its protocol means by joining, generations and expiry; state, sessions, offsets
and the log are the engine's (DESIGN 1.1). Its commands are methods of its own, called while its
node leads. To add a family: a policy here, its place in ``engine.py``, nothing else. What there is
for it: ``GroupKey.subject`` for groups per topic, ``GroupContext.new_id`` for member ids,
``paceline/assignors/`` and ``Member.partitions`` where the broker assigns, ``OffsetRule.FORWARD``
for commits that never go back.
"""

from __future__ import annotations

from typing import Protocol

from paceline.errors import PacelineError
from paceline_node.groups.keys import GroupKey
from paceline_node.groups.records import Group


class MembershipPolicy(Protocol):
    """Called by the engine, synchronously."""

    @property
    def rebalances(self) -> int:
        """How often members had to be assigned anew."""

    def resume(self, key: GroupKey, group: Group) -> None:
        """This node leads now; ``group`` has members, who were just given fresh sessions."""

    def on_alarm(self, key: GroupKey) -> float:
        """Do what is due; when to be called again, inf for never. May raise what writing does."""

    def state(self, key: GroupKey) -> str:
        """The group's state in Kafka's words."""

    def member_count(self, key: GroupKey) -> int:
        """Members, those that are still joining included."""

    def reads(self, key: GroupKey, topic: str) -> bool:
        """Whether members read ``topic`` now, as far as the broker can know."""

    def resign(self, error: PacelineError) -> None:
        """Tell everyone who waits, and forget what is volatile."""
