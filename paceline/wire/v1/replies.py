"""Reply lines and their payloads, field by field in the order that SDKs rely on (DESIGN 3.1).

::

    V1|<id>|OK LF
    V1|<id>|OK|<payload> LF
    V1|<id>|ERR|<code>|<message> LF

SDKs find a field as the first substring ``name=``, so fields are only ever added at the end, and
no new name may end in an older one of the same payload (DESIGN 3.1).
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.wire.v1.errors import V1Code, V1Error
from paceline.wire.v1.requests import PartitionRole, ValueEncoding
from paceline.wire.v1.text import encode, is_plain_safe, percent_encode

DEFAULT_MAX_PAYLOAD_BYTES = 1024 * 1024


# --- lines ---------------------------------------------------------------------------------


def ok_line(correlation: str, payload: bytes = b"") -> bytes:
    """A whole OK reply with its LF."""
    head = b"V1|" + encode(correlation) + b"|OK"
    return head + b"|" + payload + b"\n" if payload else head + b"\n"


def error_line(correlation: str, error: V1Error) -> bytes:
    """A whole ERR reply with its LF; line breaks in the message become blanks."""
    message = " ".join(error.message.splitlines()).encode("utf-8", "replace")
    return b"V1|%b|ERR|%b|%b\n" % (encode(correlation), error.reason.encode(), message)


def integer_list(numbers: Sequence[int]) -> str:
    """``[0 1 2]``; ``[]`` when empty."""
    return f"[{' '.join(map(str, numbers))}]"


def _flag(value: bool) -> str:
    return "true" if value else "false"


# --- records -------------------------------------------------------------------------------


class MessageList:
    """The ``offset:value,...`` list of one reply, filled up to its limits.

    Always holds at least one record, however large, unless none is offered.
    """

    def __init__(
        self,
        *,
        encoding: ValueEncoding = ValueEncoding.PLAIN,
        with_keys: bool = False,
        max_records: int | None = None,
        max_bytes: int = DEFAULT_MAX_PAYLOAD_BYTES,
    ) -> None:
        self.encoding = encoding
        self._with_keys = with_keys
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._items: list[bytes] = []
        self._size = 0

    def __len__(self) -> int:
        return len(self._items)

    def add(self, offset: int, key: bytes | None, value: bytes | None) -> bool:
        """Take one record; False means it did not get in and the list is finished.

        Nulls are shown empty. Raises V1Error UNREPRESENTABLE when the first record cannot be
        carried in plain form; a later one ends the list before it, so nothing is skipped.
        """
        if self._max_records is not None and len(self._items) >= self._max_records:
            return False
        if self.encoding is ValueEncoding.PLAIN and not is_plain_safe(value or b""):
            if self._items:
                return False
            raise V1Error(V1Code.UNREPRESENTABLE, f"offset={offset}; use enc=pct")
        item = self._item(offset, key or b"", value or b"")
        size = self._size + len(item) + bool(self._items)
        if self._items and size > self._max_bytes:
            return False
        self._items.append(item)
        self._size = size
        return True

    def _item(self, offset: int, key: bytes, value: bytes) -> bytes:
        if self.encoding is ValueEncoding.PLAIN:
            return b"%d:%b" % (offset, value)
        if self._with_keys:
            return f"{offset}:{percent_encode(key)}:{percent_encode(value)}".encode()
        return f"{offset}:{percent_encode(value)}".encode()

    def to_bytes(self) -> bytes:
        return b",".join(self._items)


def produce_payload(*, partition: int, offset: int, hw: int) -> bytes:
    return f"partition={partition} offset={offset} hw={hw}".encode()


def consume_payload(messages: MessageList, *, hw: int) -> bytes:
    tail = b" enc=pct" if messages.encoding is ValueEncoding.PERCENT else b""
    return b"messages=%b hw=%d%b" % (messages.to_bytes(), hw, tail)


# --- groups --------------------------------------------------------------------------------


def assignment_payload(*, generation: int, assigned: Sequence[int]) -> bytes:
    """JOIN and SYNC."""
    return f"generation={generation} assigned={integer_list(assigned)}".encode()


HEARTBEAT_PAYLOAD = b"heartbeat=ok"
LEAVE_PAYLOAD = b"left=true"
COMMIT_PAYLOAD = b"committed=true"


def offset_payload(offset: int) -> bytes:
    return b"offset=%d" % offset


# --- replicas ------------------------------------------------------------------------------


def replica_fetch_payload(
    *, replica: int, acked_offset: int, hw: int, isr: Sequence[int], under_replicated: bool
) -> bytes:
    return (
        f"replica={replica} acked_offset={acked_offset} hw={hw} isr={integer_list(isr)} "
        f"under_replicated={_flag(under_replicated)}"
    ).encode()


def role_payload(*, topic: str, partition: int, role: PartitionRole, hw: int) -> bytes:
    return f"topic={topic} partition={partition} role={role.value} hw={hw}".encode()


def broker_fetch_payload(
    *, topic: str, partition: int, follower: int, hw: int, records: MessageList
) -> bytes:
    head = f"topic={topic} partition={partition} follower={follower} hw={hw} records="
    return head.encode() + records.to_bytes()


def broker_replica_ack_payload(
    *,
    topic: str,
    partition: int,
    follower: int,
    acked_offset: int,
    hw: int,
    isr: Sequence[int],
    under_replicated: bool,
) -> bytes:
    return (
        f"topic={topic} partition={partition} follower={follower} acked_offset={acked_offset} "
        f"hw={hw} isr={integer_list(isr)} under_replicated={_flag(under_replicated)}"
    ).encode()


# --- administration ------------------------------------------------------------------------


def create_topic_payload(
    *, topic: str, partitions: int, replication_factor: int, term: int, index: int
) -> bytes:
    return (
        f"topic={topic} partitions={partitions} replication_factor={replication_factor} "
        f"term={term} index={index}"
    ).encode()


def register_broker_payload(
    *, broker_id: int, host: str, port: int, term: int, index: int
) -> bytes:
    return f"broker_id={broker_id} host={host} port={port} term={term} index={index}".encode()


def broker_heartbeat_payload(*, broker_id: int, term: int, index: int) -> bytes:
    return f"broker_id={broker_id} heartbeat=ok term={term} index={index}".encode()


def partition_leader_payload(
    *, topic: str, partition: int, leader: int, isr: Sequence[int], term: int, index: int
) -> bytes:
    return (
        f"topic={topic} partition={partition} leader={leader} isr={integer_list(isr)} "
        f"term={term} index={index}"
    ).encode()


def fence_payload(*, broker_id: int, fenced: bool, term: int, index: int) -> bytes:
    return f"broker_id={broker_id} fenced={_flag(fenced)} term={term} index={index}".encode()


def reconcile_payload(reconciled: int) -> bytes:
    return b"reconciled=%d" % reconciled


def elect_payload(*, topic: str, elected_changes: int) -> bytes:
    return f"topic={topic} elected_changes={elected_changes}".encode()


def metadata_payload(
    *, topics: Sequence[str], brokers: Sequence[int], fenced: Sequence[int]
) -> bytes:
    """ADMIN_GET_METADATA; every list is shown sorted."""
    return (
        f"topics=[{' '.join(sorted(topics))}] brokers={integer_list(sorted(brokers))} "
        f"fenced={integer_list(sorted(fenced))}"
    ).encode()
