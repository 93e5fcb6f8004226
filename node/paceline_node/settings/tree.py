"""Every setting of a node: name, default, bounds, meaning.

The tree is frozen and passed down by part; nothing else in the node reads files or variables for
its configuration. Units stand in the names. Defaults that differ under ``cluster.timing = local``
(all nodes on one small machine) give both.
"""

from __future__ import annotations

import enum
from dataclasses import field
from pathlib import Path

from paceline.oauthbearer import OAUTHBEARER
from paceline.scram import SASL_MECHANISMS
from paceline.values import dataclass
from paceline_node.settings.address_rules import AddressRule
from paceline_node.settings.addresses import DEFAULT_KINDS, BootstrapPeer, ClientAuth, Listener
from paceline_node.settings.coordination import GroupSettings, TransactionSettings
from paceline_node.settings.cursus import CursusSettings
from paceline_node.settings.fields import setting
from paceline_node.settings.flush_mode import FlushMode
from paceline_node.settings.limits import LimitSettings
from paceline_node.settings.security import OauthSettings, SecuritySettings
from paceline_node.settings.segment import SegmentSettings

_KIB = 1024
_MIB = 1024 * _KIB
_GIB = 1024 * _MIB
_DAY_MS = 24 * 60 * 60 * 1000
_HOUR_MS = 60 * 60 * 1000


class Timing(enum.Enum):
    """Which defaults the time-outs have."""

    PRODUCTION = "production"
    LOCAL = "local"


class AdminCommands(enum.Enum):
    """Who may use the ADMIN commands of V1."""

    ALLOW = "allow"
    LOOPBACK = "loopback"
    DENY = "deny"


class SimulatedReplicas(enum.Enum):
    """Whether clients may play replicas that no node hosts (replication/DESIGN 8)."""

    AUTO = "auto"
    OFF = "off"


class SliceClock(enum.Enum):
    """By what clock the steps of tasks are measured."""

    WALL = "wall"
    CPU = "cpu"


class LogLevel(enum.Enum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(enum.Enum):
    CONSOLE = "console"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """This node."""

    id: int = setting(0, "Number of this node in the cluster.", low=0, high=2**31 - 1)
    data_dir: Path = setting(Path("data"), "Directory of everything this node stores.")
    rack: str = setting("", "Failure domain; replicas are spread over different ones.")


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The cluster this node belongs to."""

    name: str = setting("paceline", "Name shown to people; the cluster id is what counts.")
    bootstrap: tuple[BootstrapPeer, ...] = setting(
        (), "Peer addresses to join through, as [ID@]HOST:PORT."
    )
    secret_file: str = setting(
        "",
        "File with the secret that nodes prove to each other, mode 0600; "
        "empty: cluster.secret beside the data directory.",
    )
    timing: Timing = setting(
        Timing.PRODUCTION,
        "Which defaults the time-outs below have: local is quicker to notice a death and meant "
        "for a whole cluster on one machine.",
    )


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Defaults of topics that are created without saying more."""

    partitions: int = setting(3, "Partitions of a new topic.", low=1, high=10_000, reloadable=True)
    replication_factor: int = setting(
        3, "Replicas of each partition.", low=1, high=32, reloadable=True
    )
    min_insync_replicas: int = setting(
        2,
        "Replicas that must hold a record before acks=all is answered.",
        low=1,
        high=32,
        reloadable=True,
    )


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Partition logs. A topic's own configuration comes before the first four."""

    segment_bytes: int = setting(
        _GIB, "Size at which a segment file is closed.", low=_KIB, high=2**31 - 1
    )
    segment_ms: int = setting(
        7 * _DAY_MS, "Age at which a segment file is closed even when small.", low=1000
    )
    retention_ms: int = setting(
        7 * _DAY_MS, "Age of its newest record at which a segment goes; -1: never.", low=-1
    )
    retention_bytes: int = setting(
        -1, "Size of a partition beyond which its oldest segments go; -1: no limit.", low=-1
    )
    retention_check_ms: int = setting(
        60_000, "Pause between two looks for segments to delete.", low=100, high=_DAY_MS
    )
    compaction_check_ms: int = setting(
        15_000, "Pause between two looks for logs to compact.", low=100, high=_DAY_MS
    )
    compaction_bytes_per_s: int = setting(16 * _MIB, "How fast compaction reads.", low=64 * _KIB)
    compaction_keys: int = setting(
        250_000,
        "Keys that compaction holds in memory at a time, some 150 bytes each; more of them take "
        "several rounds.",
        low=1000,
    )
    scrub_interval_ms: int = setting(
        7 * _DAY_MS,
        "Time in which every segment is read once, in search of bytes that have changed on "
        "the disk; 5 MB/s at most.",
        low=100,
    )
    # A look-up among batches of 100 bytes takes 80 us with this and 600 us with 64 KiB, for 2 MB of
    # index a GiB; a clean start reads them in some 100 ms.
    index_interval_bytes: int = setting(
        4 * _KIB, "Log bytes between two index entries.", low=256, high=16 * _MIB
    )
    producer_ttl_ms: int = setting(
        _DAY_MS,
        "Silence after which an idempotent or transactional producer is forgotten; up to a quarter "
        "longer, and longer where the leader was restarted meanwhile.",
        low=1000,
    )
    producer_check_ms: int = setting(
        600_000,
        "Pause between two looks for silent producers, and for open transactions that their "
        "coordinator has forgotten (after an unclean election): they are aborted at the second.",
        low=100,
        high=_DAY_MS,
    )
    checkpoint_ms: int = setting(
        5000,
        "Pause between two writings of recovery points and high watermarks.",
        low=50,
        high=_HOUR_MS,
        local=1000,
    )


@dataclass(frozen=True, slots=True)
class FlushSettings:
    """When records reach stable storage. A topic's own configuration comes first."""

    mode: FlushMode = setting(
        FlushMode.GROUP,
        "group: one fsync shared by all that wait; batch: one for each request; interval, none: "
        "acknowledged before fsync, so a power loss of all replicas may lose records.",
    )
    interval_ms: int = setting(1000, "Pause between fsyncs in mode interval.", low=1, high=_HOUR_MS)
    linger_ms: float = setting(
        0.0, "Wait for more records before a group's fsync starts.", low=0, high=100
    )


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    """Copying between nodes."""

    lag_max_ms: int = setting(
        10_000,
        "A follower not caught up for this long leaves the in-sync set.",
        low=100,
        high=_HOUR_MS,
        local=3000,
    )
    fetch_max_wait_ms: int = setting(
        500, "A follower's fetch waits this long for records.", low=1, high=30_000
    )
    fetch_min_bytes: int = setting(1, "Bytes that end the wait.", low=1, high=_MIB)
    fetch_partition_bytes: int = setting(
        _MIB, "Most bytes of one partition in a fetch (at least one batch).", low=_KIB
    )
    fetch_response_bytes: int = setting(10 * _MIB, "Most bytes of a fetch.", low=_KIB)
    catchup_bytes_per_s: int = setting(
        -1,
        "What this node sends a second to replicas that are not in sync, as those that are being "
        "moved to other nodes; -1: no limit. None holds where acks=all waits for them.",
        low=-1,
        reloadable=True,
    )
    backoff_min_ms: int = setting(
        50, "First pause after a failed fetch; doubles.", low=1, high=60_000, local=20
    )
    backoff_max_ms: int = setting(
        1000, "Longest pause after failed fetches.", low=1, high=60_000, local=200
    )


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """This broker's session with the controller."""

    heartbeat_ms: int = setting(500, "Pause between heartbeats.", low=20, high=60_000, local=200)
    session_ms: int = setting(
        4000,
        "Silence after which the controller fences a broker, and a broker itself. At least four "
        "times the longest stall of the process.",
        low=200,
        high=600_000,
        local=2000,
    )
    shutdown_ms: int = setting(
        30_000, "Longest wait for handing over leadership when stopping.", low=0, high=_HOUR_MS
    )
    without_controller: bool = setting(
        False, "Whether leaders go on serving after a session without any controller."
    )


@dataclass(frozen=True, slots=True)
class RaftSettings:
    """The metadata quorum."""

    voters: int = setting(
        3, "Voters that the quorum grows to by itself, from as many nodes; odd.", low=1, high=9
    )
    heartbeat_ms: int = setting(100, "Pause between the leader's heartbeats.", low=10, high=10_000)
    election_ms: int = setting(
        1000,
        "Silence after which a voter stands for election: drawn from one to two times this.",
        low=50,
        high=60_000,
        local=500,
    )
    snapshot_records: int = setting(
        5000, "Metadata records between two snapshots.", low=10, high=10_000_000
    )
    snapshot_bytes: int = setting(16 * _MIB, "Log bytes between two snapshots.", low=4 * _KIB)


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """What the active controller does by itself."""

    balance_interval_ms: int = setting(
        60_000, "Pause between moves of leadership to preferred replicas; 0: never.", low=0
    )
    noop_interval_ms: int = setting(
        1000,
        "Pause between two metadata records that say nothing but what each node holds of them.",
        low=50,
    )


@dataclass(frozen=True, slots=True)
class V1Settings:
    """The V1 line protocol."""

    ack_timeout_ms: int = setting(
        2000, "Longest wait of acks=all before REPLICATION_TIMEOUT.", low=1, high=3500
    )
    leader_wait_ms: int = setting(
        2000, "Longest wait for a partition without a leader.", low=0, high=3500
    )
    forward_produce: bool = setting(
        True, "Whether a node that does not lead forwards PRODUCE instead of NOT_LEADER."
    )
    admin_commands: AdminCommands = setting(
        AdminCommands.LOOPBACK,
        "Who may use ADMIN commands and SET_PARTITION_ROLE.",
        reloadable=True,
    )
    principals: tuple[AddressRule, ...] = setting(
        (),
        "Who clients without a certificate are by their address, as ADDRESS=NAME or NETWORK=NAME, "
        "the first that fits; nobody but them must be able to come from there.",
    )
    max_line_bytes: int = setting(_MIB, "Longest request line.", low=65_535, high=64 * _MIB)
    consume_max_bytes: int = setting(
        _MIB, "Payload bytes in one CONSUME reply; at least one record.", low=1, high=64 * _MIB
    )
    consume_commit_wait_ms: int = setting(
        500, "How long CONSUME waits for a stored record to be committed.", low=0, high=3500
    )
    session_timeout_ms: int = setting(
        10_000, "Silence after which a group member is removed.", low=100, high=_HOUR_MS
    )
    simulated_replicas: SimulatedReplicas = setting(
        SimulatedReplicas.AUTO,
        "auto: while this is the only registered node, REPLICA_FETCH acknowledges for replicas "
        "that no node hosts; off: never.",
    )
    simulated_max_lag: int = setting(
        0, "Records by which a simulated replica may lag and still count.", low=0
    )


@dataclass(frozen=True, slots=True)
class DiskSettings:
    """The data directory's file system."""

    min_free_bytes: int = setting(
        -1, "Free space below which produce is refused; -1: the larger of 1 GiB and 2 %.", low=-1
    )


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Listeners whose scheme ends in ``+tls``. Files are in PEM form, and read again on SIGHUP."""

    certificate: str = setting(
        "", "This node's certificate, and those that lead to a known one.", reloadable=True
    )
    key: str = setting("", "The certificate's private key, without a passphrase.", reloadable=True)
    client_authorities: str = setting(
        "", "Authorities that sign the certificates of clients.", reloadable=True
    )
    client_auth: ClientAuth = setting(
        ClientAuth.NONE,
        "Whether clients are asked for a certificate, where the listener's ?client_auth= does not "
        "say.",
    )
    principal_rules: str = setting(
        "DEFAULT",
        "From a client's certificate to its principal: as Kafka's ssl.principal.mapping.rules; "
        "DEFAULT is the subject's common name, else the first URI or DNS name.",
        reloadable=True,
    )
    peer_certificate: str = setting(
        "",
        "This node's certificate towards nodes, which names node-N.paceline; empty: "
        "tls.certificate, with its key.",
        reloadable=True,
    )
    peer_key: str = setting("", "That certificate's private key.", reloadable=True)
    peer_authority: str = setting(
        "",
        "The authority that signs the certificates of this cluster's nodes, and of nobody else.",
        reloadable=True,
    )
    handshake_ms: int = setting(
        10_000, "Time a client has for the handshake; a node has 3 s.", low=10, high=600_000
    )


@dataclass(frozen=True, slots=True)
class LoginSettings:
    """How clients prove who they are, where no certificate does. Users: ``paceline user``."""

    mechanisms: tuple[str, ...] = setting(
        (*SASL_MECHANISMS, OAUTHBEARER),
        "SASL mechanisms that are offered; PLAIN and OAUTHBEARER only inside TLS, the latter only "
        "with oauth.jwks.",
    )
    session_ms: int = setting(
        0,
        "How long a log-in holds; clients that know how repeat it on the same connection (Kafka's "
        "connections.max.reauth.ms), others are disconnected; 0: for good.",
        low=0,
        high=365 * 24 * 3600 * 1000,
    )


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """The http listener."""

    request_timeout_ms: int = setting(
        10_000, "Time a client has for sending a request's head.", low=10, high=600_000
    )
    allowed_hosts: tuple[str, ...] = setting(
        (), "Further names under which browsers may reach this port (Host header)."
    )
    allowed_origins: tuple[str, ...] = setting(
        (), "Further web origins whose pages may open a WebSocket, as https://host:port."
    )
    open_ready: bool = setting(
        True,
        "Whether /ready tells anybody that reaches the port if the node serves; why, it tells only "
        "those who may describe the cluster.",
    )
    open_metrics: bool = setting(
        False,
        "Whether /metrics is for anybody that reaches the port, whatever ACLs and login=required "
        "say: it names topics and groups.",
    )


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """What /metrics shows."""

    per_partition: bool = setting(True, "Whether each partition has series of its own.")
    slice_clock: SliceClock = setting(
        SliceClock.WALL, "How steps of the event loop are timed; cpu: without waiting for a core."
    )


@dataclass(frozen=True, slots=True)
class LoggingSettings:
    """The node's messages on standard error."""

    level: LogLevel = setting(LogLevel.INFO, "Least severity that is shown.", reloadable=True)
    format: LogFormat = setting(LogFormat.CONSOLE, "For people or for machines.")


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole tree. ``listeners`` empty means the defaults of DESIGN 3.3 on loopback."""

    listeners: tuple[Listener, ...] = setting(
        (),
        "Where this node accepts which protocol, as scheme://HOST:PORT?advertised=HOST:PORT with "
        "scheme v1, native, peer, http, segment, cursus, coordinator (or kafka), pravega (extra "
        "segment), cursus-health or cursus-metrics; empty: the first eight on loopback, ports "
        "9092, 7400, 7401, 7480, 12345, 9000, 9192, 9090 plus 1000 times the node's id.",
    )
    node: NodeSettings = field(default_factory=NodeSettings)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    topics: TopicSettings = field(default_factory=TopicSettings)
    log: LogSettings = field(default_factory=LogSettings)
    flush: FlushSettings = field(default_factory=FlushSettings)
    replication: ReplicationSettings = field(default_factory=ReplicationSettings)
    broker: BrokerSettings = field(default_factory=BrokerSettings)
    raft: RaftSettings = field(default_factory=RaftSettings)
    controller: ControllerSettings = field(default_factory=ControllerSettings)
    v1: V1Settings = field(default_factory=V1Settings)
    groups: GroupSettings = field(default_factory=GroupSettings)
    transactions: TransactionSettings = field(default_factory=TransactionSettings)
    segment: SegmentSettings = field(default_factory=SegmentSettings)
    cursus: CursusSettings = field(default_factory=CursusSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    disk: DiskSettings = field(default_factory=DiskSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    tls: TlsSettings = field(default_factory=TlsSettings)
    security: SecuritySettings = field(default_factory=SecuritySettings)
    login: LoginSettings = field(default_factory=LoginSettings)
    oauth: OauthSettings = field(default_factory=OauthSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    logging: LoggingSettings = field(default_factory=LoggingSettings)

    @property
    def effective_listeners(self) -> tuple[Listener, ...]:
        """The configured listeners, or the default ones."""
        if self.listeners:
            return self.listeners
        return tuple(Listener.default(kind, self.node.id) for kind in DEFAULT_KINDS)

    def client_auth(self, listener: Listener) -> ClientAuth:
        """Whether clients of a listener are asked for certificates."""
        if not listener.tls:
            return ClientAuth.NONE
        return self.tls.client_auth if listener.client_auth is None else listener.client_auth

    @property
    def secret_path(self) -> Path:
        """The cluster secret's file."""
        if self.cluster.secret_file:
            return Path(self.cluster.secret_file).expanduser()
        return self.node.data_dir.absolute().parent / "cluster.secret"

    def topic_configs(self) -> dict[str, str]:
        """Defaults for the configuration of topics, under the names topics use."""
        return {
            "segment.bytes": str(self.log.segment_bytes),
            "segment.ms": str(self.log.segment_ms),
            "retention.ms": str(self.log.retention_ms),
            "retention.bytes": str(self.log.retention_bytes),
            "flush.mode": self.flush.mode.value,
            "flush.interval.ms": str(self.flush.interval_ms),
            "min.insync.replicas": str(self.topics.min_insync_replicas),
        }
