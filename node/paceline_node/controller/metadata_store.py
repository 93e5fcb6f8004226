"""The node's committed metadata image and those who wait for it to change.

Every broker holds one :class:`MetadataStore`, fed by its quorum in log order. Subscribers are
called synchronously, inside the step that applied the entry, so no task can see an image that a
subscriber has not yet seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID

import trio

from paceline.errors import RequestTimedOut
from paceline_node.controller.image import Image
from paceline_node.controller.metadata_records import decode_record

Subscriber = Callable[[Image, Image], None]


class MetadataStore:
    """Holds :attr:`image`. It is the quorum's ``StateMachine``; everybody else reads, subscribes or
    waits."""

    def __init__(self, cluster_id: UUID) -> None:
        self._image = Image(cluster_id)
        self._subscribers: list[Subscriber] = []
        self._waiters: list[_Waiter] = []

    @property
    def image(self) -> Image:
        """The newest committed image this node has applied."""
        return self._image

    def subscribe(self, callback: Subscriber) -> Callable[[], None]:
        """Call ``callback(old, new)`` on every new image, in the order of subscription; returns
        the function that ends the subscription."""
        self._subscribers.append(callback)

        def unsubscribe() -> None:
            self._subscribers.remove(callback)

        return unsubscribe

    # --- the quorum's side -----------------------------------------------------------------

    def apply(self, index: int, term: int, records: Sequence[bytes]) -> None:
        """Apply one committed entry. ``term`` is the quorum's business and not kept here."""
        self._replace(self._image.apply(index, [decode_record(data) for data in records]))

    def install(self, snapshot: bytes, index: int) -> None:
        """Replace the image by a snapshot taken at ``index``; never goes backwards."""
        image = Image.from_snapshot(snapshot)
        assert image.offset <= index, f"snapshot of {image.offset} installed at {index}"
        if index > image.offset:  # entries without records after the last applied one
            image = image.apply(index, ())
        if index > self._image.offset:
            self._replace(image)

    def snapshot(self) -> bytes:
        """The present image, for the quorum's log compaction."""
        return self._image.to_snapshot()

    def is_retired(self, directory_id: UUID) -> bool:
        """Whether a broker has left the cluster for good with this data directory."""
        return directory_id in self._image.retired

    def _replace(self, new: Image) -> None:
        old, self._image = self._image, new
        for callback in tuple(self._subscribers):
            callback(old, new)
        if self._waiters:
            self._waiters = [waiter for waiter in self._waiters if not waiter.wake(new)]

    # --- waiting ---------------------------------------------------------------------------

    async def wait_for(
        self, predicate: Callable[[Image], bool], timeout_s: float | None = None
    ) -> Image:
        """The first image, now or later, for which ``predicate`` holds.

        Raises RequestTimedOut after ``timeout_s`` seconds (None: waits for ever). Cancel-safe.
        """
        if predicate(self._image):
            return self._image
        waiter = _Waiter(predicate)
        self._waiters.append(waiter)
        try:
            with trio.move_on_after(float("inf") if timeout_s is None else timeout_s):
                await waiter.event.wait()
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
        if waiter.image is None:
            raise RequestTimedOut(f"metadata at offset {self._image.offset} after {timeout_s} s")
        return waiter.image

    async def wait_offset(self, offset: int, timeout_s: float | None = None) -> Image:
        """The image once entry ``offset`` is applied here. Raises as :meth:`wait_for`."""
        return await self.wait_for(lambda image: image.offset >= offset, timeout_s)

    @contextmanager
    def as_long_as(self, predicate: Callable[[Image], bool]) -> Iterator[trio.CancelScope]:
        """A block that the first image for which ``predicate`` does not hold cancels, the present
        one included; the scope's ``cancelled_caught`` tells afterwards."""
        with trio.CancelScope() as scope:

            def look(old: Image, new: Image) -> None:
                if not predicate(new):
                    scope.cancel()

            look(self._image, self._image)
            unsubscribe = self.subscribe(look)
            try:
                yield scope
            finally:
                unsubscribe()


class _Waiter:
    def __init__(self, predicate: Callable[[Image], bool]) -> None:
        self._predicate = predicate
        self.event = trio.Event()
        self.image: Image | None = None

    def wake(self, image: Image) -> bool:
        if self.image is None and self._predicate(image):
            self.image = image
            self.event.set()
        return self.image is not None
