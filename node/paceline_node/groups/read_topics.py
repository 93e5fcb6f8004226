"""Which topics the members of a Kafka group were assigned: commits name them, and names are given
again.

A member that read a topic, and commits what it reached after the topic was deleted and made anew,
would have the group skip records of the new one. So a generation notes the ids of what it was
assigned, and its commits count while those topics are there.
"""

from __future__ import annotations

from collections.abc import Iterable

from paceline.errors import PacelineError
from paceline.wire.consumer_protocol import assigned_topics
from paceline_node.groups.records import Group, ReadTopic
from paceline_node.groups.topic_ids import TopicIds
from paceline_node.sliced_work import Work

_NOTED_MAX = 1000
"""More would make every record of the group large."""


def reading(assignments: Iterable[bytes], topics: TopicIds) -> Work[tuple[ReadTopic, ...]]:
    """The topics that are assigned, as far as this node knows them and can read that."""
    names: set[str] = set()
    for each in dict.fromkeys(assignments):
        yield 1
        try:
            names.update(assigned_topics(each))
        except PacelineError:
            continue
    known = [(name, topics.current(name)) for name in sorted(names)[:_NOTED_MAX]]
    return tuple([ReadTopic(name, found) for name, found in known if found is not None])


def made_anew(group: Group, names: Iterable[str], topics: TopicIds) -> str | None:
    """One of ``names`` that is another topic by now than the one which the group's generation was
    assigned; None when there is none."""
    wanted = set(names)
    for each in group.read:
        if each.topic in wanted and topics.current(each.topic) not in (None, each.topic_id):
            return each.topic
    return None
