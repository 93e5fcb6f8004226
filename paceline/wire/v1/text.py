"""Text rules of V1: whitespace, integers, names, percent escapes, what a plain value can carry.

Whitespace and integers follow Go's rules (DESIGN 1.3), which differ from Python's: Python also
takes U+001C-001F for blanks and reads ``1_0`` as a number. Text is decoded with surrogate escapes,
so bytes that are not UTF-8 pass through unchanged and are never whitespace.
"""

from __future__ import annotations

import re

from paceline.types import is_internal_topic, is_valid_topic_name
from paceline.wire.v1.errors import bad_request

WHITESPACE = (
    "\t\n\v\f\r \x85\xa0\u1680"
    "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
TOKEN = re.compile(f"[^{WHITESPACE}]+")

_INTEGER = re.compile(r"([+-]?)([0-9]+)\Z")
_MAX_DIGITS = 19
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_HOST = re.compile(r"[A-Za-z0-9._:\[\]-]{1,255}\Z")
_MAX_NAME_BYTES = 255

# A plain value that ends in one of these loses it in an SDK's strip() (DESIGN 2.1).
_UNSAFE_END = tuple(WHITESPACE + "\x1c\x1d\x1e\x1f\ufeff")

_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_ESCAPED = tuple(chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in range(256))
_HEX_DIGITS = b"0123456789abcdefABCDEF"
_UNESCAPED = {
    bytes((high, low)): bytes((int(bytes((high, low)), 16),))
    for high in _HEX_DIGITS
    for low in _HEX_DIGITS
}


def decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def parse_integer(text: str, field: str) -> int:
    """A 64-bit signed decimal; anything else is ``invalid <field>``."""
    match = _INTEGER.match(text)
    if match is not None:
        digits = match[2].lstrip("0")
        if len(digits) <= _MAX_DIGITS:
            number = int(f"{match[1]}0{digits}")
            if -(2**63) <= number < 2**63:
                return number
    raise bad_request(f"invalid {field}")


def parse_topic(text: str) -> str:
    """A topic's name; the broker's own topics are refused like impossible ones (DESIGN 2.3)."""
    if not is_valid_topic_name(text) or is_internal_topic(text):
        raise bad_request("invalid topic")
    return text


def parse_name(text: str, field: str) -> str:
    """A group's or consumer's name: 1-255 bytes of UTF-8 without control characters."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise bad_request(f"invalid {field}") from None
    if size > _MAX_NAME_BYTES or _CONTROL.search(text):
        raise bad_request(f"invalid {field}")
    return text


def parse_host(text: str) -> str:
    """A host name or address that cannot be taken for another field of a reply."""
    if _HOST.match(text) is None:
        raise bad_request("invalid host")
    return text


def is_plain_safe(value: bytes) -> bool:
    """Whether the real SDKs read ``value`` back unchanged from a plain reply (DESIGN 2.1)."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return False
    return not (
        "," in text
        or "\n" in text
        or "messages=" in text
        or " hw=" in text
        or text.endswith(_UNSAFE_END)
    )


def percent_encode(data: bytes) -> str:
    """``A-Z a-z 0-9 - . _ ~`` as they are, every other byte as upper-case ``%XX``."""
    return "".join([_ESCAPED[byte] for byte in data])


def percent_decode(data: bytes) -> bytes:
    """Undo the escapes; other bytes stay. ``%`` without two hex digits is a V1Error."""
    first, *rest = data.split(b"%")
    if not rest:
        return data
    parts = [first]
    for piece in rest:
        byte = _UNESCAPED.get(piece[:2])
        if byte is None:
            raise bad_request("malformed percent escape")
        parts += (byte, piece[2:])
    return b"".join(parts)
