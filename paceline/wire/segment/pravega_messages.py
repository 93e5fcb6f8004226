"""Messages of the Pravega dialect, versions 5 to 17 (DESIGN 6).

The framing is that of ``framing.py``; strings are plain UTF-8. Requests carry a request id, which
the reply repeats: a reply with another one makes real clients drop the connection. Real decoders
are strict, so every field is always sent. ``token`` is the delegation token (empty without
authentication), ``stack`` a server's stack trace (empty from us).

Appends come as one message each: :class:`AppendBlockEnd` with whole Events, or
:class:`ConditionalBlockEnd` with bytes that are stored only at an expected position. The layout of
the latter is not published: it is that of the public Rust client
(github.com/pravega/pravega-client-rust, ``wire_protocol/src/commands.rs``)::

    UUID writer | i64 event number | i64 expected position | i32 count, bytes | i64 request id

An appender's level is the number of its last Event, :data:`NO_EVENT` before the first; 0 is a legal
first number. Messages of the original that only its Java clients send are listed by type alone in
:data:`UNSUPPORTED`.
"""

from __future__ import annotations

from collections.abc import Mapping

from paceline.wire.segment.fields import (
    Blob,
    Bool,
    Byte,
    Data,
    Entries,
    Id,
    Int,
    Keys,
    Long,
    Longs,
    Text,
)
from paceline.wire.segment.framing import BOTH, CLIENT, SERVER, SegmentMessage, message, table_of

OLDEST_VERSION = 5
NEWEST_VERSION = 17
NO_EVENT = -(2**63)
"""Level of an appender that has stored nothing."""
ANY_VERSION = -(2**63)
"""Of a table key in an update: whatever is there."""
NOT_THERE = -1
"""Of a table key in an update: the key must not exist. In an answer: it does not."""
ANY_POSITION = -1
"""Of a table update: wherever the table ends."""


def speaks(high: int, low: int) -> bool:
    """Whether a Hello's range of versions overlaps ours."""
    return low <= NEWEST_VERSION and high >= OLDEST_VERSION and low <= high


@message(-127, BOTH)
class Hello(SegmentMessage):
    high: Int
    low: Int


@message(100, BOTH)
class KeepAlive(SegmentMessage):
    data: Data = b""


# --- appending ---------------------------------------------------------------------------------


@message(1, CLIENT)
class SetupAppend(SegmentMessage):
    request_id: Long
    writer: Id
    segment: Text
    token: Text


@message(2, SERVER)
class AppendSetup(SegmentMessage):
    request_id: Long
    segment: Text
    writer: Id
    last_event: Long


@message(4, CLIENT)
class AppendBlockEnd(SegmentMessage):
    """``data``: ``event_count`` stored Events (``events.py``), of which all are whole:
    ``whole_bytes`` is their size. The last one has the number ``last_event``."""

    writer: Id
    whole_bytes: Int
    data: Blob
    event_count: Int
    last_event: Long
    request_id: Long


@message(5, CLIENT)
class ConditionalAppend(SegmentMessage):
    """One Event (``kind`` is 0, ``data`` its data), stored if the segment ends at ``expected``."""

    writer: Id
    event: Long
    expected: Long
    kind: Int
    data: Blob
    request_id: Long


@message(89, CLIENT)
class ConditionalBlockEnd(SegmentMessage):
    """Any bytes, stored as they are if the segment ends at ``expected``."""

    writer: Id
    event: Long
    expected: Long
    data: Blob
    request_id: Long


@message(7, SERVER)
class DataAppended(SegmentMessage):
    """``length``: the segment's, behind what was appended."""

    writer: Id
    last_event: Long
    previous_event: Long
    request_id: Long
    length: Long


@message(8, SERVER)
class ConditionalCheckFailed(SegmentMessage):
    writer: Id
    event: Long
    request_id: Long


@message(40, CLIENT)
class CreateTransientSegment(SegmentMessage):
    """A place of ``writer``'s own for the pieces of one large Event, merged into ``parent`` in the
    end. The reply, SegmentCreated, names it."""

    request_id: Long
    writer: Id
    parent: Text
    token: Text


@message(58, CLIENT)
class MergeSegments(SegmentMessage):
    request_id: Long
    target: Text
    source: Text
    token: Text


@message(59, SERVER)
class SegmentsMerged(SegmentMessage):
    request_id: Long
    target: Text
    source: Text
    length: Long


# --- reading -----------------------------------------------------------------------------------


@message(9, CLIENT)
class ReadSegment(SegmentMessage):
    segment: Text
    offset: Long
    suggested_length: Int
    token: Text
    request_id: Long


@message(10, SERVER)
class SegmentRead(SegmentMessage):
    segment: Text
    offset: Long
    at_tail: Bool
    at_end: Bool
    data: Blob
    request_id: Long


# --- administration ----------------------------------------------------------------------------


@message(11, CLIENT)
class GetStreamSegmentInfo(SegmentMessage):
    request_id: Long
    segment: Text
    token: Text


@message(12, SERVER)
class StreamSegmentInfo(SegmentMessage):
    request_id: Long
    segment: Text
    exists: Bool
    is_sealed: Bool
    is_deleted: Bool
    last_modified_ms: Long
    length: Long
    start_offset: Long


@message(20, CLIENT)
class CreateSegment(SegmentMessage):
    request_id: Long
    segment: Text
    target_rate: Int
    scale_type: Byte
    token: Text


@message(21, SERVER)
class SegmentCreated(SegmentMessage):
    request_id: Long
    segment: Text


@message(28, CLIENT)
class SealSegment(SegmentMessage):
    request_id: Long
    segment: Text
    token: Text


@message(29, SERVER)
class SegmentSealed(SegmentMessage):
    request_id: Long
    segment: Text


@message(30, CLIENT)
class DeleteSegment(SegmentMessage):
    request_id: Long
    segment: Text
    token: Text


@message(31, SERVER)
class SegmentDeleted(SegmentMessage):
    request_id: Long
    segment: Text


@message(38, CLIENT)
class TruncateSegment(SegmentMessage):
    request_id: Long
    segment: Text
    offset: Long
    token: Text


@message(39, SERVER)
class SegmentTruncated(SegmentMessage):
    request_id: Long
    segment: Text


# --- tables ------------------------------------------------------------------------------------


@message(70, CLIENT)
class CreateTableSegment(SegmentMessage):
    request_id: Long
    segment: Text
    token: Text


@message(71, CLIENT)
class DeleteTableSegment(SegmentMessage):
    request_id: Long
    segment: Text
    must_be_empty: Bool
    token: Text


@message(74, CLIENT)
class UpdateTableEntries(SegmentMessage):
    request_id: Long
    segment: Text
    token: Text
    entries: Entries
    position: Long


@message(75, SERVER)
class TableEntriesUpdated(SegmentMessage):
    request_id: Long
    versions: Longs


@message(76, CLIENT)
class RemoveTableKeys(SegmentMessage):
    request_id: Long
    segment: Text
    token: Text
    keys: Keys
    position: Long


@message(77, SERVER)
class TableKeysRemoved(SegmentMessage):
    request_id: Long
    segment: Text


@message(78, CLIENT)
class ReadTable(SegmentMessage):
    request_id: Long
    segment: Text
    token: Text
    keys: Keys


@message(79, SERVER)
class TableRead(SegmentMessage):
    """One entry per key asked for; a key that is not there has the version NOT_THERE."""

    request_id: Long
    segment: Text
    entries: Entries


@message(83, CLIENT)
class ReadTableKeys(SegmentMessage):
    """``after``: where the last reply ended, empty at first."""

    request_id: Long
    segment: Text
    token: Text
    count: Int
    after: Blob


@message(84, SERVER)
class TableKeysRead(SegmentMessage):
    request_id: Long
    segment: Text
    keys: Keys
    after: Blob


@message(85, CLIENT)
class ReadTableEntries(SegmentMessage):
    request_id: Long
    segment: Text
    token: Text
    count: Int
    after: Blob


@message(86, SERVER)
class TableEntriesRead(SegmentMessage):
    request_id: Long
    segment: Text
    entries: Entries
    after: Blob


@message(88, CLIENT)
class ReadTableEntriesDelta(SegmentMessage):
    """Entries that changed behind ``position``, in the order of their changes."""

    request_id: Long
    segment: Text
    token: Text
    position: Long
    count: Int


@message(87, SERVER)
class TableEntriesDeltaRead(SegmentMessage):
    request_id: Long
    segment: Text
    entries: Entries
    should_clear: Bool
    reached_end: Bool
    last_position: Long


# --- errors ------------------------------------------------------------------------------------


@message(50, SERVER)
class WrongHost(SegmentMessage):
    request_id: Long
    segment: Text
    correct_host: Text
    stack: Text = ""


@message(51, SERVER)
class SegmentIsSealed(SegmentMessage):
    request_id: Long
    segment: Text
    stack: Text = ""
    offset: Long = 0


@message(52, SERVER)
class SegmentAlreadyExists(SegmentMessage):
    request_id: Long
    segment: Text
    stack: Text = ""


@message(53, SERVER)
class NoSuchSegment(SegmentMessage):
    request_id: Long
    segment: Text
    stack: Text = ""
    offset: Long = 0


@message(55, SERVER)
class InvalidEventNumber(SegmentMessage):
    writer: Id
    request_id: Long
    stack: Text
    event: Long


@message(56, SERVER)
class SegmentIsTruncated(SegmentMessage):
    request_id: Long
    segment: Text
    start_offset: Long
    stack: Text
    offset: Long


@message(57, SERVER)
class OperationUnsupported(SegmentMessage):
    request_id: Long
    operation: Text
    stack: Text = ""


@message(60, SERVER)
class AuthTokenCheckFailed(SegmentMessage):
    """``error_code``: 1 of a token that has expired, 0 of another one that is not good."""

    request_id: Long
    stack: Text
    error_code: Int


@message(61, SERVER)
class ErrorMessage(SegmentMessage):
    request_id: Long
    segment: Text
    message: Text
    error_code: Int


@message(80, SERVER)
class TableSegmentNotEmpty(SegmentMessage):
    request_id: Long
    segment: Text
    stack: Text = ""


@message(81, SERVER)
class TableKeyDoesNotExist(SegmentMessage):
    request_id: Long
    segment: Text
    stack: Text = ""


@message(82, SERVER)
class TableKeyBadVersion(SegmentMessage):
    request_id: Long
    segment: Text
    stack: Text = ""


MESSAGES = table_of(list(globals().values()))
"""Every message of the dialect that we serve, by its type."""

UNSUPPORTED: Mapping[int, str] = {
    -5: "listStorageChunks",
    -3: "flushToStorage",
    32: "updateSegmentPolicy",
    34: "getSegmentAttribute",
    36: "updateSegmentAttribute",
    68: "getTableSegmentInfo",
    72: "mergeTableSegments",
    73: "sealTableSegment",
    90: "mergeSegmentsBatch",
}
"""Requests that are refused by name. Each begins with its request id."""
