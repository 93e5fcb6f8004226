"""What a handler is told beside the request itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from paceline.types import KAFKA_ENDPOINT
from paceline.wire.kafka.layout import Struct
from paceline_node.client_memory import Portion
from paceline_node.request_pace import Pace
from paceline_node.security.principals import Principal

LISTENER = KAFKA_ENDPOINT
"""The kind whose advertised addresses these clients are told (services/DESIGN 3.3)."""


class Call(NamedTuple):
    """One request: its version, and who asks. ``host`` is for descriptions and logs. Of ``room``
    memory is taken before something large is made for the answer; the connection gives it back.
    What grows with what the request names, or with what there is to tell, is done at ``pace``.
    ``account``: whom quotas count it for."""

    version: int
    principal: Principal
    client_id: str
    host: str
    room: Portion
    pace: Pace
    account: str = ""


Handler = Callable[[Any, Call], Awaitable[Struct]]
"""Answers one request. Raises RemoteProtocolError for what no client may send; every other error
is told in the response."""
Handlers = Mapping[int, Handler]
"""By API key."""
