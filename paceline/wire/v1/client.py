"""The client's side of V1, sans I/O: writing request lines, reading replies.

Meant for our own tests and scripts; the native client is the one to build on.
"""

from __future__ import annotations

import re

from paceline.errors import LocalProtocolError, RemoteProtocolError
from paceline.values import dataclass
from paceline.wire.v1.errors import V1Code, V1Error
from paceline.wire.v1.requests import ValueEncoding
from paceline.wire.v1.text import decode, encode, percent_decode, percent_encode

_MESSAGES = b"messages="
_RECORDS = b"records="


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply line: ``payload`` of an OK, or the ``error`` of an ERR."""

    correlation: str
    payload: bytes = b""
    error: V1Error | None = None

    def result(self) -> bytes:
        """The payload; raises the reply's V1Error."""
        if self.error is not None:
            raise self.error
        return self.payload


@dataclass(frozen=True, slots=True)
class Message:
    """One item of a ``messages=`` or ``records=`` list; ``key`` None when the list has none."""

    offset: int
    key: bytes | None
    value: bytes


def request_line(correlation: str, command: str, args: bytes | str = b"") -> bytes:
    """A request with its LF. Raises LocalProtocolError for what would be read as another one."""
    raw = encode(args) if isinstance(args, str) else args
    line = encode(f"V1|{correlation}|{command}|") + raw
    if b"\n" in line or "|" in correlation or "|" in command:
        raise LocalProtocolError(f"{command}: a line break or separator inside the request")
    return line + b"\n"


def produce_args(topic: str, key: bytes, value: bytes, *, acks: str = "1") -> bytes:
    """Arguments of a PRODUCE that carries any bytes (``enc=pct``)."""
    message = f"{percent_encode(key)}:{percent_encode(value)}"
    return f"{topic} {message} acks={acks} enc=pct".encode()


def parse_reply(line: bytes) -> Reply:
    """One reply line without its LF. Raises RemoteProtocolError."""
    sections = line.split(b"|", 3)
    if len(sections) < 3 or sections[0] != b"V1":
        raise RemoteProtocolError(f"not a V1 reply: {line[:80]!r}")
    correlation = decode(sections[1])
    rest = sections[3] if len(sections) == 4 else b""
    if sections[2] == b"OK":
        return Reply(correlation, rest)
    code, separator, message = rest.partition(b"|")
    if sections[2] != b"ERR" or not separator:
        raise RemoteProtocolError(f"neither OK nor ERR: {line[:80]!r}")
    try:
        reason = V1Code(decode(code))
    except ValueError:
        raise RemoteProtocolError(f"unknown error code {code[:80]!r}") from None
    return Reply(correlation, error=V1Error(reason, decode(message)))


def text_field(payload: bytes, name: str) -> str:
    """The value of ``name=`` up to the next blank. Raises RemoteProtocolError when missing."""
    match = re.search(rf"(?:^| ){re.escape(name)}=(\[[^\]]*\]|\S*)", decode(payload))
    if match is None:
        raise RemoteProtocolError(f"no field {name} in {payload[:80]!r}")
    return match[1]


def integer_field(payload: bytes, name: str) -> int:
    """An integer field. Raises RemoteProtocolError."""
    text = text_field(payload, name)
    if re.fullmatch("-?[0-9]{1,19}", text) is None:
        raise RemoteProtocolError(f"field {name} is no integer: {text[:80]!r}")
    return int(text)


def list_field(payload: bytes, name: str) -> list[str]:
    """The items of a ``[a b]`` field. Raises RemoteProtocolError."""
    text = text_field(payload, name)
    if not (text.startswith("[") and text.endswith("]")):
        raise RemoteProtocolError(f"field {name} is no list: {text[:80]!r}")
    return text[1:-1].split()


def parse_messages(payload: bytes, *, with_keys: bool = False) -> list[Message]:
    """The records of a CONSUME or BROKER_FETCH reply; ``with_keys`` as the request asked.

    Whether values are percent-encoded is read from the reply. Raises RemoteProtocolError.
    """
    if payload.startswith(_MESSAGES):
        listed, separator, tail = payload[len(_MESSAGES) :].partition(b" hw=")
        if not separator:
            raise RemoteProtocolError("messages= without hw=")
    else:
        _, separator, listed = payload.partition(_RECORDS)
        tail = b""
        if not separator:
            raise RemoteProtocolError(f"no records in {payload[:80]!r}")
    encoding = ValueEncoding.PERCENT if tail.endswith(b" enc=pct") else ValueEncoding.PLAIN
    if not listed:
        return []
    return [_message(item, encoding, with_keys) for item in listed.split(b",")]


def _message(item: bytes, encoding: ValueEncoding, with_keys: bool) -> Message:
    offset, separator, value = item.partition(b":")
    key: bytes | None = None
    if with_keys:
        key, separator, value = value.partition(b":")
    if not separator or re.fullmatch(b"[0-9]{1,19}", offset) is None:
        raise RemoteProtocolError(f"not offset:value: {item[:80]!r}")
    if encoding is ValueEncoding.PLAIN:
        return Message(int(offset), key, value)
    try:
        return Message(
            int(offset), None if key is None else percent_decode(key), percent_decode(value)
        )
    except V1Error as error:
        raise RemoteProtocolError(f"{item[:80]!r}: {error.message}") from None
