"""Whether a topic takes records of the times that an archive has, and keeps them. Pure.

What was archived years ago is older than most topics keep anything: it would be written, counted as
restored, and deleted soon after. So would what goes beyond the size that a topic keeps; the sizes
of an archive's files do not tell how large that will be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from paceline.spark.archive_log import ArchiveFile
from paceline.spark.arrow import NO_TIMESTAMP
from paceline.spark.errors import OptionError
from paceline.values import dataclass
from paceline.wire.native.data import TopicInfo

RETENTION, AHEAD, POLICY = "retention.ms", "message.timestamp.after.max.ms", "cleanup.policy"
BYTES = "retention.bytes"
ANY_SIZE = {BYTES: "-1"}
"""Of a topic that is made for a restore, whatever the cluster's default is."""
DEFAULTS = {RETENTION: 7 * 86_400_000, AHEAD: 3_600_000}
"""Of a cluster that nobody has told otherwise, in ms."""
ANY_TIME = str(2**63 - 1)


@dataclass(frozen=True, slots=True)
class Times:
    """The oldest and the newest record, ms; None where no record has a time."""

    oldest: int | None
    newest: int | None


def times_of(files: Iterable[ArchiveFile], from_ms: int | None, to_ms: int | None) -> Times:
    """Of the records in files, between the bounds if there are any; not younger, nor older, than
    those really are."""
    known = [each for each in files if (each.minTs, each.maxTs) != (NO_TIMESTAMP, NO_TIMESTAMP)]
    if from_ms is not None:
        known = [each for each in known if each.maxTs >= from_ms]
    if to_ms is not None:
        known = [each for each in known if each.minTs < to_ms]
    if not known:
        return Times(None, None)
    oldest, newest = min(each.minTs for each in known), max(each.maxTs for each in known)
    return Times(
        oldest if from_ms is None else max(oldest, from_ms),
        newest if to_ms is None else min(newest, to_ms - 1),
    )


def settings_for(times: Times, now_ms: int) -> dict[str, str]:
    """Of a topic that is made for these records."""
    settings = {RETENTION: "-1", **ANY_SIZE}
    if times.newest is not None and times.newest > now_ms + DEFAULTS[AHEAD]:
        settings[AHEAD] = ANY_TIME
    return settings


def set_for(topic: TopicInfo) -> Mapping[str, str]:
    """What was set for a topic. Raises OptionError for who may not see that: nobody can tell then
    what is kept of what is written there."""
    if topic.configs is None:
        raise OptionError(f"{topic.name}: what is set for it takes describe-configs of the topic")
    return topic.configs


def refusal(topic: str, configs: Mapping[str, str], times: Times, now_ms: int) -> str:
    """Why a topic with these settings of its own would lose such records, or not take them; empty
    where it does neither."""
    retention, ahead = (int(configs.get(name, DEFAULTS[name])) for name in (RETENTION, AHEAD))
    expires = _deletes(configs) and retention >= 0
    if times.oldest is not None and expires and times.oldest < now_ms - retention:
        return _words(topic, RETENTION, retention, configs, "would soon delete the oldest", "-1")
    if times.newest is not None and times.newest > now_ms + ahead:
        return _words(topic, AHEAD, ahead, configs, "does not take the newest", ANY_TIME)
    return ""


def refusal_by_size(topic: str, configs: Mapping[str, str]) -> str:
    """Why a topic with these settings of its own may lose what is restored, whatever its time;
    empty where it keeps any size."""
    kept = int(configs.get(BYTES, "-1"))
    if kept < 0 or not _deletes(configs):
        return ""
    return (
        f"{topic} ({BYTES}={kept}) deletes the oldest records of a partition beyond that size, "
        f"restored ones too. Give it {BYTES}=-1 until what it got back is no longer needed"
    )


def _deletes(configs: Mapping[str, str]) -> bool:
    return "delete" in configs.get(POLICY, "delete")


def _words(
    topic: str, name: str, value: int, configs: Mapping[str, str], what: str, instead: str
) -> str:
    source = "" if name in configs else ", if the cluster has the usual default"
    return (
        f"{topic} ({name}={value}{source}) {what} of the archived records. Give it {name}={instead}"
        ", or restore with --new-timestamps"
    )
