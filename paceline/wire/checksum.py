"""CRC-32C (Castagnoli, the iSCSI polynomial of RFC 3720), behind one function."""

from __future__ import annotations

from fastcrc import crc32 as _crc32


def crc32c(data: bytes | bytearray | memoryview, seed: int = 0) -> int:
    """CRC-32C of ``data``, 0..2**32-1; ``seed`` is the CRC of what came before it.

    Reads views in place; nothing is copied.
    """
    value: int = _crc32.iscsi(data, seed)
    return value
