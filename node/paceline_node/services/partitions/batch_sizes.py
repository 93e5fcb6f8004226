"""How large a record batch may be that clients write to a topic: its ``max.message.bytes``.

Of each batch as it is stored, compressed or not, as in Kafka: a small record in a batch that is too
large is refused with it. Where the node makes the batches (V1, Cursus), it makes none that is too
large but for one record alone. Not bound by it are what the node writes for itself, appends to
segments, whose clients know of no batches, and the records of a transaction that is staged at its
coordinator: they are batches only once it has been decided that they will be there.
"""

from __future__ import annotations

from collections.abc import Iterable

from paceline.errors import MessageTooLarge
from paceline.wire.batch_header import BatchHeader
from paceline_node.replication.partition import Partition


def check_sizes(partition: Partition, headers: Iterable[BatchHeader]) -> None:
    """Raise MessageTooLarge naming the first batch that is larger than the topic allows."""
    limit = partition.config.max_message_bytes
    for header in headers:
        if header.size_bytes > limit:
            raise MessageTooLarge(
                f"{partition}: a batch of {header.size_bytes} bytes, max.message.bytes={limit}"
            )
