"""The newest offset of each key in a part of a log, in bounded memory. Pure."""

from __future__ import annotations

from hashlib import blake2b

_DIGEST_BYTES = 16


class KeyMap:
    """Holds at most about ``limit`` keys, as digests: some 150 bytes each, however long they are.

    ``secret`` makes digests unpredictable, so that nobody can choose two keys that are one here.
    """

    def __init__(self, limit: int, secret: bytes) -> None:
        self._limit = limit
        self._secret = secret
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def has_room(self, count: int) -> bool:
        """Whether ``count`` keys may be added. An empty map takes any number: a batch's."""
        return not self._offsets or len(self._offsets) + count <= self._limit

    def note(self, key: bytes, offset: int) -> None:
        """``key`` occurs at ``offset``, behind all noted before."""
        self._offsets[self._digest(key)] = offset

    def newest(self, key: bytes) -> int:
        """The last offset noted for ``key``; -1: none."""
        return self._offsets.get(self._digest(key), -1)

    def _digest(self, key: bytes) -> bytes:
        return blake2b(key, digest_size=_DIGEST_BYTES, key=self._secret).digest()
