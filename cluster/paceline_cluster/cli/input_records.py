"""How an input line of ``produce`` becomes a record."""

from __future__ import annotations

import os
from collections.abc import Sequence

from paceline.values import dataclass
from paceline_cluster.cli.input_format import Parse
from paceline_cluster.cli.record_text import BadLine, InputRecord, parse, split_key

Keys = Sequence[bytes | None] | None
"""One key a value; None when no record has a key."""

_ESCAPES = {"\\t": "\t", "\\0": "\0", "\\\\": "\\"}


def parse_delimiter(text: str) -> bytes:
    """``--key-delimiter``: the text, with ``\\t``, ``\\0`` and ``\\\\`` as usual."""
    for escape, character in _ESCAPES.items():
        text = text.replace(escape, character)
    return os.fsencode(text)


@dataclass(frozen=True, slots=True)
class Shape:
    """The options that decide it. ``partition`` None: the producer chooses by key. ``keyless``: a
    line may lack the key's delimiter, and is a value without a key then. ``timestamp_ms`` None: the
    time of sending. ``parsed``: by --format, whose partition and time go first."""

    is_json: bool = False
    key_delimiter: bytes | None = None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int | None = None
    empty_is_null: bool = False
    keeps_partitions: bool = False
    keyless: bool = False
    timestamp_ms: int | None = None
    parsed: Parse | None = None

    @property
    def in_columns(self) -> bool:
        """Whether lines need nothing but a key and a value."""
        return not (self.is_json or self.headers or self.parsed) and self.timestamp_ms is None

    def well_formed(self, lines: Sequence[bytes]) -> int:
        """How many of the plain lines, from the first on, are what they must be."""
        delimiter = self.key_delimiter
        if delimiter is None or self.keyless:
            return len(lines)
        return next((at for at, line in enumerate(lines) if delimiter not in line), len(lines))

    def refusal(self) -> BadLine:
        """What is wrong with the line behind the well-formed ones."""
        delimiter = (self.key_delimiter or b"").decode("utf-8", "backslashreplace")
        return BadLine(
            f"no {delimiter!r} behind a key (--allow-keyless takes such lines as values)"
        )

    def columns(self, lines: Sequence[bytes]) -> tuple[Keys, list[bytes | None]]:
        """Keys and values of plain lines."""
        keys: Keys = None
        values: list[bytes | None] = list(lines)
        if self.key_delimiter is not None:
            pairs = [split_key(line, self.key_delimiter) for line in lines]
            keys = [key for key, _ in pairs]
            values = [value for _, value in pairs]
        elif self.key is not None:
            keys = [self.key] * len(lines)
        if self.empty_is_null:
            values = [value or None for value in values]
        return keys, values

    def record(self, line: bytes) -> InputRecord:
        """The record of one line. Raises BadLine."""
        if self.is_json:
            record = parse(line)
            partition = record.partition if self.keeps_partitions else self.partition
            return InputRecord(
                record.key, record.value, record.headers, partition, record.timestamp_ms
            )
        if self.parsed is not None:
            return self._completed(self.parsed(line))
        if not self.well_formed([line]):
            raise self.refusal()
        keys, values = self.columns([line])
        key = None if keys is None else keys[0]
        return InputRecord(key, values[0], self.headers, self.partition, self.timestamp_ms)

    def _completed(self, found: InputRecord) -> InputRecord:
        return InputRecord(
            self.key if found.key is None else found.key,
            (found.value or None) if self.empty_is_null else found.value,
            found.headers + self.headers,
            self.partition if found.partition is None else found.partition,
            self.timestamp_ms if found.timestamp_ms is None else found.timestamp_ms,
        )
