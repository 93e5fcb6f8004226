"""Java's modified UTF-8, as ``java.io.DataOutput.writeUTF`` defines it (DESIGN 1.3).

Works on UTF-16 units: a code point above U+FFFF is two units of three bytes each, NUL is C0 80::

    0001-007F              0xxxxxxx
    0000, 0080-07FF        110xxxxx 10xxxxxx
    0800-FFFF, surrogates  1110xxxx 10xxxxxx 10xxxxxx
"""

from __future__ import annotations

from paceline.errors import LocalProtocolError
from paceline.wire.segment.errors import Fault, SegmentProtocolError

MAX_STRING_BYTES = 0xFFFF


def encode_text(text: str) -> bytes:
    """The bytes of ``text``. Raises LocalProtocolError: a lone surrogate, more than 65535 bytes."""
    try:
        units = text.encode("utf-16-be")
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"{text!r} has no modified UTF-8 form: {error.reason}") from None
    halves = (units[at : at + 2] for at in range(0, len(units), 2))
    pairs = "".join(chr(int.from_bytes(half, "big")) for half in halves)
    encoded = pairs.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")
    if len(encoded) > MAX_STRING_BYTES:
        raise LocalProtocolError(f"a text of {len(encoded)} bytes, at most {MAX_STRING_BYTES}")
    return encoded


def decode_text(data: bytes) -> str:
    """The text of ``data``. Raises SegmentProtocolError E5 for four-byte, overlong, truncated and
    stray sequences, a bare NUL and lone surrogates: what decodes, encodes to the same bytes."""
    if data.isascii() and 0 not in data:
        return data.decode("ascii")
    if 0 in data or any(byte >= 0xF0 for byte in data):
        raise SegmentProtocolError(Fault.E5)
    try:
        units = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    except UnicodeDecodeError:
        raise SegmentProtocolError(Fault.E5) from None
