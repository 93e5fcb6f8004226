"""Table segments of the Pravega dialect: what reader groups keep their state in.

Requests become those of ``services/segments/keyvalue_tables.py``, which any node answers: real
clients stay with the node that they were told when they opened a table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paceline.errors import StorageFull
from paceline.wire.peer.tables import TableAnswer, TableOperation, TableRequest, TableStatus
from paceline.wire.segment import pravega_messages as w
from paceline.wire.segment.fields import TableEntry, TableKey
from paceline.wire.segment.framing import SegmentMessage
from paceline_node.security.principals import Principal
from paceline_node.services.segments.keyvalue_tables import TableService

_MAX_COUNT = 1000
_TIMEOUT_S = 25.0
"""Clients wait 30 s for an answer."""


class TableRequests:
    """Answers requests to tables."""

    KINDS = (
        w.CreateTableSegment,
        w.DeleteTableSegment,
        w.UpdateTableEntries,
        w.RemoveTableKeys,
        w.ReadTable,
        w.ReadTableKeys,
        w.ReadTableEntries,
        w.ReadTableEntriesDelta,
    )

    def __init__(self, tables: TableService) -> None:
        self._tables = tables

    async def answer(self, principal: Principal, request: SegmentMessage) -> SegmentMessage:
        """The reply. Raises StorageFull, and what :meth:`TableService.ask` raises."""
        name: str = getattr(request, "segment")  # noqa: B009  every request to a table has one
        asked, reply = _TRANSLATIONS[type(request)](request)
        answer = await self._tables.ask(principal, asked, timeout_s=_TIMEOUT_S)
        if answer.status is TableStatus.OK:
            return reply(answer)
        return _refusal(answer.status, request, name)


_Translation = tuple[TableRequest, Callable[[TableAnswer], SegmentMessage]]


def _refusal(status: TableStatus, request: SegmentMessage, name: str) -> SegmentMessage:
    request_id: int = getattr(request, "request_id")  # noqa: B009  every request has one
    match status:
        case TableStatus.EXISTS:
            return w.SegmentAlreadyExists(request_id, name)
        case TableStatus.NO_TABLE:
            return w.NoSuchSegment(request_id, name)
        case TableStatus.NOT_EMPTY:
            return w.TableSegmentNotEmpty(request_id, name)
        case TableStatus.BAD_VERSION:
            return w.TableKeyBadVersion(request_id, name)
        case TableStatus.NO_KEY:
            return w.TableKeyDoesNotExist(request_id, name)
        case _:
            raise StorageFull(f"table {name!r}: no room for that")


def _create(r: w.CreateTableSegment) -> _Translation:
    asked = TableRequest(TableOperation.CREATE, r.segment)
    return asked, lambda _: w.SegmentCreated(r.request_id, r.segment)


def _delete(r: w.DeleteTableSegment) -> _Translation:
    operation = TableOperation.DELETE_EMPTY if r.must_be_empty else TableOperation.DELETE
    asked = TableRequest(operation, r.segment)
    return asked, lambda _: w.SegmentDeleted(r.request_id, r.segment)


def _update(r: w.UpdateTableEntries) -> _Translation:
    asked = TableRequest(
        TableOperation.UPDATE,
        r.segment,
        tuple(key.data for key, _ in r.entries),
        tuple(value for _, value in r.entries),
        tuple(key.version for key, _ in r.entries),
        r.position,
    )
    return (
        asked,
        lambda answer: w.TableEntriesUpdated(r.request_id, answer.versions),
    )


def _remove(r: w.RemoveTableKeys) -> _Translation:
    asked = TableRequest(
        TableOperation.REMOVE,
        r.segment,
        tuple(key.data for key in r.keys),
        versions=tuple(key.version for key in r.keys),
        position=r.position,
    )
    return asked, lambda _: w.TableKeysRemoved(r.request_id, r.segment)


def _get(r: w.ReadTable) -> _Translation:
    asked = TableRequest(TableOperation.GET, r.segment, tuple(key.data for key in r.keys))
    return (
        asked,
        lambda answer: w.TableRead(r.request_id, r.segment, _entries(answer)),
    )


def _list_keys(r: w.ReadTableKeys) -> _Translation:
    return (
        _listing(r.segment, r.after, r.count),
        lambda answer: w.TableKeysRead(
            r.request_id,
            r.segment,
            tuple(key for key, _ in _entries(answer)),
            _last(answer, r.after),
        ),
    )


def _list_entries(r: w.ReadTableEntries) -> _Translation:
    return (
        _listing(r.segment, r.after, r.count),
        lambda answer: w.TableEntriesRead(
            r.request_id, r.segment, _entries(answer), _last(answer, r.after)
        ),
    )


def _delta(r: w.ReadTableEntriesDelta) -> _Translation:
    asked = TableRequest(
        TableOperation.CHANGES, r.segment, position=r.position, count=_count(r.count)
    )
    return (
        asked,
        lambda answer: w.TableEntriesDeltaRead(
            r.request_id, r.segment, _entries(answer), False, answer.is_end, answer.position
        ),
    )


def _listing(table: str, after: bytes, count: int) -> TableRequest:
    keys = (after,) if after else ()
    return TableRequest(TableOperation.LIST, table, keys, count=_count(count))


def _count(asked: int) -> int:
    return min(max(asked, 1), _MAX_COUNT)


def _last(answer: TableAnswer, after: bytes) -> bytes:
    return answer.keys[-1] if answer.keys else after


def _entries(answer: TableAnswer) -> tuple[TableEntry, ...]:
    items = zip(answer.keys, answer.versions, answer.values, strict=True)
    return tuple((TableKey(key, version), value) for key, version, value in items)


_TRANSLATIONS: dict[type[SegmentMessage], Callable[[Any], _Translation]] = {
    w.CreateTableSegment: _create,
    w.DeleteTableSegment: _delete,
    w.UpdateTableEntries: _update,
    w.RemoveTableKeys: _remove,
    w.ReadTable: _get,
    w.ReadTableKeys: _list_keys,
    w.ReadTableEntries: _list_entries,
    w.ReadTableEntriesDelta: _delta,
}
