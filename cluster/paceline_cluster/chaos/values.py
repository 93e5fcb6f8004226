"""The values of a workload's records: who wrote them and which counter they are.

    b"3:1041:" + filler       stream 3, counter 1041

The filler follows from stream and counter, so any other bytes are known for foreign.
"""

from __future__ import annotations

from paceline_cluster.checker.events import FOREIGN, Run

_FILLER = bytes(33 + n % 90 for n in range(4096))


def value_of(stream: int, counter: int, size: int) -> bytes:
    """The value of a counter, of ``size`` bytes or as many as it needs."""
    head = b"%d:%d:" % (stream, counter)
    need = size - len(head)
    if need <= 0:
        return head
    start = (stream * 31 + counter) % 90
    whole = _FILLER * (need // len(_FILLER) + 2)
    return head + whole[start : start + need]


def read_value(value: bytes | None) -> tuple[int, int]:
    """(stream, counter) of a value; (FOREIGN, 0) of one that nobody wrote."""
    parts = (value or b"").split(b":", 2)
    if len(parts) == 3 and parts[0].isdigit() and parts[1].isdigit():
        stream, counter = int(parts[0]), int(parts[1])
        if value == value_of(stream, counter, len(value or b"")):
            return stream, counter
    return FOREIGN, 0


def runs_of(values: list[bytes | None]) -> tuple[Run, ...]:
    """Values at consecutive offsets as the runs of a history."""
    runs: list[Run] = []
    for value in values:
        stream, counter = read_value(value)
        if runs:
            last, first, count = runs[-1]
            if last == stream and (stream == FOREIGN or first + count == counter):
                runs[-1] = (last, first, count + 1)
                continue
        runs.append((stream, counter, 1))
    return tuple(runs)
