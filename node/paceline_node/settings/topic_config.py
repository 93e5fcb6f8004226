"""The configuration keys of a topic: names, bounds, defaults, meaning.

A topic stores only what was set for it, as text, and always ``min.insync.replicas``.
:meth:`TopicConfig.of` gives every value in its type. Unknown keys and bad values are refused when
they are set (InvalidConfig, all of them at once), so that stored ones are valid. Names are the
field's own (Kafka's) where it has the key; defaults: storage/DESIGN 7.1.
"""

from __future__ import annotations

import difflib
import enum
import re
from collections.abc import Iterator, Mapping

from paceline.errors import InvalidConfig
from paceline.types import MAX_RECORD_BYTES
from paceline.values import dataclass
from paceline_node.settings.flush_mode import FlushMode

MIN_INSYNC_REPLICAS = "min.insync.replicas"
SEGMENT_NAME = "segment.name"
MIN_COMPACTION_LAG = "min.compaction.lag.ms"
MAX_COMPACTION_LAG = "max.compaction.lag.ms"
ACCESS_POLICY = "access.policy"
ACCESS_READERS = "access.readers"
ACCESS_WRITERS = "access.writers"
PRODUCER_NUMBERING = "producer.numbering"
PARTITIONER = "partitioner"

_DAY_MS = 24 * 60 * 60 * 1000
FOREVER = 2**63 - 1
"""A time or a size that stands for none."""
_MAX_BATCH_BYTES = MAX_RECORD_BYTES + 64 * 1024


class CleanupPolicy(enum.Enum):
    """What becomes of old records."""

    DELETE = "delete"
    COMPACT = "compact"
    COMPACT_DELETE = "compact,delete"


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key: whole numbers ``low`` to ``high``, the texts ``choices``, any text of at most
    ``text_max`` characters, or a number from 0 to 1 (``is_share``)."""

    name: str
    default: str
    doc: str
    low: int = 0
    high: int = 0
    choices: tuple[str, ...] = ()
    unit: str = ""
    text_max: int = 0
    is_share: bool = False
    boundless: str = "unlimited"
    """What -1 and :data:`FOREVER` mean, where they are taken."""

    @property
    def allowed(self) -> str:
        """Which values it takes, in words."""
        if self.choices:
            return " or ".join(self.choices)
        if self.text_max:
            return f"at most {self.text_max} characters"
        return "0 to 1" if self.is_share else f"{self.low} to {self.high}{self._of_unit()}"

    def check(self, value: str) -> str | None:
        """What is wrong with ``value``, or None."""
        if self.choices:
            if value in self.choices:
                return None
            return f"{self.name}={value}: expected one of {', '.join(self.choices)}"
        if self.text_max:
            if len(value) <= self.text_max:
                return None
            return f"{self.name}: {len(value)} characters, at most {self.text_max}"
        if self.is_share:
            if _is_share(value):
                return None
            return f"{self.name}={value}: expected a number from 0 to 1"
        if not _is_integer(value):
            return f"{self.name}={value}: expected a whole number{self._of_unit()}"
        if not self.low <= int(value) <= self.high:
            return f"{self.name}={value}: expected {self.low} to {self.high}{self._of_unit()}"
        return None

    def _of_unit(self) -> str:
        return f" ({self.unit})" if self.unit else ""


def _is_integer(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) <= 19


def _is_share(text: str) -> bool:
    return re.fullmatch(r"0|1|1\.0{1,9}|0?\.[0-9]{1,9}", text) is not None


KEYS: Mapping[str, ConfigKey] = {
    key.name: key
    for key in (
        ConfigKey(
            "segment.bytes",
            str(1024**3),
            "A segment file that reached this size is closed and a new one begun.",
            low=1024,
            high=2**31 - 1,
            unit="bytes",
        ),
        ConfigKey(
            "segment.ms",
            str(7 * _DAY_MS),
            "A segment file is closed at this age even when it is small.",
            low=1,
            high=FOREVER,
            unit="ms",
            boundless="never",
        ),
        ConfigKey(
            "retention.ms",
            str(7 * _DAY_MS),
            "Segments whose newest record is older are deleted; -1 keeps them for ever.",
            low=-1,
            high=FOREVER,
            unit="ms",
            boundless="never",
        ),
        ConfigKey(
            "retention.bytes",
            "-1",
            "The oldest segments of a partition beyond this size are deleted; -1 sets no limit.",
            low=-1,
            high=FOREVER,
            unit="bytes",
        ),
        ConfigKey(
            MIN_INSYNC_REPLICAS,
            "2",
            "Replicas that must be in sync for a write with acks=all.",
            low=1,
            high=32767,
        ),
        ConfigKey(
            "flush.mode",
            FlushMode.GROUP.value,
            "When a replica counts for acknowledgement: after a shared sync (group), after a sync "
            "of its own (batch), or before any sync, with one each interval or left to the "
            "operating system (interval, none: may lose acknowledged records on power loss).",
            choices=tuple(mode.value for mode in FlushMode),
        ),
        ConfigKey(
            "flush.interval.ms",
            "1000",
            "Time between syncs in flush.mode=interval.",
            low=1,
            high=3_600_000,
            unit="ms",
        ),
        ConfigKey(
            "cleanup.policy",
            CleanupPolicy.DELETE.value,
            "Old records are deleted by age and size (delete), or all but the last record of "
            "each key are removed (compact), or both.",
            choices=tuple(policy.value for policy in CleanupPolicy),
        ),
        ConfigKey(
            "min.cleanable.dirty.ratio",
            "0.5",
            "A log is compacted when this share of it was written since the last compaction.",
            is_share=True,
        ),
        ConfigKey(
            MIN_COMPACTION_LAG,
            "0",
            "Records younger than this are not compacted.",
            high=FOREVER,
            unit="ms",
            boundless="never",
        ),
        ConfigKey(
            MAX_COMPACTION_LAG,
            str(FOREVER),
            "A log with records older than this that no compaction has seen is compacted whatever "
            "their share; segment files are closed at this age.",
            low=1,
            high=FOREVER,
            unit="ms",
            boundless="never",
        ),
        ConfigKey(
            "delete.retention.ms",
            str(_DAY_MS),
            "How long a tombstone stays after the first compaction that kept it, so that whoever "
            "has read an older value reads the tombstone too.",
            high=FOREVER,
            unit="ms",
            boundless="never",
        ),
        ConfigKey(
            "message.timestamp.after.max.ms",
            str(60 * 60 * 1000),
            "How far in the future a producer's timestamps may be, by the leader's clock.",
            low=0,
            high=FOREVER,
            unit="ms",
        ),
        ConfigKey(
            "max.message.bytes",
            str(_MAX_BATCH_BYTES),
            "The largest record batch a producer may send, as compressed.",
            low=1024,
            high=_MAX_BATCH_BYTES,
            unit="bytes",
        ),
        ConfigKey(
            SEGMENT_NAME,
            "",
            "What clients of the segment protocol call a segment whose name is not of the form "
            "scope/stream/N; written when it is created.",
            text_max=512,
        ),
        ConfigKey(
            ACCESS_POLICY,
            "open",
            "Who may use the topic beyond what the cluster's policy allows: everybody, nobody to "
            "write, nobody to read, or those that access.readers and access.writers name.",
            choices=("open", "deny_write", "deny_read", "acl"),
        ),
        ConfigKey(
            ACCESS_READERS,
            "",
            "Principals that may read under access.policy=acl, with commas between them; * is "
            "whoever is not anonymous.",
            text_max=4096,
        ),
        ConfigKey(
            ACCESS_WRITERS,
            "",
            "Principals that may write under access.policy=acl, as access.readers.",
            text_max=4096,
        ),
        ConfigKey(
            PRODUCER_NUMBERING,
            "window",
            "For producers that number each record (Cursus): whether a gap is an error (strict) or "
            "only a number seen before is left out, when they ask for it (window).",
            choices=("window", "strict"),
        ),
        ConfigKey(
            PARTITIONER,
            "hash_key",
            "How the broker chooses a partition where the protocol leaves it to the broker.",
            choices=("hash_key", "round_robin"),
        ),
        ConfigKey(
            "compression.type",
            "producer",
            "Batches are stored as their producers compressed them.",
            choices=("producer",),
        ),
    )
}


_MEANT_MAX = 2 * max(map(len, KEYS))
"""Longer names are meant for no key, and comparing them takes time."""


def problems(configs: Mapping[str, str]) -> list[str]:
    """One sentence for each unknown key and bad value, sorted by key; one for all where there are
    more than keys."""
    if len(configs) > len(KEYS):
        return [f"{len(configs)} settings, of which a topic has {len(KEYS)}"]
    found = []
    for name, value in sorted(configs.items()):
        key = KEYS.get(name)
        problem = unknown(name) if key is None else key.check(value)
        if problem is not None:
            found.append(problem)
    return found


def unknown(name: str) -> str:
    """One sentence about a key that there is not, with the one that may be meant."""
    close = difflib.get_close_matches(name, KEYS, n=1) if len(name) <= _MEANT_MAX else []
    suggestion = f", did you mean {close[0]}?" if close else ""
    return f"{name}: unknown topic configuration{suggestion}"


def validate(configs: Mapping[str, str], *, replication_factor: int) -> None:
    """Raise InvalidConfig naming everything that is wrong with ``configs`` for a topic of that
    replication factor."""
    found = problems(configs)
    if not found and min_insync_replicas(configs) > replication_factor:
        found.append(
            f"{MIN_INSYNC_REPLICAS}={configs[MIN_INSYNC_REPLICAS]}: "
            f"the replication factor is {replication_factor}"
        )
    if not found and _lag(configs, MIN_COMPACTION_LAG) > _lag(configs, MAX_COMPACTION_LAG):
        found.append(
            f"{MIN_COMPACTION_LAG}={_lag(configs, MIN_COMPACTION_LAG)}: "
            f"above {MAX_COMPACTION_LAG}={_lag(configs, MAX_COMPACTION_LAG)}"
        )
    if found:
        raise InvalidConfig("; ".join(found))


def _lag(configs: Mapping[str, str], name: str) -> int:
    return int(configs.get(name, KEYS[name].default))


def min_insync_replicas(configs: Mapping[str, str]) -> int:
    """The configured min.insync.replicas of a topic; 1 where a topic has none."""
    return int(configs.get(MIN_INSYNC_REPLICAS, "1"))


class Source(enum.StrEnum):
    """Where what holds for a topic is from: set for it, a node's settings, or nobody's choice."""

    TOPIC = "topic"
    NODE = "node"
    DEFAULT = "default"


def effective(
    configs: Mapping[str, str], defaults: Mapping[str, str], *, replication_factor: int
) -> Iterator[tuple[ConfigKey, str, Source]]:
    """What holds for a topic with ``configs`` on a node with ``defaults``, sorted by key.

    Of min.insync.replicas, which is written down when a topic is made, the source is what gives the
    same value to a topic of that ``replication_factor`` now, if something does.
    """
    for name, key in sorted(KEYS.items()):
        default = defaults.get(name, key.default)
        source = Source.DEFAULT if default == key.default else Source.NODE
        value = configs.get(name, default)
        if name in configs:
            is_given = name == MIN_INSYNC_REPLICAS and int(value) == min(
                int(default), replication_factor
            )
            source = source if is_given else Source.TOPIC
        yield key, value, source


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """Every value of a topic's configuration, typed; -1 means no limit."""

    segment_bytes: int
    segment_ms: int
    retention_ms: int
    retention_bytes: int
    min_insync_replicas: int
    flush_mode: FlushMode
    flush_interval_ms: int
    cleanup_policy: CleanupPolicy
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    delete_retention_ms: int
    max_message_bytes: int
    timestamp_after_max_ms: int

    @property
    def is_compacted(self) -> bool:
        return self.cleanup_policy is not CleanupPolicy.DELETE

    @property
    def expires(self) -> bool:
        """Whether age and size delete records."""
        return self.cleanup_policy is not CleanupPolicy.COMPACT

    @classmethod
    def of(
        cls, configs: Mapping[str, str], defaults: Mapping[str, str] | None = None
    ) -> TopicConfig:
        """``configs`` over ``defaults`` (a node's settings) over the built-in defaults. Raises
        InvalidConfig."""
        merged = {**(defaults or {}), **configs}
        found = problems(merged)
        if found:
            raise InvalidConfig("; ".join(found))

        def text(name: str) -> str:
            return merged.get(name, KEYS[name].default)

        return cls(
            segment_bytes=int(text("segment.bytes")),
            segment_ms=int(text("segment.ms")),
            retention_ms=int(text("retention.ms")),
            retention_bytes=int(text("retention.bytes")),
            min_insync_replicas=int(text(MIN_INSYNC_REPLICAS)),
            flush_mode=FlushMode(text("flush.mode")),
            flush_interval_ms=int(text("flush.interval.ms")),
            cleanup_policy=CleanupPolicy(text("cleanup.policy")),
            min_cleanable_dirty_ratio=float(text("min.cleanable.dirty.ratio")),
            min_compaction_lag_ms=int(text(MIN_COMPACTION_LAG)),
            max_compaction_lag_ms=int(text(MAX_COMPACTION_LAG)),
            delete_retention_ms=int(text("delete.retention.ms")),
            max_message_bytes=int(text("max.message.bytes")),
            timestamp_after_max_ms=int(text("message.timestamp.after.max.ms")),
        )
