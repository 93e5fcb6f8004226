"""A seeded discrete-event world: one heap of events, a faulty network, a metadata authority.

The authority is the controller's own decision code (``controller.state.handle``) over one image,
always available, reached over the faulty network. Brokers learn of its images late, and may skip
some (stale and merged metadata). Everything is drawn from the seed; nothing runs but one loop.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from paceline.errors import PacelineError
from paceline.types import NodeId
from paceline.wire.message import Message
from paceline_node.controller import durable_offsets, elections, request_handlers
from paceline_node.controller.context import Context, ControllerSettings, Draft, Position
from paceline_node.controller.image import Image
from paceline_node.controller.liveness import Sessions
from paceline_node.controller.metadata_records import NoOp, PartitionRegistration, Record

CLUSTER = UUID(int=1)
TOPIC = "sim"
SESSION_S = 0.6
AUTHORITY = -1
NOTE_S = 0.2
"""How often the authority notes what each broker holds of the metadata (controller/DESIGN 2.8)."""


@dataclass(frozen=True)
class NetworkFaults:
    """Message faults. ``slow`` is the share of messages that take up to ``slow_s``."""

    loss: float = 0.01
    duplicate: float = 0.02
    slow: float = 0.02
    slow_s: float = 0.4
    metadata_s: float = 0.05
    proposal_s: float = 0.0


class World:
    """Time, events, network. ``touched`` are the brokers that the running event concerns, and
    AUTHORITY if it changed metadata: only they are checked after it."""

    def __init__(self, seed: int, faults: NetworkFaults) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.faults = faults
        self.cuts: set[tuple[int, int]] = set()
        self.healed = False
        self.touched: set[int] = set()
        self.trace: list[str] = []
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.after_event: Callable[[], None] = lambda: None

    def after(self, delay: float, event: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (self.now + delay, self._count, event))

    def run(self, until: float) -> None:
        while self._heap and self._heap[0][0] <= until:
            self.now, _, event = heapq.heappop(self._heap)
            event()
            if self.touched:
                self.after_event()
                self.touched.clear()
        self.now = until

    def note(self, text: str) -> None:
        self.trace.append(f"{self.now:8.3f} {text}")

    def send(
        self, source: int, target: int, deliver: Callable[[], None], *, extra_s: float = 0.0
    ) -> None:
        """One message: maybe lost, maybe twice, maybe late and so behind a later one."""
        rng, faults = self.rng, self.faults
        if self.healed:
            self.after(0.001, deliver)
            return
        copies = 2 if rng.random() < faults.duplicate else 1
        for _ in range(copies):
            if rng.random() < faults.loss:
                continue
            delay = rng.uniform(0.0005, 0.004)
            if rng.random() < faults.slow:
                delay = rng.uniform(0.0, faults.slow_s)
            if extra_s and rng.random() < 0.5:
                delay += rng.uniform(0.0, extra_s)
            self.after(delay, lambda: self._arrive(source, target, deliver))

    def _arrive(self, source: int, target: int, deliver: Callable[[], None]) -> None:
        if (source, target) not in self.cuts:
            deliver()


class Authority:
    """The controller: every decision is one image, kept for those who lag behind."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.history = [Image.bootstrap(CLUSTER)]
        self.sessions = Sessions(SESSION_S)
        self.partition: PartitionRegistration | None = None
        self._settings = ControllerSettings(session_timeout_s=SESSION_S, internal_topics=())
        self._ids = random.Random(world.rng.random())
        self.on_change: Callable[[Image, Image], None] = lambda old, new: None
        self.on_handled: Callable[[Message], None] = lambda request: None
        world.after(0.05, self._expire)
        world.after(NOTE_S, self._note_durable)

    @property
    def image(self) -> Image:
        return self.history[-1]

    def handle(self, sender: NodeId | None, request: Message) -> Message:
        context = Context(
            self.image,
            self._world.now,
            0,
            self._settings,
            self.sessions,
            lambda: UUID(int=self._ids.getrandbits(128), version=4),
        )
        outcome = request_handlers.handle(sender, request, context)
        self._append(outcome.records)
        reply = outcome.reply(Position(self.image.offset, 1))
        self.on_handled(request)
        return reply

    def _append(self, records: tuple[Record, ...]) -> None:
        if records:
            old = self.image
            self.history.append(old.apply(old.offset + 1, records))
            topic = self.image.find_topic(TOPIC)
            self.partition = None if topic is None else topic.partitions[0]
            self._world.touched.add(AUTHORITY)
            self.on_change(old, self.image)

    def noted(self, node: NodeId) -> int:
        """What ``node`` is known to hold of the metadata for good."""
        return self.image.durable_offsets.get(node, durable_offsets.NOT_KNOWN)

    def _note_durable(self) -> None:
        image = self.image
        news = durable_offsets.news(image.brokers, image.durable_offsets, self.sessions)
        self._append((NoOp(0, news),))
        self._world.after(NOTE_S, self._note_durable)

    def _expire(self) -> None:
        for node, broker in sorted(self.image.brokers.items()):
            if not broker.fenced and not self.sessions.alive(node, self._world.now):
                draft = Draft(self.image)
                elections.fence(draft, node)
                self._append(tuple(draft.records))
        self._world.after(0.05, self._expire)

    def ask(
        self,
        node: NodeId,
        request: Message,
        answered: Callable[[Message | PacelineError], None],
        *,
        extra_s: float = 0.0,
    ) -> None:
        """A request from a broker over the network; the answer may be lost as well."""

        def arrive() -> None:
            answer: Message | PacelineError
            try:
                answer = self.handle(node, request)
            except PacelineError as error:
                answer = error
            self._world.send(AUTHORITY, node, lambda: answered(answer))

        self._world.send(node, AUTHORITY, arrive, extra_s=extra_s)
