"""Producer ids that nobody can guess, each one principal's (DESIGN 6).

    bit 62 set, and below it a number that the controller gives out once, permuted under a key that
    nodes derive from the cluster's secret and the principal's name

The number has 40 bits, so who unpermutes an id under another name finds one that is too large, but
once in four million.
"""

from __future__ import annotations

import hmac

SEALED = 1 << 62
"""From here on ids are sealed; below they are as the controller gave them out."""
NUMBERS_MAX = 1 << 40
_HALF_BITS = 31
_HALF = (1 << _HALF_BITS) - 1
_ROUNDS = 6
_KEPT_MAX = 10_000


class ProducerIds:
    """``secret`` is the same on all nodes."""

    def __init__(self, secret: bytes) -> None:
        self._key = hmac.digest(secret, b"producer ids", "sha256")
        self._answers: dict[tuple[int, str], bool] = {}

    def sealed(self, number: int, name: str) -> int:
        """The id of ``number`` for ``name``: no two of a name are the same."""
        assert 0 <= number < NUMBERS_MAX, number
        left, right = number >> _HALF_BITS, number & _HALF
        for turn in range(_ROUNDS):
            left, right = right, left ^ self._mixed(turn, right, name)
        return SEALED | left << _HALF_BITS | right

    def is_of(self, producer_id: int, name: str) -> bool:
        """Whether ``name`` got that id; true for one that is not sealed."""
        if producer_id < SEALED:
            return True
        key = producer_id, name
        answer = self._answers.get(key)
        if answer is None:
            if len(self._answers) >= _KEPT_MAX:
                self._answers.clear()
            answer = self._answers[key] = self._number(producer_id, name) < NUMBERS_MAX
        return answer

    def _number(self, producer_id: int, name: str) -> int:
        left, right = producer_id >> _HALF_BITS & _HALF, producer_id & _HALF
        for turn in reversed(range(_ROUNDS)):
            left, right = right ^ self._mixed(turn, left, name), left
        return left << _HALF_BITS | right

    def _mixed(self, turn: int, half: int, name: str) -> int:
        message = b"%d %d " % (turn, half) + name.encode()
        return int.from_bytes(hmac.digest(self._key, message, "sha256")[:4], "big") & _HALF
