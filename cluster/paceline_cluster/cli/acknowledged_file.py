"""The acknowledged-file of ``produce``: one JSON line per record that the cluster acknowledged.

::

    {"line": 17, "partition": 0, "offset": 5, "leader_epoch": 3, "key": "user1"}

``line`` is the number of the input line, from 1. Lines are handed to the operating system as the
acknowledgements arrive, so that a killed producer leaves exactly what it had learnt; within a
partition they are in order of offset.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from paceline.documents.records import json_of


class AckedFile:
    """Use as a context manager; writes are unbuffered."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)

    def write(
        self,
        *,
        partition: int,
        base_offset: int,
        leader_epoch: int,
        records: Iterable[tuple[int, bytes | None]],
    ) -> None:
        """Write down (line, key) of records that were stored at consecutive offsets."""
        data = "".join(
            [
                f'{{"line": {line}, "partition": {partition}, "offset": {offset}, '
                f'"leader_epoch": {leader_epoch}, "key": {_json(key)}}}\n'
                for offset, (line, key) in enumerate(records, start=base_offset)
            ]
        ).encode()
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]


def _json(key: bytes | None) -> str:
    return json.dumps(json_of(key), ensure_ascii=False)
