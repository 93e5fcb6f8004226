"""From which metadata a process may take its roles. Pure."""

from __future__ import annotations


class RegistrationGate:
    """No role is taken from metadata older than this process's own registration (DESIGN 3.1, I21).

    A restarted broker would otherwise act on a record in which it still leads, and append batches
    of an old epoch behind newer ones.
    """

    def __init__(self) -> None:
        self._registered_at: int | None = None

    def registered(self, offset: int) -> None:
        """This process was registered by the metadata record at ``offset``."""
        self._registered_at = offset

    def admits(self, image_offset: int) -> bool:
        """Whether roles may be taken from an image at that offset."""
        return self._registered_at is not None and image_offset >= self._registered_at
