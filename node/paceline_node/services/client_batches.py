"""What batches of clients may say of themselves, beyond their bytes' being whole."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.errors import InvalidTimestamp
from paceline.wire.batch import BatchHeader
from paceline_node.env import Env
from paceline_node.replication.partition import Partition


class ClientBatches:
    """Judges batches that are stored as they came, with the times that their producers gave."""

    def __init__(self, env: Env) -> None:
        self._env = env

    def check(self, partition: Partition, headers: Sequence[BatchHeader]) -> None:
        """Raise InvalidTimestamp for times further in the future than the topic allows, by this
        node's clock: nothing beside them would expire as long as they are young."""
        limit_ms = partition.config.timestamp_after_max_ms
        latest_ms = self._env.host.wall_ms() + limit_ms
        for header in headers:
            newest_ms = max(header.max_timestamp, header.base_timestamp)
            if newest_ms > latest_ms:
                raise InvalidTimestamp(
                    f"{partition}: a record of time {newest_ms}, more than "
                    f"message.timestamp.after.max.ms={limit_ms} in the future"
                )
