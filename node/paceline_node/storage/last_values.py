"""Comparing compacted replicas offline, by the last value of each key (DESIGN 3.2).

Each replica compacts by itself, so the same log may lie in different batches on each of them. What
they have in common is what a reader knows who has read everything: for each key its last value.
Keys and values are held as digests, some 200 bytes a key and replica.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b

from paceline.errors import CorruptMessage, UnsupportedCompression
from paceline.wire.compacted_batch import has_records
from paceline.wire.records import decode_records
from paceline_node.env import Disk
from paceline_node.storage.log_segment import segment_name
from paceline_node.storage.producers import ProducerTable, read_detail
from paceline_node.storage.transaction_index import AbortedRanges, AbortedTransaction
from paceline_node.storage.verify import BatchCursor, Finding, Problem, segment_bases

_DIGEST_BYTES = 16
LastValues = dict[bytes, tuple[bytes, int]]
"""By digest of the key: digest of the value, and its offset."""


async def compare_last_values(
    replicas: Mapping[str, tuple[Disk, str]], *, high_watermark: int
) -> list[Finding]:
    """Compare what is known below ``high_watermark``; a finding for each replica that differs
    from the first one, by name. Raises OSError."""
    findings: list[Finding] = []
    reference, known = "", LastValues()
    for name, (disk, path) in sorted(replicas.items()):
        values = await last_values(disk, path, end=high_watermark)
        if not reference:
            reference, known = name, values
            continue
        differing = [
            (offset, digest)
            for one, other in ((known, values), (values, known))
            for digest, (value, offset) in one.items()
            if digest not in other or other[digest][0] != value
        ]
        if differing:
            offset = min(differing)[0]
            count = len({digest for _, digest in differing})
            message = f"{name}: {count} keys have another last value than in {reference}"
            findings.append(Finding(Problem.DIVERGED, path, offset, message))
    return findings


async def last_values(disk: Disk, path: str, *, end: int) -> LastValues:
    """The last value of each key below offset ``end``; deleted keys are not there, nor what was
    aborted. What cannot be decoded is passed over. Raises OSError."""
    aborted = AbortedRanges(await _aborted(disk, path))
    values: LastValues = {}
    for base in segment_bases(disk, path):
        file = await disk.open(f"{path}/{segment_name(base)}.log")
        try:
            cursor = BatchCursor(file)
            while (batch := await cursor.advance()) is not None:
                header = batch.header
                is_meant = header.base_offset < end and not aborted.contains(header)
                if is_meant and has_records(header, batch.data):
                    _take(values, batch.data)
                batch.data.release()
        finally:
            file.close()
    return values


async def _aborted(disk: Disk, path: str) -> Sequence[AbortedTransaction]:
    """What the log's markers say. Raises OSError."""
    table = ProducerTable()
    for base in segment_bases(disk, path):
        file = await disk.open(f"{path}/{segment_name(base)}.log")
        try:
            cursor = BatchCursor(file)
            while (batch := await cursor.advance()) is not None:
                header = batch.header
                if header.is_transactional:
                    try:
                        detail = read_detail(batch.data, 0, header)
                    except CorruptMessage:
                        detail = None
                    table.note(header, detail, header.base_offset)
                batch.data.release()
        finally:
            file.close()
    return table.transactions.aborted


def _take(values: LastValues, data: memoryview) -> None:
    try:
        records = decode_records(data)
    except (CorruptMessage, UnsupportedCompression):
        return
    for record in records:
        if record.key is None:
            continue
        key = blake2b(record.key, digest_size=_DIGEST_BYTES).digest()
        if record.value is None:
            values.pop(key, None)
        else:
            value = blake2b(record.value, digest_size=_DIGEST_BYTES).digest()
            values[key] = (value, record.offset)
