"""The topics of groups whose consumers name none: version 0 of the coordinator protocol.

Its registration has no field for topics (spec coordinator 2.2), so an operator lists them for the
group. The list is a setting of the cluster: key ``group.topics.`` and the group's name, value the
topics with commas between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from paceline.errors import InvalidGroup, InvalidTopic, PolicyViolation
from paceline.types import is_internal_topic, is_valid_topic_name
from paceline.wire.native.admin import AlterGroup, Done
from paceline_node.controller.context import Context, Outcome
from paceline_node.controller.records import Config
from paceline_node.settings.counts import LISTED_TOPICS

_PREFIX = "group.topics."
_GROUP_BYTES_MAX = 255
Lists = Mapping[str, frozenset[str]]
"""Topics by group."""


def topics_of(configs: Mapping[str, str], group: str) -> tuple[str, ...]:
    """The list of one group among the cluster's settings; empty where it has none."""
    text = configs.get(_PREFIX + group)
    return () if text is None else tuple(text.split(","))


def lists(configs: Mapping[str, str]) -> Lists:
    """Those of all groups that have one."""
    return {
        key.removeprefix(_PREFIX): frozenset(text.split(","))
        for key, text in configs.items()
        if key.startswith(_PREFIX)
    }


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
    most = context.settings.max_listed_groups
    if topics and key not in configs and len(lists(configs)) >= most:
        raise PolicyViolation(f"{most} groups have lists of topics already (groups.lists_max)")
    value = ",".join(topics) or None
    changes = configs.get(key) != value
    records = (Config("cluster", "", key, value),) if changes else ()
    return Outcome(records, lambda at: Done(at.offset, at.term))


def _check(topics: Iterable[str]) -> None:
    for count, topic in enumerate(topics, 1):
        if count > LISTED_TOPICS.bound:
            raise PolicyViolation(f"a group's list has at most {LISTED_TOPICS.bound} topics")
        if not is_valid_topic_name(topic):
            raise InvalidTopic(topic)
        if is_internal_topic(topic):
            raise PolicyViolation(f"{topic}: internal topics are not for consumers")
