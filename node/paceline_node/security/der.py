"""The one thing that ``ssl`` does not tell of a certificate of our own: until when it is good.

X.509 (RFC 5280, 4.1) in DER: Certificate is a sequence that begins with tbsCertificate, and that is
``[0] version`` (may be absent), serialNumber, signature, issuer, validity ...; validity is two
times, of which the second is wanted.
"""

from __future__ import annotations

from datetime import UTC, datetime

from paceline.errors import ConfigurationError

_SEQUENCE = 0x30
_VERSION = 0xA0
_UTC_TIME = 0x17
_GENERALIZED_TIME = 0x18
_BEFORE_VALIDITY = 3


def not_after(certificate: bytes) -> int:
    """The end of a certificate's validity, in seconds since 1970. Raises ConfigurationError for
    bytes that are none."""
    try:
        return _not_after(certificate)
    except (ValueError, IndexError):
        raise ConfigurationError("a certificate that cannot be read") from None


def _not_after(certificate: bytes) -> int:
    whole, _ = _content(certificate, _SEQUENCE)
    fields, _ = _content(whole, _SEQUENCE)
    if fields[0] == _VERSION:
        fields = _behind(fields)
    for _ in range(_BEFORE_VALIDITY):
        fields = _behind(fields)
    validity, _ = _content(fields, _SEQUENCE)
    return _time(_behind(validity))


def _time(data: bytes) -> int:
    kind = data[0]
    text = _content(data, kind)[0].decode("ascii")
    if kind == _UTC_TIME:  # two digits: 1950 to 2049
        text = ("19" if int(text[:2]) >= 50 else "20") + text
    elif kind != _GENERALIZED_TIME:
        raise ValueError("no time")
    return int(datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp())


def _behind(data: bytes) -> bytes:
    return _content(data, data[0])[1]


def _content(data: bytes, kind: int) -> tuple[bytes, bytes]:
    """What an element of a kind holds, and what follows it."""
    if data[0] != kind:
        raise ValueError("another kind")
    size, begin = data[1], 2
    if size & 0x80:
        count = size & 0x7F
        begin += count
        size = int.from_bytes(data[2:begin], "big")
    end = begin + size
    if end > len(data):
        raise ValueError("too short")
    return data[begin:end], data[end:]
