"""The variable names of the broker that V1 comes from, as aliases of ours (DESIGN 3.2).

They rank just below the ``PACELINE_`` variables. The three that describe its one listener make
up our v1 listener; the other listeners stay as they are by default. FLUX_CLUSTER_PEERS must name
*peer* addresses here. FLUX_FLUSH_BYTES is checked and has no effect: here an fsync is shared or
timed, never counted in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from paceline_node.settings.addresses import DEFAULT_KINDS, Listener, ListenerKind

Found = tuple[str, str, object]  # key, name of the variable, value

_LISTEN = "FLUX_LISTEN_ADDR"
_HOST = "FLUX_ADVERTISED_HOST"
_PORT = "FLUX_ADVERTISED_PORT"
_BROKER_ID = "FLUX_BROKER_ID"
_FLUSH_BYTES = "FLUX_FLUSH_BYTES"

_FSYNC_MODES = {"always": "group", "interval": "interval", "never": "none"}


def _same(value: str) -> object:
    return value


def _seconds_to_ms(value: str) -> object:
    return str(int(value) * 1000)


def _fsync_mode(value: str) -> object:
    if value not in _FSYNC_MODES:
        raise ValueError(f"expected one of {', '.join(_FSYNC_MODES)}, found {value!r}")
    return _FSYNC_MODES[value]


_ALIASES: dict[str, tuple[str, Callable[[str], object]]] = {
    _BROKER_ID: ("node.id", _same),
    "FLUX_CLUSTER_PEERS": ("cluster.bootstrap", _same),
    "FLUX_DATA_DIR": ("node.data_dir", _same),
    "FLUX_NUM_PARTITIONS": ("topics.partitions", _same),
    "FLUX_REPLICATION_FACTOR": ("topics.replication_factor", _same),
    "FLUX_MIN_ISR": ("topics.min_insync_replicas", _same),
    "FLUX_REPLICA_MAX_LAG": ("v1.simulated_max_lag", _same),
    "FLUX_REPLICA_LAG_TIMEOUT_MS": ("replication.lag_max_ms", _same),
    "FLUX_ACK_ALL_TIMEOUT_MS": ("v1.ack_timeout_ms", _same),
    "FLUX_SEGMENT_MAX_BYTES": ("log.segment_bytes", _same),
    "FLUX_RETENTION_MAX_BYTES": ("log.retention_bytes", _same),
    "FLUX_RETENTION_MAX_AGE_SECONDS": ("log.retention_ms", _seconds_to_ms),
    "FLUX_FLUSH_INTERVAL_MS": ("flush.interval_ms", _same),
    "FLUX_FSYNC_MODE": ("flush.mode", _fsync_mode),
}


def read_aliases(environ: Mapping[str, str]) -> tuple[list[Found], list[str]]:
    """What the FLUX_ variables say, and a sentence for each that is wrong by itself."""
    found: list[Found] = []
    problems: list[str] = []
    for name, (key, translate) in _ALIASES.items():
        if name not in environ:
            continue
        try:
            found.append((key, name, translate(environ[name])))
        except ValueError as error:
            problems.append(f"invalid {name}: {error} (environment)")
    if _FLUSH_BYTES in environ and not environ[_FLUSH_BYTES].isdecimal():
        problems.append(f"invalid {_FLUSH_BYTES}: expected a whole number (environment)")
    if any(name in environ for name in (_LISTEN, _HOST, _PORT)):
        found.append(("listeners", _LISTEN, _listeners(environ)))
    return found, problems


def _listeners(environ: Mapping[str, str]) -> list[object]:
    """The default listeners, with the v1 one as the three variables describe it. A bad address is
    left in the URL, where reading the URL reports it."""
    host, _, port = environ.get(_LISTEN, ":9092").rpartition(":")
    advertised = f"{environ.get(_HOST, '127.0.0.1')}:{environ.get(_PORT, port)}"
    node = environ.get("PACELINE_NODE__ID", environ.get(_BROKER_ID, "0"))
    node_id = int(node) if node.isdecimal() else 0
    urls: list[object] = [
        f"{ListenerKind.V1.value}://{host or '0.0.0.0'}:{port}?advertised={advertised}"  # noqa: S104  the original's default
    ]
    urls += [
        str(Listener.default(kind, node_id)) for kind in DEFAULT_KINDS if kind != ListenerKind.V1
    ]
    return urls
