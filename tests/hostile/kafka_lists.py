"""Every list of every Kafka request, as long as a request may be: made from the descriptions that
the codec reads, so that a new API, or a new list, is attacked without being named here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from uuid import UUID

from paceline.wire.kafka.apis import APIS, Api, RequestHeader, request_frame
from paceline.wire.kafka.layout import Array, Field, FieldType, Kind, Struct, fields_of, primitive
from paceline.wire.kafka.reading import MAX_ITEMS

Make = Callable[[int], Any]
MOST = MAX_ITEMS - 8
"""Items of the long list; a few are left for the lists around it."""
TOPIC = "wide"
"""Names a topic that exists, wherever a name stands that is not repeated."""
_PARTITIONS = 100
_DELETE_TOPICS = 20
_CALM: dict[str, Any] = {
    "validate_only": True,
    "allow_auto_topic_creation": False,
    "max_wait_ms": 0,
    "min_bytes": 0,
    "session_epoch": -1,
    "session_id": 0,
    "resource_type": 2,
    "config_operation": 0,
    "timestamp": -1,
    "generation_id": -1,
    "generation_id_or_member_epoch": -1,
    "member_id": "",
    "timeout_ms": 1000,
    "acks": 1,
    "key_type": 0,
    "partition_max_bytes": 1000,
    "current_leader_epoch": -1,
    "forgotten_topics_data": (),
    "replica_id": -1,
    "transactional_id": None,
}
"""Such that requests come to their work, change nothing for the next ones, and end at once."""


class LongList(NamedTuple):
    """``field`` says which list is long; the others have one item."""

    api: Api
    field: str
    frame: bytearray

    @property
    def name(self) -> str:
        return f"{self.api.request.__name__}.{self.field}"


def long_lists(part: int = 0, parts: int = 1) -> Iterator[LongList]:
    """A request for each list that the newest version of an API has; where the items are named,
    one more in which they all have the same name and differ in what else they say. Of one of
    ``parts`` of the APIs."""
    for api in list(APIS.values())[part::parts]:
        for path in _lists(api.request, api.last):
            for same in (False, True):
                made = _Making(api, path, same=same)
                request = made.message(api.request)(0)
                header = RequestHeader(api.key, api.last, 1, "stranger")
                name = ".".join(path) + " of one name" * same
                yield LongList(api, name, request_frame(header, request))
                if not made.named:
                    break


def _lists(cls: type[Struct], version: int) -> Iterator[tuple[str, ...]]:
    for field in fields_of(cls):
        if not field.is_in(version) or not isinstance(field.type, Array):
            continue
        yield (field.name,)
        item = field.type.item
        if isinstance(item, type) and issubclass(item, Struct):
            for inner in _lists(item, version):
                yield (field.name, *inner)


def _inner(item: FieldType, version: int) -> int:
    if isinstance(item, type) and issubclass(item, Struct):
        return len(list(_lists(item, version)))
    return 0


class _Making:
    """One request, with a long list at ``path``. What makes a value is found once for each field,
    not for each of 32,000 items: it is given the item's number."""

    def __init__(self, api: Api, path: tuple[str, ...], *, same: bool) -> None:
        self._api = api
        self._path = path
        self._same = same
        self.named = False
        """Whether items of the long list have names."""

    def message(self, cls: type[Struct], at: tuple[str, ...] = ()) -> Make:
        makers = [
            (field.name, self._field(field, (*at, field.name)))
            for field in fields_of(cls)
            if field.is_in(self._api.last)
        ]
        return lambda number: cls(**{name: make(number) for name, make in makers})

    def _field(self, field: Field, at: tuple[str, ...]) -> Make:
        if field.name in _CALM and at != self._path[: len(at)]:
            known = _CALM[field.name]
            if known is None and not primitive(field.type)[1]:  # type: ignore[index]
                known = "t"
            return lambda _: known
        return self._value(field.type, at)

    def _value(self, kind: FieldType, at: tuple[str, ...]) -> Make:
        simple = primitive(kind)
        if simple is not None:
            return self._simple(simple[0], at)
        if isinstance(kind, Array):
            if at[0] != self._path[0] and kind.nullable:
                return lambda _: None
            # An item's own lists count, too.
            times = MOST // (1 + _inner(kind.item, self._api.last)) if at == self._path else 1
            make = self._value(kind.item, at)
            return lambda _: tuple(map(make, range(times)))
        assert isinstance(kind, type)
        return self.message(kind, at)

    def _simple(self, kind: Kind, at: tuple[str, ...]) -> Make:
        if kind is Kind.STR:
            if at[: len(self._path)] != self._path:
                return lambda _: TOPIC
            self.named = True
            if self._api.key == _DELETE_TOPICS:
                return "__n{}".format
            return (lambda _: TOPIC) if self._same else "n{}".format
        if kind is Kind.UUID:
            return lambda number: UUID(int=number + 1)
        if kind is Kind.BYTES:
            return lambda _: b""
        if kind is Kind.BOOL:
            return lambda _: False
        most = 128 if kind is Kind.I8 else _PARTITIONS
        return lambda number: number % most
