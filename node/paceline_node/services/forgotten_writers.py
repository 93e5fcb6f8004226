"""What a log holds of a transaction whose producer it has forgotten.

An unclean election may set ``__transactions`` back to where a transaction was decided and not
complete, long after it was. Or the coordinator was lost before it noted what was stored, and there
was no other one for long. Then the transaction is told once more, and a partition that has
forgotten the producer takes its staged records for new ones. So its leader reads the log from the
transaction's begin on, as the only thing that still knows. That is much to read where the begin
lies far back: it is read in pieces, beside everything else, and the next request goes on where the
last one stopped.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from paceline.errors import CorruptMessage, DuplicateSequence, NotEnoughReplicas
from paceline.wire.batch_header import BatchHeader
from paceline_node.env import Env
from paceline_node.replication.lookups import find_offset
from paceline_node.replication.partition import Partition
from paceline_node.storage.reading import LogSlice

_AHEAD_MS = 600_000
"""How far the clock of the coordinator may be ahead of those of leaders."""
_PATIENCE_S = 5.0
_PIECE_BYTES = 128 * 1024
_REMEMBERED = 1000


class _Search(NamedTuple):
    partition: object
    leader_epoch: int
    producer_id: int
    epoch: int


class ForgottenWriters:
    """One node's look into the logs that it leads."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._read_to: OrderedDict[_Search, int] = OrderedDict()

    async def check(self, partition: Partition, header: BatchHeader, began_ms: int) -> None:
        """Whether the log, which does not know the producer of a batch, has anything that it wrote
        in the batch's epoch or later, in or behind a transaction that began at ``began_ms``.

        Raises DuplicateSequence then; NotEnoughReplicas when there is more to read, to be asked
        again; what :func:`find_offset` raises. Where the log is damaged it tells nothing: records
        are rather stored twice than never.
        """
        who = header.producer_id
        if partition.log.producers.producer(who) is not None:
            return
        search = _Search(partition.key, partition.leader_epoch, who, header.producer_epoch)
        offset = self._read_to.pop(search, None)
        if offset is None:
            offset = find_offset(partition, max(0, began_ms - _AHEAD_MS)).offset
        if offset < 0:
            return  # nothing is as young as that
        deadline = self._env.now() + _PATIENCE_S
        try:
            while (piece := _piece(partition, offset)) is not None:
                data = await piece.read_async()
                for _, each in piece.batches(data):
                    if each.producer_id == who and each.producer_epoch >= header.producer_epoch:
                        raise DuplicateSequence(
                            f"{partition}: producer {who} wrote in epoch {each.producer_epoch} at "
                            f"offset {each.base_offset}, which was forgotten"
                        )
                offset = piece.next_offset
                if self._env.now() >= deadline:
                    raise NotEnoughReplicas(
                        f"{partition}: producer {who} is looked for in the log, to {offset} by now"
                    )
        except CorruptMessage:
            return
        except OSError as error:  # retention gave up the file, or the disk fails
            raise NotEnoughReplicas(f"{partition}: {error}") from error
        finally:
            self._read_to[search] = offset
            if len(self._read_to) > _REMEMBERED:
                self._read_to.popitem(last=False)


def _piece(partition: Partition, offset: int) -> LogSlice | None:
    log = partition.log
    return log.locate(max(offset, log.log_start_offset), _PIECE_BYTES, log.log_end_offset)
