"""The topics of groups whose consumers name none: version 0 of the coordinator protocol.

Its registration has no field for topics, so an operator lists them for the
group. The list is a setting of the cluster: key ``group.topics.`` and the group's name, value the
topics with commas between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from paceline.errors import InvalidGroup, InvalidTopic, PolicyViolation
from paceline.types import is_internal_topic, is_valid_topic_name
from paceline.wire.native.admin import AlterGroup, Done
from paceline_node.controller.context import Context, ControllerSettings, Outcome
from paceline_node.controller.metadata_records import Config
from paceline_node.settings.counts import LISTED_TOPICS

_PREFIX = "group.topics."
_GROUP_BYTES_MAX = 255


class Lists(Mapping[str, frozenset[str]]):
    """Topics by group, read from the setting only when a group's are asked for: all lists together
    are megabytes, and every change of any topic looks for changes here."""

    def __init__(self, configs: Mapping[str, str]) -> None:
        self.texts = {
            key.removeprefix(_PREFIX): text
            for key, text in configs.items()
            if key.startswith(_PREFIX)
        }
        """As they are stored; equal where the lists are."""

    @property
    def bytes(self) -> int:
        """What the lists take in the metadata."""
        return sum(len(group) + len(text) for group, text in self.texts.items())

    def __getitem__(self, group: str) -> frozenset[str]:
        return frozenset(self.texts[group].split(","))

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)

    def __len__(self) -> int:
        return len(self.texts)


def topics_of(configs: Mapping[str, str], group: str) -> tuple[str, ...]:
    """The list of one group among the cluster's settings; empty where it has none."""
    text = configs.get(_PREFIX + group)
    return () if text is None else tuple(text.split(","))


def alter_group(request: AlterGroup, context: Context) -> Outcome:
    """Set a group's list, or with no topics remove it. Topics need not exist yet.

    Raises InvalidGroup, InvalidTopic, PolicyViolation.
    """
    if not 1 <= len(request.group.encode()) <= _GROUP_BYTES_MAX:
        raise InvalidGroup(f"group name: expected 1 to {_GROUP_BYTES_MAX} bytes of UTF-8")
    topics = sorted(set(request.topics))
    _check(topics)
    key = _PREFIX + request.group
    configs = context.image.configs
    value = ",".join(topics) or None
    if value is not None:
        _check_room(Lists(configs), request.group, value, context.settings)
    changes = configs.get(key) != value
    records = (Config("cluster", "", key, value),) if changes else ()
    return Outcome(records, lambda at: Done(at.offset, at.term))


def _check_room(lists: Lists, group: str, value: str, settings: ControllerSettings) -> None:
    before = lists.texts.get(group)
    most = settings.max_listed_groups
    if before is None and len(lists) >= most:
        raise PolicyViolation(f"{most} groups have lists of topics already (groups.lists_max)")
    size = lists.bytes + len(value) - (-len(group) if before is None else len(before))
    if size > settings.max_listed_bytes and (before is None or len(value) > len(before)):
        raise PolicyViolation(
            f"group {group}: all lists of topics together would take {size} bytes, at most "
            f"{settings.max_listed_bytes} (groups.lists_bytes); remove lists, or make them shorter"
        )


def _check(topics: Iterable[str]) -> None:
    for count, topic in enumerate(topics, 1):
        if count > LISTED_TOPICS.bound:
            raise PolicyViolation(f"a group's list has at most {LISTED_TOPICS.bound} topics")
        if not is_valid_topic_name(topic):
            raise InvalidTopic(topic)
        if is_internal_topic(topic):
            raise PolicyViolation(f"{topic}: internal topics are not for consumers")
