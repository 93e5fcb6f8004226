"""A Cursus frame forwarded from the node that a client asked to the node that can serve it.

One hop at most: the receiver never forwards again. The frame's body, not compressed, is the payload
of the request; the body of the reply that the client is to get is the payload of the answer. An
ERROR frame says that nothing was done (NOT_LEADER).
"""

from __future__ import annotations

from paceline.values import dataclass
from paceline.wire.message import Message


@dataclass(frozen=True, slots=True)
class CursusFrame(Message):
    """``budget_ms`` is what is left of the request's time; ``classed`` whether the client has asked
    for classes in errors; ``account`` whom quotas count it for."""

    budget_ms: int
    classed: bool
    account: str = ""


@dataclass(frozen=True, slots=True)
class CursusReply(Message):
    """The payload holds the reply."""
