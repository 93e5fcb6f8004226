"""The request envelope: ``V1|<correlation_id>|<command>|<args>`` (DESIGN 1.2).

::

    line      = *WS version *WS "|" *WS id *WS "|" *WS command *WS "|" args *WS
    version   = "V1"                exactly
    id        = 1*(any but "|")     echoed as it is
    command   = 1*(any but "|")     upper-cased
    args      = *any                may hold further "|"
"""

from __future__ import annotations

from paceline.values import dataclass
from paceline.wire.v1.errors import EXPECTED_FORMAT, V1Code, V1Error, bad_request
from paceline.wire.v1.text import WHITESPACE, decode

VERSION = "V1"
UNREADABLE_ID = "0"
"""Correlation id of the answer to a line whose envelope does not parse."""
_SECTIONS = 4
_HTTP_METHODS = frozenset(
    ("CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE", "PRI")
)


class NotV1(V1Error):
    """A line that is of another protocol. Whoever sends it does not know what the lines behind it
    say here: a web page may have a browser post anything to a port, and only the first line is
    HTTP's own."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """A line whose four sections are there; ``args`` is trimmed but not split."""

    correlation: str
    command: str
    args: str


def parse_envelope(line: bytes) -> Envelope:
    """The envelope of one line (without its end).

    Raises V1Error BAD_REQUEST, to be answered under UNREADABLE_ID; the checks run in the order of
    section count, version, correlation id, command. What fails the first two is NotV1: the
    connection is to be closed.
    """
    sections = decode(line).strip(WHITESPACE).split("|", _SECTIONS - 1)
    if len(sections) < _SECTIONS:
        if sections[0].partition(" ")[0] in _HTTP_METHODS:
            raise NotV1(V1Code.BAD_REQUEST, "this port speaks V1 lines, not HTTP")
        raise NotV1(V1Code.BAD_REQUEST, EXPECTED_FORMAT)
    version, correlation, command, args = [section.strip(WHITESPACE) for section in sections]
    if version != VERSION:
        raise NotV1(V1Code.BAD_REQUEST, "unsupported version")
    if not correlation:
        raise bad_request("correlation id required")
    if not command:
        raise bad_request("command required")
    return Envelope(correlation, command.upper(), args)
