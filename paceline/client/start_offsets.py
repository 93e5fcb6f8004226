"""Where partitions begin of which a group has committed nothing: each when its leader says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import trio

from paceline.client.offsets import OffsetFinder
from paceline.client.retry import Backoff
from paceline.errors import PacelineError
from paceline.types import Isolation, OffsetSpec, TopicPartition
from paceline.wire.native.data import OffsetFound

_MISSING_ATTEMPTS = 5

Specs = Mapping[TopicPartition, OffsetSpec]


class StartOffsets:
    """``waiting`` are the partitions that have not begun yet; ``specs`` says whether some begin at
    their start or their end, and may raise any PacelineError."""

    def __init__(
        self,
        finder: OffsetFinder,
        backoff: Backoff,
        *,
        isolation: Isolation,
        specs: Callable[[Sequence[TopicPartition]], Awaitable[Specs]],
    ) -> None:
        self.waiting: set[TopicPartition] = set()
        self._finder = finder
        self._backoff = backoff
        self._isolation = isolation
        self._specs = specs
        self._asking: set[trio.CancelScope] = set()
        self._changed = trio.Event()

    def clear(self) -> None:
        """Partitions move: what is asked for now is void."""
        self.waiting.clear()
        for each in self._asking:
            each.cancel()
        self._asking.clear()
        self._changed.set()

    def forget(self, at: TopicPartition) -> bool:
        """Another place was found for it; whether it still waited."""
        waited = at in self.waiting
        self.waiting.discard(at)
        self._changed.set()
        return waited

    async def settled(self, within_s: float) -> bool:
        """Wait until none waits, a while at most; whether none does."""
        with trio.move_on_after(within_s):
            while self.waiting:
                self._changed = trio.Event()
                await self._changed.wait()
        return not self.waiting

    def expect(self, partitions: Sequence[TopicPartition]) -> None:
        """These wait from now on, for :meth:`run`."""
        self.waiting.update(partitions)

    async def run(
        self, partitions: Sequence[TopicPartition], begin: Callable[[TopicPartition, int], None]
    ) -> None:
        """Call ``begin`` for each, unless they are cleared before. Raises what asking again cannot
        help; a topic that is not there may come."""
        with trio.CancelScope() as asking:
            self._asking.add(asking)
            try:
                await self._run(partitions, begin, asking)
            finally:
                self._asking.discard(asking)

    async def _run(
        self,
        partitions: Sequence[TopicPartition],
        begin: Callable[[TopicPartition, int], None],
        asking: trio.CancelScope,
    ) -> None:
        def landed(at: TopicPartition, found: OffsetFound) -> None:
            if asking in self._asking and self.forget(at):
                begin(at, found.offset)

        while rest := [at for at in partitions if at in self.waiting]:
            try:
                specs = await self._specs(rest)
                await self._finder.find(specs, self._isolation, landed=landed)
            except PacelineError as error:
                if not error.retriable:
                    raise
                await trio.sleep(self._backoff.pause_s(_MISSING_ATTEMPTS))
            else:
                return
