"""Settings of the client, with their units in their names; plain values, checked when made."""

from __future__ import annotations

from dataclasses import field

from paceline.errors import ConfigurationError
from paceline.login import ClientLogin
from paceline.tls import ClientTls
from paceline.types import MAX_BATCH_BYTES, MAX_RECORD_BYTES, Acks, Compression
from paceline.values import dataclass

MAX_IDEMPOTENT_IN_FLIGHT = 5
"""Batches per partition whose repetition a leader recognises (DESIGN 1.2)."""


def _require(holds: bool, sentence: str) -> None:
    if not holds:
        raise ConfigurationError(sentence)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Of connections and of every request.

    ``request_timeout_s`` is how long a node may take to answer beyond what the request itself asks
    it to wait; a connection with an overdue answer is given up. ``operation_timeout_s`` bounds an
    administrative call or a look-up, with all its retries, and how long a consumer waits for
    another replica to take over from a damaged one. ``tls`` encrypts all connections; None: only if
    the address is ``tls://`` or ``wss://``, or a variable ``PACELINE_CLIENT_TLS_...`` is set.
    ``login`` says who the client is; None: what the address or the variables
    ``PACELINE_CLIENT_USERNAME``, ``..._PASSWORD_FILE`` and ``..._MECHANISM`` say.
    ``first_contact_timeout_s`` is how long
    ``connect()`` goes on trying while every address refuses it, 0 for one try each; None means the
    operation timeout, which a silent address and a cluster once reached get in any case.
    """

    client_id: str = "paceline"
    connect_timeout_s: float = 3.0
    request_timeout_s: float = 5.0
    operation_timeout_s: float = 30.0
    first_contact_timeout_s: float | None = None
    backoff_s: float = 0.01
    max_backoff_s: float = 0.25
    max_frame_bytes: int = 64 * 1024 * 1024
    tls: ClientTls | None = None
    login: ClientLogin | None = None

    def __post_init__(self) -> None:
        _require(self.connect_timeout_s > 0, "connect_timeout_s must be above 0")
        _require(self.request_timeout_s > 0, "request_timeout_s must be above 0")
        _require(
            self.first_contact_timeout_s is None or self.first_contact_timeout_s >= 0,
            "first_contact_timeout_s must not be negative",
        )
        _require(0 < self.backoff_s <= self.max_backoff_s, "backoff_s: 0 < it <= max_backoff_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """How records become batches and batches become requests.

    ``linger_s``: how long a record may wait for company. ``delivery_timeout_s``: from the moment a
    record is accepted until its delivery is given up. ``buffer_bytes`` bounds all records not yet
    acknowledged. ``max_in_flight`` is per partition: at most 5 when idempotent; None takes 5, or 1
    without idempotence, because then a retry could overtake. ``repeat_unknown`` sends batches of
    unknown outcome again even without idempotence, at the price of duplicates.
    """

    acks: Acks = Acks.ALL
    idempotent: bool | None = None
    linger_s: float = 0.0
    batch_bytes: int = MAX_BATCH_BYTES
    buffer_bytes: int = 64 * 1024 * 1024
    compression: Compression = Compression.NONE
    max_in_flight: int | None = None
    max_request_bytes: int = 4 * 1024 * 1024
    max_record_bytes: int = MAX_RECORD_BYTES
    ack_timeout_s: float = 10.0
    delivery_timeout_s: float = 120.0
    repeat_unknown: bool = False
    auto_create: bool = True
    window: int = field(init=False)
    is_idempotent: bool = field(init=False)

    def __post_init__(self) -> None:
        idempotent = self.acks is Acks.ALL if self.idempotent is None else self.idempotent
        default_window = MAX_IDEMPOTENT_IN_FLIGHT if idempotent else 1
        window = default_window if self.max_in_flight is None else self.max_in_flight
        object.__setattr__(self, "is_idempotent", idempotent)
        object.__setattr__(self, "window", window)
        _require(not idempotent or self.acks is Acks.ALL, "idempotence needs acks=ALL")
        _require(window >= 1, "max_in_flight must be at least 1")
        _require(
            not idempotent or window <= MAX_IDEMPOTENT_IN_FLIGHT,
            f"max_in_flight {window}: at most {MAX_IDEMPOTENT_IN_FLIGHT} with idempotence",
        )
        _require(self.linger_s >= 0, "linger_s must not be negative")
        _require(
            1024 <= self.batch_bytes <= MAX_BATCH_BYTES,
            f"batch_bytes {self.batch_bytes}: expected 1024..{MAX_BATCH_BYTES}",
        )
        _require(
            0 < self.max_record_bytes <= MAX_RECORD_BYTES,
            f"max_record_bytes {self.max_record_bytes}: expected 1..{MAX_RECORD_BYTES}",
        )
        _require(
            self.buffer_bytes >= self.batch_bytes,
            f"buffer_bytes {self.buffer_bytes}: below batch_bytes {self.batch_bytes}",
        )
        _require(self.delivery_timeout_s > 0, "delivery_timeout_s must be above 0")
        _require(self.ack_timeout_s > 0, "ack_timeout_s must be above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalSettings:
    """``transaction_timeout_s``: the coordinator aborts a transaction that is open for longer; 1 s
    to 15 min. ``visible_s``: how long a commit, once it is decided, waits until readers everywhere
    can see it. ``producer``: how records become batches; acks ALL and idempotence are a must."""

    transaction_timeout_s: float = 60.0
    visible_s: float = 5.0
    producer: ProducerSettings = field(default_factory=ProducerSettings)

    def __post_init__(self) -> None:
        _require(self.transaction_timeout_s >= 1, "transaction_timeout_s must be at least 1")
        _require(self.visible_s >= 0, "visible_s must not be negative")
        _require(self.producer.is_idempotent, "transactions need acks=ALL and idempotence")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """How a consumer reads ahead.

    ``max_wait_s`` is the long poll at a leader. ``prefetch_bytes`` bounds what is fetched and not
    yet handed out, over all partitions; ``partition_bytes`` one partition's share of one fetch.
    """

    max_wait_s: float = 0.5
    min_bytes: int = 1
    prefetch_bytes: int = 32 * 1024 * 1024
    partition_bytes: int = 4 * 1024 * 1024
    fetch_bytes: int = 16 * 1024 * 1024

    def __post_init__(self) -> None:
        _require(self.max_wait_s >= 0, "max_wait_s must not be negative")
        _require(self.prefetch_bytes > 0, "prefetch_bytes must be above 0")
        _require(self.partition_bytes > 0, "partition_bytes must be above 0")
        _require(self.fetch_bytes > 0, "fetch_bytes must be above 0")
