"""Settings of the segment protocol."""

from __future__ import annotations

from paceline.values import dataclass
from paceline_node.settings import counts
from paceline_node.settings.counts import counted
from paceline_node.settings.fields import setting

_KIB = 1024
_MIB = 1024 * _KIB
_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class SegmentSettings:
    """The segment protocol."""

    append_timeout_ms: int = setting(
        30_000, "Longest wait for an append to be committed.", low=100, high=_HOUR_MS
    )
    read_wait_ms: int = setting(
        5000, "How long a read at the end of a segment waits for data.", low=0, high=25_000
    )
    idle_timeout_ms: int = setting(
        120_000, "Silence after which a connection is closed.", low=100, high=_HOUR_MS
    )
    max_event_bytes: int = setting(
        16 * _MIB - 1, "Largest Event, without its header.", low=1, high=16 * _MIB - 1
    )
    appenders_per_connection: int = counted(counts.APPENDERS)
    reads_per_connection: int = counted(counts.READS)
    inflight_bytes: int = setting(
        8 * _MIB,
        "Received and uncommitted bytes above which a connection is not read, until half of them "
        "are committed.",
        low=_KIB,
        high=2**31 - 1,
    )
    inflight_node_bytes: int = setting(
        256 * _MIB, "The same for all connections together.", low=_KIB
    )
    reply_queue_bytes: int = setting(
        16 * _MIB, "Untaken replies above which a connection is not read.", low=_KIB
    )
    writer_ttl_ms: int = setting(
        7 * 24 * _HOUR_MS,
        "Silence after which a writer is forgotten: it then begins anew.",
        low=1000,
    )
    writer_check_ms: int = setting(
        _HOUR_MS, "Pause between two looks for such writers.", low=100, high=24 * _HOUR_MS
    )
    force_partial_replies: int = setting(
        0,
        "Bytes of each piece that replies are cut into, to test clients; 0: whole replies.",
        low=0,
    )
