"""Who lacks one of several rights that a command takes is told all: else he meets one by one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from paceline.errors import AuthorizationFailed

EACH_TOPIC = "TOPIC"
"""Where it is not known yet which topics a group reads."""


@contextlib.contextmanager
def telling_all_rights(group: str, topics: Sequence[str] = ()) -> Iterator[None]:
    """A refusal within tells the command that allows to read the group and these topics."""
    try:
        yield
    except AuthorizationFailed as error:
        from paceline_node.security import refusals  # imported where something is refused

        resources = [("group", group), *(("topic", each) for each in topics or (EACH_TOPIC,))]
        if told := refusals.what_all_takes(str(error), resources):
            error.add_note(told)
        raise
