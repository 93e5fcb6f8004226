"""The request envelope: ``V1|<correlation_id>|<command>|<args>`` (spec v1 2).

::

    line      = *WS version *WS "|" *WS id *WS "|" *WS command *WS "|" args *WS
    version   = "V1"                exactly
    id        = 1*(any but "|")     echoed as it is
    command   = 1*(any but "|")     upper-cased
    args      = *any                may hold further "|"
"""

from __future__ import annotations

from paceline.values import dataclass
from paceline.wire.v1.errors import EXPECTED_FORMAT, bad_request
from paceline.wire.v1.text import WHITESPACE, decode

VERSION = "V1"
UNREADABLE_ID = "0"
"""Correlation id of the answer to a line whose envelope does not parse."""
_SECTIONS = 4


@dataclass(frozen=True, slots=True)
class Envelope:
    """A line whose four sections are there; ``args`` is trimmed but not split."""

    correlation: str
    command: str
    args: str


def parse_envelope(line: bytes) -> Envelope:
    """The envelope of one line (without its end).

    Raises V1Error BAD_REQUEST, to be answered under UNREADABLE_ID; the checks run in the order of
    section count, version, correlation id, command.
    """
    sections = decode(line).strip(WHITESPACE).split("|", _SECTIONS - 1)
    if len(sections) < _SECTIONS:
        raise bad_request(EXPECTED_FORMAT)
    version, correlation, command, args = [section.strip(WHITESPACE) for section in sections]
    if version != VERSION:
        raise bad_request("unsupported version")
    if not correlation:
        raise bad_request("correlation id required")
    if not command:
        raise bad_request("command required")
    return Envelope(correlation, command.upper(), args)
