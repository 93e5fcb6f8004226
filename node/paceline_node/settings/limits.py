"""Settings that bound what clients may take."""

from __future__ import annotations

from paceline.values import dataclass
from paceline_node.settings import counts
from paceline_node.settings.counts import counted
from paceline_node.settings.fields import setting

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """Bounds that keep one client from harming the rest."""

    connections: int = counted(counts.CONNECTIONS)
    idle_ms: int = setting(
        10_000,
        "How long a client connection must have been silent, both ways, to be closed for a new one "
        "where a listener has as many as it may have.",
        low=0,
    )
    stall_ms: int = setting(
        60_000,
        "Time in which a client must end a message that it has begun (and a second for every "
        "64 KiB of it), and take what it is sent: all, or of V1 and Cursus 64 KiB, of the native "
        "and Kafka's protocol a MiB.",
        low=10,
        high=3_600_000,
    )
    native_idle_ms: int = setting(
        600_000,
        "Silence after which a native client that waits for no answer is closed; 0: never. Clients "
        "of V1 and Cursus, which do not all come back, are never.",
        low=0,
    )
    peer_connections: int = counted(counts.PEER_CONNECTIONS)
    descriptors: int = setting(
        0,
        "Files and connections that the process may have open at a time; 0: as many as the system "
        "lets it.",
        low=0,
        high=1 << 20,
    )
    partitions: int = counted(counts.PARTITIONS)
    external_brokers: int = counted(counts.EXTERNAL_BROKERS)
    tables: int = counted(counts.TABLES)
    table_keys: int = counted(counts.TABLE_KEYS)
    table_bytes: int = counted(counts.TABLE_BYTES)
    reserved_descriptors: int = setting(
        256, "File descriptors kept for peers and logs: no client is accepted into them.", low=0
    )
    frame_bytes: int = setting(
        64 * _MIB, "Largest frame of a native client.", low=_MIB, high=2**31 - 1
    )
    client_memory_bytes: int = setting(
        512 * _MIB,
        "Memory that clients of all listeners may make the node hold: messages in arrival, "
        "requests at work, answers not taken; at least four of the largest frames. Above it, "
        "connections that hold most are ended.",
        low=16 * _MIB,
    )
    partition_producers: int = counted(counts.PARTITION_PRODUCERS)
    client_producers: int = counted(counts.CLIENT_PRODUCERS)
    requests_per_connection: int = counted(counts.REQUESTS)
    outbox_bytes: int = setting(
        256 * _MIB,
        "Unsent bytes after which a native client that does not read is disconnected.",
        low=16 * _MIB,
    )
