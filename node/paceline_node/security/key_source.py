"""Where the public keys of tokens are read: a file, or a URL. It blocks, and is for a thread."""

from __future__ import annotations

import ssl
import time
import urllib.error
import urllib.request

_BYTES_MAX = 1024 * 1024
_FETCH_S = 5.0


def read_file(path: str) -> bytes:
    """What a file holds. Raises OSError."""
    with open(path, "rb") as file:
        return _bounded(file.read(_BYTES_MAX + 1))


def fetch(url: str, authority: str) -> bytes:
    """What is at a URL, no other one to which it may point. ``authority``: a file, empty for those
    that the machine trusts. Raises OSError, HTTPException."""
    due = time.monotonic() + _FETCH_S
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=authority or None)),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
    ):
        opener.add_handler(handler)
    data = bytearray()
    try:
        answer = opener.open(url, timeout=_FETCH_S)
    except urllib.error.HTTPError as error:
        error.close()  # it is the answer
        raise
    with answer:
        while part := answer.read1(64 * 1024):
            data += part
            _bounded(data)
            if time.monotonic() > due:
                raise TimeoutError(f"{url} does not answer in {_FETCH_S:g} s")
    return bytes(data)


def _bounded(data: bytes | bytearray) -> bytes:
    if len(data) > _BYTES_MAX:
        raise OSError(f"larger than {_BYTES_MAX} bytes")
    return bytes(data)
