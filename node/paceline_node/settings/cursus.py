"""Settings of the Cursus protocol."""

from __future__ import annotations

import enum

from paceline.values import dataclass
from paceline_node.settings import counts
from paceline_node.settings.counts import counted
from paceline_node.settings.fields import setting

_HOUR_MS = 60 * 60 * 1000


class NonUtf8(enum.Enum):
    """What Cursus readers are sent of a payload that is not UTF-8."""

    RAW = "raw"
    REPLACE = "replace"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class CursusSettings:
    """The Cursus protocol."""

    ack_timeout_ms: int = setting(
        3500, "Longest wait for an acknowledgement before request_timed_out.", low=1, high=3800
    )
    leader_wait_ms: int = setting(
        2000, "Longest wait for a partition without a leader.", low=0, high=3500
    )
    session_timeout_ms: int = setting(
        10_000, "Silence after which a group member is removed.", low=100, high=_HOUR_MS
    )
    keepalive_ms: int = setting(
        2000, "Silence after which a stream is sent an empty frame.", low=100, high=4000
    )
    idle_timeout_ms: int = setting(
        0, "Silence after which a connection that does not stream is closed; 0: never.", low=0
    )
    stream_stall_ms: int = setting(
        600_000,
        "Time in which the reader of a stream must take what it is sent, or 64 KiB of it: clients "
        "work on the records of a frame before they read on.",
        low=10,
    )
    compressors: tuple[str, ...] = setting(
        (),
        "Registered compressors (entry points of group paceline.cursus.compressors) to try, in "
        "this order, on frames that are nothing else.",
    )
    transaction_timeout_ms: int = setting(
        60_000,
        "How long a transaction may be open before it is aborted; at most "
        "transactions.timeout_max_ms.",
        low=1000,
        high=900_000,
    )
    producer_ttl_ms: int = setting(
        30 * 60_000, "Silence after which a numbering producer is forgotten.", low=1000
    )
    producer_check_ms: int = setting(
        60_000, "How often forgetting is looked at.", low=100, high=_HOUR_MS
    )
    event_streams_max: int = counted(counts.EVENT_STREAMS)
    non_utf8: NonUtf8 = setting(
        NonUtf8.RAW,
        "What readers get of a payload that is not UTF-8, on which clients for Python stop: its "
        "bytes as they are, with U+FFFD for each wrong one, or not the record.",
    )
