"""What a log holds of a transaction whose producer it has forgotten.

An unclean election may set ``__transactions`` back to where a transaction was decided and not
complete, long after it was. Or the coordinator was lost before it noted what was stored, and there
was no other one for long. Then the transaction is told once more, and a partition that has
forgotten the producer takes its staged records for new ones. So its leader reads the log from the
transaction's begin on, as the only thing that still knows. That is much to read where the begin
lies far back: it is read in pieces, beside everything else, and the next request goes on where the
last one stopped.

Records are taken for stored only with proof of just these: the table in ``transactions/DESIGN.md``.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from paceline.errors import CorruptMessage, DuplicateSequence, NotEnoughReplicas
from paceline.wire.batch_header import BatchHeader
from paceline.wire.end_marker import EndMarker, is_end_marker, read_end_marker
from paceline_node.env import Env
from paceline_node.replication.offset_lookups import find_offset
from paceline_node.replication.partition import Partition
from paceline_node.storage.producer_state import ProducerState
from paceline_node.storage.reading import LogSlice

_AHEAD_MS = 600_000
"""How far the clock of the coordinator may be ahead of those of leaders."""
_PATIENCE_S = 5.0
_PIECE_BYTES = 128 * 1024
_REMEMBERED = 1000
_ALL = 2**31
"""Sequences of a producer."""


class _Search(NamedTuple):
    partition: object
    leader_epoch: int
    producer_id: int
    epoch: int


class _Progress:
    """A log was read up to ``offset``: sequences below ``stored`` of the transaction are in it, or
    all of them if ``is_ended``. A transaction's batches are stored in their order. What tells so
    lies before ``proved_at``."""

    __slots__ = ("is_ended", "offset", "proved_at", "stored")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.stored = 0
        self.proved_at = 0
        self.is_ended = False

    def require_new(self, partition: Partition, header: BatchHeader) -> None:
        """Raise DuplicateSequence if ``header``'s records are among them; NotEnoughReplicas where
        that is not committed, and a leader may yet lose it."""
        if self.proved_at > partition.high_watermark:
            raise NotEnoughReplicas(
                f"{partition}: what producer {header.producer_id} wrote before offset "
                f"{self.proved_at} is not committed yet"
            )
        if self.is_ended or header.last_sequence < self.stored:
            raise DuplicateSequence(
                f"{partition}: producer {header.producer_id} has written sequences "
                f"{header.base_sequence}..{header.last_sequence} in epoch {header.producer_epoch}, "
                "which was forgotten"
            )

    def see(self, each: BatchHeader, marker: EndMarker | None, epoch: int, cleaned: int) -> None:
        """The producer's next batch in the log. A later epoch is a later transaction: the
        coordinator went on only when everybody had been told. What lies below ``cleaned`` was
        compacted, so ended; its marker and other batches may be gone. What was aborted, as nobody
        knew of it, counts for nothing."""
        self.proved_at = each.next_offset
        if each.producer_epoch > epoch or (marker is not None and marker.commits):
            self.is_ended = True
        elif marker is not None:
            self.stored = 0
        else:
            self.stored = _ALL if each.base_offset < cleaned else each.last_sequence + 1


class ForgottenProducers:
    """One node's look into the logs that it leads."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._read_to: OrderedDict[_Search, _Progress] = OrderedDict()

    async def check(self, partition: Partition, header: BatchHeader, began_ms: int) -> int:
        """Whether the log has a batch of a transaction that began at ``began_ms``, of which the
        partition's table does not tell; the transaction has the batch's epoch for itself.

        The sequence behind those that were found, 0 without any: where a producer that is unknown
        goes on. Raises DuplicateSequence if the batch is stored, or the whole transaction;
        NotEnoughReplicas when there is more to read, to be asked again; what :func:`find_offset`
        raises, and :meth:`Partition.check_epoch` where the leadership has changed meanwhile. Only
        what is committed tells. Where the log is damaged it tells nothing: records are rather
        stored twice than never.
        """
        who, epoch = header.producer_id, header.producer_epoch
        if _tells(partition.log.producers.producer(who), header):
            return 0
        search = _Search(partition.key, partition.leader_epoch, who, epoch)
        progress = self._read_to.pop(search, None)
        if progress is None:
            progress = _Progress(find_offset(partition, max(0, began_ms - _AHEAD_MS)).offset)
        if progress.offset < 0:
            return 0  # nothing is as young as that
        deadline = self._env.now() + _PATIENCE_S
        try:
            while not progress.is_ended and (piece := _piece(partition, progress.offset)):
                data = await piece.read_async()
                cleaned = partition.log.compaction.cleaned_offset
                for position, each in piece.batches(data):
                    if each.producer_id == who and each.producer_epoch >= epoch:
                        marker = read_end_marker(data, position) if is_end_marker(each) else None
                        progress.see(each, marker, epoch, cleaned)
                progress.offset = piece.next_offset
                if self._env.now() >= deadline:
                    raise NotEnoughReplicas(
                        f"{partition}: producer {who} is looked for in the log, to "
                        f"{progress.offset} by now"
                    )
        except CorruptMessage:
            pass  # what was found before counts
        except OSError as error:  # retention gave up the file, or the disk fails
            raise NotEnoughReplicas(f"{partition}: {error}") from error
        finally:
            self._read_to[search] = progress
            if len(self._read_to) > _REMEMBERED:
                self._read_to.popitem(last=False)
        partition.check_epoch(search.leader_epoch)
        if _tells(partition.log.producers.producer(who), header):
            return 0  # another request has stored some since: that is waited for as it is judged
        progress.require_new(partition, header)
        return progress.stored


def _tells(state: ProducerState | None, header: BatchHeader) -> bool:
    """Whether ``state`` alone says what became of a batch: not where its producer is unknown, or
    has been known only since a marker or a later batch of the same epoch."""
    if state is None:
        return False
    if state.epoch != header.producer_epoch:
        return True
    if not state.window:
        return False
    return header.base_sequence > state.window[-1].last_sequence - state.known


def _piece(partition: Partition, offset: int) -> LogSlice | None:
    log = partition.log
    return log.locate(max(offset, log.log_start_offset), _PIECE_BYTES, log.log_end_offset)
