"""What the controller is told of damage here, and of its repair (DESIGN 6).

The controller keeps a mark on each replica that reported damage, and lets it into no ISR until it
reports itself repaired. This keeps the two in step whatever is lost on the way: a report without an
answer is repeated, and a mark on a replica of which this process knows no damage (it was set for a
process before, or its report came late) is doubted by reading the whole log. A report of repair
names the registration that showed the mark, so that a late one is never taken for news.

It also tells of leaders that lack committed records, as their followers found out.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from paceline.errors import PacelineError
from paceline.types import NO_NODE, BrokerEpoch, NodeId
from paceline.wire.native.admin import Done
from paceline.wire.peer.control import (
    LackingRef,
    PartitionRef,
    RepairedRef,
    ReportDamagedRequest,
)
from paceline_node.replication.partition import Partition, PartitionKey
from paceline_node.replication.proposals import ControllerCalls

_ANSWER_S = 10.0


class DamageReports:
    """Damaged partitions, whether the controller knows of them, and those that are whole again.

    ``find`` looks up a hosted partition.
    """

    def __init__(
        self,
        node_id: NodeId,
        controller: ControllerCalls,
        find: Callable[[PartitionKey], Partition | None],
        broker_epoch: Callable[[], BrokerEpoch],
    ) -> None:
        self._node_id = node_id
        self._controller = controller
        self._find = find
        self._broker_epoch = broker_epoch
        self._damaged: dict[PartitionKey, bool] = {}  # whether the controller knows
        self._doubted: dict[PartitionKey, None] = {}
        self._whole: dict[PartitionKey, None] = {}
        self._lacking: dict[PartitionKey, LackingRef] = {}
        self._untold_lacking: dict[PartitionKey, LackingRef] = {}
        self._log = structlog.get_logger(component="repairs", node=node_id)

    @property
    def damaged(self) -> tuple[PartitionKey, ...]:
        """Partitions under repair."""
        return tuple(self._damaged)

    @property
    def doubted(self) -> tuple[PartitionKey, ...]:
        """Partitions whose mark nobody here can explain: to be read from end to end, now."""
        found = [(key, self._find(key)) for key in self._doubted]
        return tuple(key for key, each in found if each is None or not self._is_short(each))

    @property
    def at_rest(self) -> bool:
        """Whether nothing is damaged, doubted or to be told."""
        return not (
            self._damaged or self._doubted or self._untold_lacking or self._untold_repairs()
        )

    def knows(self, key: PartitionKey) -> bool:
        """Whether the controller was told that ``key`` is damaged."""
        return self._damaged.get(key, False)

    def found(self, key: PartitionKey, *, known: bool = False) -> bool:
        """``key`` is damaged (``known``: the registration said so); whether that is news."""
        self._whole.pop(key, None)
        self._doubted.pop(key, None)
        if key in self._damaged:
            return False
        self._damaged[key] = known
        return True

    def is_whole(self, key: PartitionKey) -> None:
        """All of ``key`` was repaired, or was read and found good."""
        self._damaged.pop(key, None)
        self._doubted.pop(key, None)
        self._whole[key] = None

    def forget(self, key: PartitionKey) -> None:
        """``key`` is not hosted here any more."""
        self._damaged.pop(key, None)
        self._doubted.pop(key, None)
        self._whole.pop(key, None)
        self._lacking.pop(key, None)
        self._untold_lacking.pop(key, None)

    def leader_lacks(self, partition: Partition, *, is_committed: bool) -> bool:
        """The leader of ``partition`` asked it to cut what is committed, or may be (its log is the
        longer one); whether that is news. To be told in any case: the controller had not taken it
        yet, or the leader would be another."""
        key = partition.key
        ref = LackingRef(
            *key, partition.leader_epoch, partition.high_watermark, is_committed=is_committed
        )
        before = self._lacking.get(key)
        self._lacking[key] = self._untold_lacking[key] = ref
        return before is None or before.leader_epoch != ref.leader_epoch

    def registered(self, partition: Partition) -> bool:
        """The metadata shows a new registration; whether there is something to do."""
        if not self._is_marked(partition):
            return False
        key = partition.key
        if key not in self._damaged and key not in self._whole:
            self._doubted[key] = None
        return True

    def _is_short(self, partition: Partition) -> bool:
        """Whether this replica is not complete, and no leader has answered it yet: what it has may
        be sound, but it may have lost the rest, or all. The mark keeps it from being taken for the
        best there is. (That there seems to be a leader says little: it may be dead.)"""
        registration, follower = partition.registration, partition.replica.follower
        if registration is None or registration.leader == self._node_id:
            return False
        if self._node_id in (*registration.isr, *registration.elr):
            return False
        return registration.leader == NO_NODE or follower is None or follower.confirmed < 0

    def _is_marked(self, partition: Partition) -> bool:
        registration = partition.registration
        return registration is not None and self._node_id in registration.damaged

    def _untold_repairs(self) -> list[Partition]:
        found = [self._find(key) for key in self._whole]
        return [each for each in found if each is not None and self._is_marked(each)]

    async def tell(self) -> None:
        """Report what the controller does not know; without an answer it is untold still."""
        untold = [key for key, known in self._damaged.items() if not known]
        repaired = self._untold_repairs()
        lacking = tuple(self._untold_lacking.values())
        if not (untold or repaired or lacking):
            return
        request = self._request(untold, repaired, lacking)
        try:
            await self._controller.call(request, Done, timeout_s=_ANSWER_S)
        except PacelineError as error:
            self._log.warning("damage report unanswered", reason=str(error))
            return
        for key in untold:
            if key in self._damaged:
                self._damaged[key] = True
        for ref in lacking:
            if self._untold_lacking.get((ref.topic_id, ref.partition)) is ref:
                del self._untold_lacking[ref.topic_id, ref.partition]

    def _request(
        self,
        untold: list[PartitionKey],
        repaired: list[Partition],
        lacking: tuple[LackingRef, ...],
    ) -> ReportDamagedRequest:
        lost: list[PartitionRef] = []
        holes: list[PartitionRef] = []
        for key in untold:
            partition = self._find(key)
            if partition is not None:
                sound_end = partition.log.recovery.reached_durable_mark
                (holes if sound_end else lost).append(PartitionRef(*key))
        whole = []
        for each in repaired:
            assert each.registration is not None
            whole.append(RepairedRef(*each.key, each.registration.partition_epoch))
        return ReportDamagedRequest(
            self._node_id, self._broker_epoch(), tuple(lost), tuple(holes), tuple(whole), lacking
        )
