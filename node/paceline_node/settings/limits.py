"""Settings that bound what clients may take."""

from __future__ import annotations

from dataclasses import dataclass

from paceline_node.settings.fields import setting

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """Bounds that keep one client from harming the rest."""

    connections: int = setting(4096, "Client connections of each listener.", low=1, high=1_000_000)
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
    peer_connections: int = setting(1024, "Connections from other nodes.", low=8, high=100_000)
    descriptors: int = setting(
        0,
        "Files and connections that the process may have open at a time; 0: as many as the system "
        "lets it.",
        low=0,
        high=1 << 20,
    )
    partitions: int = setting(
        10_000,
        "Partitions that this node may hold a replica of; no topic is made that needs more.",
        low=100,
        high=1_000_000,
    )
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
    partition_producers: int = setting(
        50_000,
        "Producers that a partition knows, half of them of one client at most. Where there are "
        "more, idle ones of the clients that have most are forgotten.",
        low=2,
        high=10_000_000,
    )
    client_producers: int = setting(
        250_000,
        "Producers of one client (principal, or address) in all partitions that this node leads.",
        low=1,
        high=100_000_000,
    )
    requests_per_connection: int = setting(
        256, "Requests of one connection that are worked on at a time.", low=1, high=100_000
    )
    outbox_bytes: int = setting(
        256 * _MIB,
        "Unsent bytes after which a native client that does not read is disconnected.",
        low=16 * _MIB,
    )
