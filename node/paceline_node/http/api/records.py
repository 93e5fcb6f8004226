"""Records of a partition."""

from __future__ import annotations

from paceline.documents.records import record_document
from paceline.errors import InvalidRequest, UnknownTopicOrPartition
from paceline.wire.peer.record_browsing import LookedRecord, LookFrom, RecordsLookedAt
from paceline.wire.records import Record
from paceline_node.http.api.call import Call, number
from paceline_node.http.api.documents import Document, listed
from paceline_node.loop_turns import Turns
from paceline_node.services.records.record_browser import RecordBrowser

_BEGINS = {"offset": LookFrom.OFFSET, "time": LookFrom.TIME, "last": LookFrom.LAST}
_CONTAINED_CHARACTERS = 1000
_LARGEST = 2**63 - 1
MOST_BYTES = 4096
"""Of a key or a value that are shown."""


class RecordPages:
    """Of any partition, whoever leads it."""

    def __init__(self, looks: RecordBrowser, turns: Turns) -> None:
        self._looks = looks
        self._turns = turns

    async def records(self, call: Call) -> Document:
        """Some, as ``consume --json`` prints them."""
        topic, text = call.names["topic"], call.names["partition"]
        try:
            partition = number(text)
        except ValueError:
            raise UnknownTopicOrPartition(f"{topic}/{text}: partitions are numbers") from None
        begin, at = _begin(call)
        contained = call.text("contains", "")
        if len(contained) > _CONTAINED_CHARACTERS:
            raise InvalidRequest(f"contains: at most {_CONTAINED_CHARACTERS} characters")
        asked = RecordsLookedAt(
            topic=topic,
            partition=partition,
            begin=begin,
            number=at,
            limit=call.limit,
            most_bytes=MOST_BYTES,
            contained=contained.encode("utf-8", "replace"),
        )
        found = await self._looks.look(call.principal, asked)
        records = await self._turns.run(
            listed(found.records, lambda each: _document(topic, partition, each))
        )
        return {
            "topic": topic,
            "partition": partition,
            "log_start_offset": found.log_start_offset,
            "end": found.end,
            "next": found.next_offset,
            "records": records,
        }


def _begin(call: Call) -> tuple[LookFrom, int]:
    """Where to begin: before the end, where nothing is said."""
    said = [
        (begin, at)
        for name, begin in _BEGINS.items()
        if (at := call.read(name, _large, "a number")) is not None
    ]
    if len(said) > 1:
        raise InvalidRequest(f"expected one of {', '.join(_BEGINS)}")
    return said[0] if said else (LookFrom.LAST, call.limit)


def _large(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_LARGEST))):
        raise ValueError(text)
    return min(int(text), _LARGEST)


def _document(topic: str, partition: int, found: LookedRecord) -> Document:
    headers = tuple(
        [(each.name.decode("utf-8", "surrogateescape"), each.value) for each in found.headers]
    )
    record = Record(found.offset, found.timestamp_ms, found.key, found.value, headers)
    sizes = {"key_bytes": found.key_bytes, "value_bytes": found.value_bytes}
    return {**record_document(topic, partition, record), **sizes}
