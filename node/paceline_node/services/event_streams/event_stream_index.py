"""Where each event stream's events and newest snapshot lie in one partition's log.

Pure: the fold of the log's records. An event is a record with a key and an aggregate version
(``cursus.aggregate_version``, wire/DESIGN 4). A snapshot is a control batch, which readers of
records never see::

    key    i16 version (0) | i16 type (1000)
    value  the snapshot
    header ``cursus.key``, ``cursus.snapshot`` (the version, decimal)
"""

from __future__ import annotations

import struct
from array import array
from typing import NamedTuple

from paceline.wire.batch import CONTROL, BatchHeader, Buffer, build_batch
from paceline.wire.cursus_record_mapping import cursus_of
from paceline.wire.records import Record, decode_records

_CONTROL_KEY = struct.Struct(">hh")
_SNAPSHOT_KEY = _CONTROL_KEY.pack(0, 1000)
_KEY = "cursus.key"
_SNAPSHOT = "cursus.snapshot"


class SnapshotPlace(NamedTuple):
    """The version that a snapshot shows, and where it lies."""

    version: int
    offset: int


class _Stream:
    """One key's events: their offsets, in order of version from ``first_version`` on."""

    __slots__ = ("first_version", "offsets", "snapshots")

    def __init__(self, first_version: int) -> None:
        self.first_version = first_version
        self.offsets = array("q")
        self.snapshots: list[SnapshotPlace] = []


class StreamIndex:
    """All streams of a log up to ``position`` (exclusive), as its leader of ``leader_epoch`` has
    it. Ends are given by the caller, as readers see less than writers."""

    def __init__(self, leader_epoch: int, log_start: int) -> None:
        self.leader_epoch = leader_epoch
        self.position = log_start
        self._streams: dict[bytes, _Stream] = {}

    def add(self, data: Buffer, at: int, header: BatchHeader, *, committed: int) -> None:
        """Take in the batch at byte ``at`` of ``data``, which lies at ``position``; what lies below
        ``committed`` stays."""
        records = decode_records(data, at) if header.record_count else []
        for record in records:
            if header.is_control:
                self._add_snapshot(record, committed)
            else:
                self._add_event(record)
        self.position = header.next_offset

    def _add_event(self, record: Record) -> None:
        version = cursus_of(record).aggregate_version
        if record.key is None or version < 1:
            return
        stream = self._streams.get(record.key)
        if stream is None:
            stream = self._streams[record.key] = _Stream(version)
        elif not stream.offsets:
            # Its older events are gone, also some that a snapshot does not show.
            stream.first_version = max(version, stream.first_version)
        if version == stream.first_version + len(stream.offsets):  # else no event of this service's
            stream.offsets.append(record.offset)

    def _add_snapshot(self, record: Record, committed: int) -> None:
        if record.key != _SNAPSHOT_KEY:
            return
        fields = dict(record.headers)
        key, version = fields.get(_KEY), fields.get(_SNAPSHOT)
        if key is None or version is None:
            return
        stream = self._streams.get(key)
        if stream is None:  # its events are gone, the snapshot stands for them
            stream = self._streams[key] = _Stream(int(version) + 1)
        # Several may be on their way; until one is committed readers see the one before.
        below = sum(place.offset < committed for place in stream.snapshots)
        place = SnapshotPlace(int(version), record.offset)
        stream.snapshots = [*stream.snapshots[max(0, below - 1) :], place]

    def version(self, key: bytes, *, end: int) -> int:
        """The newest version of a stream among the offsets below ``end``; 0 for none."""
        stream = self._streams.get(key)
        if stream is None:
            return 0
        count = len(stream.offsets)
        while count and stream.offsets[count - 1] >= end:
            count -= 1
        return stream.first_version + count - 1

    def events(self, key: bytes, from_version: int, *, start: int, end: int) -> list[int]:
        """Offsets within ``start..end`` of a stream's events from a version on."""
        stream = self._streams.get(key)
        if stream is None:
            return []
        first = max(0, from_version - stream.first_version)
        return [offset for offset in stream.offsets[first:] if start <= offset < end]

    def snapshot(self, key: bytes, *, start: int, end: int) -> SnapshotPlace | None:
        """The newest snapshot of a stream within ``start..end``."""
        stream = self._streams.get(key)
        places = [] if stream is None else stream.snapshots
        return next((each for each in reversed(places) if start <= each.offset < end), None)


def snapshot_batch(key: bytes, version: int, payload: bytes, *, timestamp_ms: int) -> bytearray:
    """A snapshot as the batch that keeps it."""
    headers = ((_KEY, key), (_SNAPSHOT, b"%d" % version))
    record = Record(-1, timestamp_ms, _SNAPSHOT_KEY, payload, headers)
    return build_batch([record], flags=CONTROL)
