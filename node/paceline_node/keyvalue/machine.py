"""All tables, as the fold of ``__tables``. Pure.

Answers are deterministic functions of the records and the request; every change is one batch, so
that an update happens for all of its keys or for none.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import field
from itertools import islice

from paceline.errors import PacelineError
from paceline.values import dataclass
from paceline.wire.peer.tables import (
    ABSENT,
    UNCONDITIONAL,
    TableAnswer,
    TableOperation,
    TableRequest,
    TableStatus,
)
from paceline_node.keyvalue.records import Cell, Newest, TableMade, TableRecord, decode, encode
from paceline_node.settings.counts import TABLE_BYTES, TABLE_KEYS, TABLES
from paceline_node.state_machines.machine import Entry, Journal

_ANSWER_BYTES = 1024 * 1024
"""Entries of one answer, together; at least one is in it."""
_KEY_BYTES = 160
"""About what a key takes in memory beside itself and its value."""
_TABLE_BYTES = 512
"""About what a table takes beside its name and its keys."""
_OWN_SHARE = 8
"""One in so many bytes is left to the broker's own tables."""


@dataclass(frozen=True, slots=True)
class TableLimits:
    """Bounds: everything is in the memory of every replica, and a change is one batch, the
    removal of a table with all of its keys included. ``all_bytes`` counts what memory takes."""

    tables: int = TABLES.bound
    keys_per_table: int = TABLE_KEYS.bound
    key_bytes: int = 1024
    update_bytes: int = 512 * 1024
    all_bytes: int = TABLE_BYTES.bound


@dataclass(slots=True)
class _Table:
    """``cells`` in the order of their versions: a changed one goes to the end."""

    newest: int
    cells: dict[bytes, tuple[int, bytes]] = field(default_factory=dict)


class TableMachine:
    """The tables of one partition of ``__tables``."""

    def __init__(self, limits: TableLimits) -> None:
        self._limits = limits
        self._journal: Journal | None = None
        self.reset()

    # --- folding ----------------------------------------------------------------------------------

    def reset(self) -> None:
        """Forget everything."""
        self._tables: dict[str, _Table] = {}
        self._newest = 0
        self._bytes = 0

    def apply(self, entry: Entry) -> None:
        """Fold one record. Raises RemoteProtocolError."""
        match decode(entry):
            case Newest(version):
                self._newest = max(self._newest, version)
            case TableMade(table, None):
                if self._tables.pop(table, None) is not None:
                    self._bytes -= _size_of_table(table)
            case TableMade(table, int(version)):
                self._table(table).newest = version
            case Cell(table, key, version, value) if version is not None or table in self._tables:
                self._fold_cell(self._table(table), key, version, value)

    def _table(self, name: str) -> _Table:
        """Compaction may have taken a table's first record out from before its cells'."""
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = _Table(0)
            self._bytes += _size_of_table(name)
        return table

    def _fold_cell(self, table: _Table, key: bytes, version: int | None, value: bytes) -> None:
        before = table.cells.pop(key, None)
        if before is not None:
            self._bytes -= _size_of(key, before[1])
        if version is not None:
            table.cells[key] = (version, value)
            table.newest = max(table.newest, version)
            self._bytes += _size_of(key, value)

    # --- leading ----------------------------------------------------------------------------------

    def lead(self, journal: Journal, *, log_is_empty: bool) -> None:
        """Answer from now on."""
        self._journal = journal

    def resign(self, error: PacelineError) -> None:
        """Answer no more; nobody waits here."""
        self._journal = None

    def next_alarm(self) -> float:
        """Nothing here depends on time."""
        return math.inf

    def on_alarm(self) -> None:
        """Never called."""

    # --- requests ---------------------------------------------------------------------------------

    def perform(self, request: TableRequest) -> TableAnswer:
        """Answer a request. Raises what :meth:`Journal.write` does, with nothing changed."""
        table = self._tables.get(request.table)
        if request.operation is TableOperation.CREATE:
            return self._create(request.table, table)
        if table is None:
            return TableAnswer(TableStatus.NO_TABLE)
        match request.operation:
            case TableOperation.DELETE:
                return self._delete(request.table, table)
            case TableOperation.DELETE_EMPTY if table.cells:
                return TableAnswer(TableStatus.NOT_EMPTY)
            case TableOperation.DELETE_EMPTY:
                return self._delete(request.table, table)
            case TableOperation.UPDATE:
                return self._update(request, table)
            case TableOperation.REMOVE:
                return self._remove(request, table)
            case TableOperation.GET:
                return _get(request, table)
            case TableOperation.LIST:
                return _list(request, table)
            case TableOperation.CHANGES:
                return _changes(request, table)

    def _write(self, table: str, *records: TableRecord) -> None:
        assert self._journal is not None, "a request to a table that does not lead"
        self._journal.write(table, [encode(each) for each in records])

    def _create(self, name: str, table: _Table | None) -> TableAnswer:
        if table is not None:
            return TableAnswer(TableStatus.EXISTS)
        if (
            not self._has_place(name)
            or len(name.encode()) > self._limits.key_bytes
            or not self._has_bytes(name, _size_of_table(name))
        ):
            return TableAnswer(TableStatus.TOO_LARGE)
        version = self._newest + 1
        self._write(name, Newest(version), TableMade(name, version))
        return TableAnswer(TableStatus.OK, position=version)

    def _has_place(self, name: str) -> bool:
        """Whether there may be another table. One of the broker's own, whose name no client can
        give, always has a place."""
        most = self._limits.tables
        if _is_own(name) or len(self._tables) < most:
            return True
        return len(self._tables) - sum(map(_is_own, self._tables)) < most

    def _has_bytes(self, name: str, growth: int) -> bool:
        """Whether the table may take so many bytes more. Some are left to the broker's own, or a
        stranger's tables would keep everybody's streams from being made."""
        most = self._limits.all_bytes
        if not _is_own(name):
            most -= most // _OWN_SHARE
        return growth <= 0 or self._bytes + growth <= most

    def _delete(self, name: str, table: _Table) -> TableAnswer:
        cells = [Cell(name, key, None, b"") for key in table.cells]
        self._write(name, *cells, TableMade(name, None))
        return TableAnswer(TableStatus.OK)

    def _update(self, request: TableRequest, table: _Table) -> TableAnswer:
        bad = _precondition(request, table)
        if bad is not None:
            return TableAnswer(bad)
        if self._is_too_large(request, table):
            return TableAnswer(TableStatus.TOO_LARGE)
        versions = tuple(range(self._newest + 1, self._newest + 1 + len(request.keys)))
        if versions:
            cells = map(
                Cell, [request.table] * len(versions), request.keys, versions, request.values
            )
            self._write(request.table, Newest(versions[-1]), *cells)
        return TableAnswer(TableStatus.OK, versions=versions, position=table.newest)

    def _is_too_large(self, request: TableRequest, table: _Table) -> bool:
        limits = self._limits
        size = sum(map(len, request.keys)) + sum(map(len, request.values))
        after = dict(zip(request.keys, request.values, strict=True))
        growth = sum(_size_of(*each) for each in after.items())
        growth -= sum(_size_of(key, table.cells[key][1]) for key in after if key in table.cells)
        return (
            any(len(key) > limits.key_bytes for key in request.keys)
            or size > limits.update_bytes
            or not self._has_bytes(request.table, growth)
            or len(table.cells) + len(after.keys() - table.cells.keys()) > limits.keys_per_table
        )

    def _remove(self, request: TableRequest, table: _Table) -> TableAnswer:
        bad = _precondition(request, table)
        if bad is not None:
            return TableAnswer(bad)
        there = [key for key in dict.fromkeys(request.keys) if key in table.cells]
        if there:
            version = self._newest + 1
            cells = [Cell(request.table, key, None, b"") for key in there]
            self._write(request.table, Newest(version), TableMade(request.table, version), *cells)
        return TableAnswer(TableStatus.OK, position=table.newest)


def _size_of(key: bytes, value: bytes) -> int:
    return _KEY_BYTES + len(key) + len(value)


def _size_of_table(name: str) -> int:
    return _TABLE_BYTES + len(name.encode())


def _is_own(name: str) -> bool:
    return name.startswith("/")


def _precondition(request: TableRequest, table: _Table) -> TableStatus | None:
    """Why an update or a removal may not be; None when it may."""
    if request.position not in (-1, table.newest):
        return TableStatus.BAD_VERSION
    for key, wanted in zip(request.keys, request.versions, strict=True):
        cell = table.cells.get(key)
        if wanted == UNCONDITIONAL:
            continue
        if cell is None and wanted != ABSENT:
            return TableStatus.NO_KEY
        if cell is not None and wanted != cell[0]:
            return TableStatus.BAD_VERSION
    return None


def _get(request: TableRequest, table: _Table) -> TableAnswer:
    cells = [table.cells.get(key, (ABSENT, b"")) for key in request.keys]
    values = tuple(value for _, value in cells)
    versions = tuple(version for version, _ in cells)
    return TableAnswer(TableStatus.OK, request.keys, values, versions, table.newest)


def _list(request: TableRequest, table: _Table) -> TableAnswer:
    keys = sorted(table.cells)
    start = bisect_right(keys, request.keys[0]) if request.keys else 0
    rest = [(key, table.cells[key]) for key in islice(keys, start, start + request.count + 1)]
    return _entries(rest, request.count, table.newest)


def _changes(request: TableRequest, table: _Table) -> TableAnswer:
    behind = (item for item in table.cells.items() if item[1][0] > request.position)
    found = _entries(list(islice(behind, request.count + 1)), request.count, request.position)
    if not found.versions:
        return found
    return TableAnswer(
        found.status, found.keys, found.values, found.versions, found.versions[-1], found.is_end
    )


def _entries(
    cells: list[tuple[bytes, tuple[int, bytes]]], count: int, position: int
) -> TableAnswer:
    """At most ``count`` of ``cells``, and not much more than the bytes of one answer."""
    taken, size = 0, 0
    for key, (_, value) in cells[:count]:
        if taken and size + len(key) + len(value) > _ANSWER_BYTES:
            break
        size += len(key) + len(value)
        taken += 1
    return TableAnswer(
        TableStatus.OK,
        tuple(key for key, _ in cells[:taken]),
        tuple(value for _, (_, value) in cells[:taken]),
        tuple(version for _, (version, _) in cells[:taken]),
        position,
        taken == len(cells),
    )
