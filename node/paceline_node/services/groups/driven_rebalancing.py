"""Workers for the groups whose coordinator drives the consumers (``groups/driven_groups.py``).

The policy decides, but cannot wait: that a generation is committed before anyone is told of it, and
that partitions' leaders say where they begin and end, is waited for here. A few workers, whose
number is fixed, take group after group; a group is with one of them at a time. Beside them one task
watches topics, and the node's session with the controller.
"""

from __future__ import annotations

from collections.abc import Mapping

import structlog
import trio

from paceline.errors import PacelineError
from paceline.types import TopicId, is_internal_topic
from paceline.wire.coordinator.messages import BEGIN_AT_EARLIEST, BEGIN_AT_LATEST
from paceline_node.controller.group_topics import Lists
from paceline_node.controller.image import Image
from paceline_node.controller.metadata_store import MetadataStore
from paceline_node.groups.driven_reading import Reading
from paceline_node.groups.driven_rounds import Beginning
from paceline_node.groups.driven_state import Plan, RoundsDue
from paceline_node.groups.engine import GroupEngine
from paceline_node.groups.keys import GroupKey, TopicAndNumber
from paceline_node.loop_turns import SLICE_UNITS, Turns
from paceline_node.services.groups.group_service import GroupService
from paceline_node.services.groups.partition_bounds import BoundsService

WORKERS = 4
PARTITION = 0
"""Of ``__groups``, where all groups of the family are."""
_BOUNDS_S = 2.0
_LOOK_S = 0.5
_SLICES = 50
"""Of one group, before its worker turns to another."""
_PIECES = 400
_KIND = "log"


class Rebalancing:
    """Carries out what stands in ``due``."""

    def __init__(
        self,
        store: MetadataStore,
        groups: GroupService,
        bounds: BoundsService,
        due: RoundsDue,
        turns: Turns,
    ) -> None:
        self._store = store
        self._groups = groups
        self._bounds = bounds
        self._due = due
        self._turns = turns
        self._wanted = trio.Event()
        self._changed = trio.Event()
        self._busy: dict[GroupKey, bool] = {}
        """Groups that a worker is with, and whether they want another one."""
        self._readings: dict[GroupKey, Reading] = {}
        """What workers have begun to find out, and went on to other groups."""
        self._topics: Mapping[str, tuple[int, ...]] = {}
        self._topics_of: Image | None = None
        self._lists = Lists({})
        self._lists_of: Mapping[str, str] | None = None
        self._log = structlog.get_logger(component="rebalancing")
        due.wake = self._wake

    def _wake(self) -> None:
        self._wanted.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        unsubscribe = self._store.subscribe(self._image_changed)
        try:
            async with trio.open_nursery() as nursery:
                for _ in range(WORKERS):
                    nursery.start_soon(self._work)
                nursery.start_soon(self._watch_session)
                task_status.started()
                await self._watch_topics()
        finally:
            unsubscribe()

    def shut(self) -> None:
        """The node is about to stop: have its consumers look for another coordinator."""
        self._groups.tell(PARTITION, lambda engine: engine.coordinator.shut())

    # --- workers ----------------------------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            key = await self._next()
            self._busy[key] = False
            try:
                await self._round(key)
            except PacelineError as error:
                # The group's own timer wants another try, unless another node coordinates it now.
                self._log.info("round given up", group=str(key), error=str(error))
            finally:
                if self._busy.pop(key):
                    self._due.add(key)

    async def _next(self) -> GroupKey:
        while True:
            key = self._due.take()
            if key is None:
                self._wanted = trio.Event()
                await self._wanted.wait()
            elif key in self._busy:
                self._busy[key] = True
            else:
                return key

    async def _round(self, key: GroupKey) -> None:
        group = self._groups.inside(key)
        reading = self._readings.pop(key, None)
        if reading is None or reading.is_void:
            reading = await group.perform(
                lambda engine: engine.coordinator.look(key, self.topics(), self.lists())
            )
        if reading is None:
            return
        if not await self._finds_out(reading):
            self._readings[key] = reading
            self._busy[key] = True
            return
        for _ in range(_PIECES):  # what is left, as it may come as fast, is stored below
            if not await group.perform(lambda engine: engine.coordinator.store(key)):
                break
            await self._turns.next()
        found = reading
        plan = await group.perform(lambda engine: engine.coordinator.assign(key, found))
        if plan is None:
            return
        beginnings = await self._beginnings(plan)
        if any(each.is_new for each in beginnings.values()):
            await group.perform(lambda engine: engine.coordinator.settle(key, plan, beginnings))
        await group.perform(lambda engine: engine.coordinator.start(key, plan, beginnings))

    async def _finds_out(self, reading: Reading) -> bool:
        """Whether all is known after so many slices: whose consumers want much, other groups pass
        by."""
        for _ in range(_SLICES):
            await self._turns.next()
            spent, is_done = reading.go_on(SLICE_UNITS)
            self._turns.spent(spent)
            if is_done:
                return True
        return False

    async def _beginnings(self, plan: Plan) -> Mapping[TopicAndNumber, Beginning]:
        wanted = plan.from_smallest()
        found = await self._bounds.find(wanted, budget_s=_BOUNDS_S)
        beginnings = {}
        for at, from_smallest in wanted.items():
            committed = plan.committed.get(at)
            if at not in found:
                unknown = BEGIN_AT_EARLIEST if from_smallest else BEGIN_AT_LATEST
                beginnings[at] = Beginning(unknown if committed is None else committed)
                continue
            leader, bounds = found[at]
            if committed is not None and bounds.start <= committed <= bounds.end:
                offset = committed
            else:
                offset = bounds.start if from_smallest else bounds.end
            is_new = offset != committed and not from_smallest
            beginnings[at] = Beginning(offset, leader, bounds.leader_epoch, is_new=is_new)
        return beginnings

    # --- watching ---------------------------------------------------------------------------------

    def topics(self) -> Mapping[str, tuple[int, ...]]:
        """Partitions of every topic that consumers can read."""
        image = self._store.image
        if self._topics_of is None or self._topics_of.topics is not image.topics:
            self._topics = {
                topic.name: tuple(sorted(topic.partitions))
                for topic in image.topics.values()
                if topic.kind == _KIND and not is_internal_topic(topic.name)
            }
        self._topics_of = image
        return self._topics

    def lists(self) -> Lists:
        """What groups read whose consumers name nothing."""
        configs = self._store.image.configs
        if self._lists_of is not configs:
            self._lists, self._lists_of = Lists(configs), configs
        return self._lists

    def _image_changed(self, old: Image, new: Image) -> None:
        if old.topics is not new.topics or old.configs is not new.configs:
            self._changed.set()

    async def _watch_topics(self) -> None:
        told: tuple[Mapping[str, tuple[int, ...]], Mapping[str, str], set[TopicId]] | None = None
        while True:
            await self._changed.wait()
            self._changed = trio.Event()
            topics, lists = self.topics(), self.lists()
            readable = (topics, lists.texts, set(self._store.image.topics))
            if readable != told:
                told = readable
                self._groups.tell(PARTITION, lambda engine: engine.coordinator.topics_changed())

    async def _watch_session(self) -> None:
        """Channels close when it ends, not only when a ping is due."""
        while True:
            await trio.sleep(_LOOK_S)
            self._groups.tell(PARTITION, _close_if_leaderless)


def _close_if_leaderless(engine: GroupEngine) -> None:
    if not engine.serves:
        engine.coordinator.leaderless()
