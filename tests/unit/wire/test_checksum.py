"""CRC-32C: the check value of the catalogue and the vectors of RFC 3720 appendix B.4."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.wire.checksum import crc32c


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(reversed(range(32))), 0x113FDB5C),
        (
            bytes.fromhex(
                "01c00000000000000000000000000000140000000000040000000014"
                "0000001828000000000000000200000000000000"
            ),
            0xD9963A56,
        ),
    ],
)
def test_known_vectors(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected
    assert crc32c(memoryview(b"x" + data)[1:]) == expected
    assert crc32c(bytearray(data)) == expected


@given(st.binary(), st.binary())
def test_seed_continues(first: bytes, second: bytes) -> None:
    assert crc32c(second, crc32c(first)) == crc32c(first + second)
