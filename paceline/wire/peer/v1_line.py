"""A V1 request forwarded from the node that a client asked to the node that can serve it.

One hop at most (services/DESIGN 3.2): the receiver never forwards again. It answers with the
payload of the OK line, with V1's own refusal, or with an ERROR frame that says nothing was done
(NOT_LEADER).
"""

from __future__ import annotations

from paceline.values import dataclass
from paceline.wire.message import Message


@dataclass(frozen=True, slots=True)
class V1Line(Message):
    """``command`` and ``args`` as in the line, the latter with surrogate escapes encoded back to
    bytes; ``budget_ms`` is what is left of the request's time."""

    command: str
    args: bytes
    budget_ms: int


@dataclass(frozen=True, slots=True)
class V1Answer(Message):
    """``code`` is empty for OK; otherwise it is V1's error code and ``payload`` its message."""

    code: str
    payload: bytes
