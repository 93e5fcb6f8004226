"""Who asks the policy: services alone. Listeners have neither the policy, nor what asks and leaves
it to the caller to act, nor what need not ask; and they do not make by themselves what a service
gives only to those that it has asked about."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from paceline_node import http, listeners

ASKING = frozenset({"admit_producer", "authorize", "inside", "permit"})
POLICY = frozenset(
    {
        "paceline_node.services.authorization.authorizer",
        "paceline_node.services.authorization.admin_permissions",
    }
)
GIVEN = frozenset(
    {
        "OpenCursusGroup",
        "OpenDrivenGroup",
        "EventStreams",
        "OpenKafkaGroup",
        "LedSegment",
        "OpenAcls",
        "OpenGroup",
        "OpenSegment",
        "WritableTopic",
        "ReadableReplica",
        "ReadableStreams",
        "ReadableTopic",
        "RecordScan",
        "RolesOfTopic",
        "SlotsOfTopic",
        "OpenV1Group",
        "WritableStreams",
    }
)


def wrong_uses(source: str) -> list[str]:
    """What a listener must not import or call, and this module does."""
    nodes = list(ast.walk(ast.parse(source)))
    imports = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    calls = [node.func for node in nodes if isinstance(node, ast.Call)]
    methods = [each.attr for each in calls if isinstance(each, ast.Attribute)]
    names = [each.id for each in calls if isinstance(each, ast.Name)]
    return [
        *(each for each in imports if each in POLICY),
        *(each for each in methods if each in ASKING),
        *(each for each in (*methods, *names) if each in GIVEN),
    ]


def test_no_listener_asks() -> None:
    rooms = [Path(room.__path__[0]) for room in (listeners, http)]
    modules = [path for room in rooms for path in room.rglob("*.py")]
    assert len(modules) > 50
    found = {str(path): wrong_uses(path.read_text()) for path in modules}
    assert {name: uses for name, uses in found.items() if uses} == {}


@pytest.mark.parametrize(
    "source",
    [
        "from paceline_node.services.authorization.authorizer import Authorizer",
        "def f(self):\n    self._records.permit(1, 2, 3)",
        "scan = RecordScan(env, replica, 0, max_bytes=1)",
        "group = open_group.OpenGroup(1, 2, 3)",
    ],
)
def test_a_wrong_use_is_seen(source: str) -> None:
    assert wrong_uses(source)


def test_to_open_a_group_is_none() -> None:
    assert not wrong_uses("group: OpenGroup = self._groups.open(principal, operation, key)")
