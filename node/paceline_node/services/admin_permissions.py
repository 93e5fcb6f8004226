"""What each administrative request does to what, for the policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from paceline.wire.message import Message
from paceline.wire.native import acls, admin, users
from paceline.wire.peer import control
from paceline_node.security.principals import CLUSTER, Operation, Resource, ResourceKind

Permission = tuple[Operation, Resource]


def permission_for(request: Message) -> Permission:
    """The operation and the resource that a request asks for."""
    return PERMISSIONS[type(request)](request)


def _by_name(operation: Operation) -> Callable[[Any], Permission]:
    return lambda request: (operation, Resource(ResourceKind.TOPIC, request.name))


def _by_topic(operation: Operation) -> Callable[[Any], Permission]:
    return lambda request: (operation, Resource(ResourceKind.TOPIC, request.topic))


def _by_group(operation: Operation) -> Callable[[Any], Permission]:
    return lambda request: (operation, Resource(ResourceKind.GROUP, request.group))


def _cluster(_: Any) -> Permission:
    return Operation.ADMINISTER, CLUSTER


PERMISSIONS: Mapping[type[Message], Callable[[Any], Permission]] = {
    admin.CreateTopic: _by_name(Operation.CREATE),
    admin.DeleteTopic: _by_name(Operation.DELETE),
    admin.AlterTopic: _by_name(Operation.ALTER_CONFIGS),
    admin.AddPartitions: _by_name(Operation.ALTER),
    admin.AlterGroup: _by_group(Operation.ALTER),
    admin.ElectLeader: _by_topic(Operation.MOVE_LEADER),
    admin.SetRole: _by_topic(Operation.MOVE_LEADER),
    control.CreateSegmentRequest: _by_topic(Operation.CREATE),
    control.DeleteSegmentRequest: _by_topic(Operation.DELETE),
    admin.ReassignPartition: _cluster,
    admin.FenceBroker: _cluster,
    admin.RegisterExternal: _cluster,
    admin.ReconcileExternal: _cluster,
    admin.AddVoter: _cluster,
    admin.RemoveVoter: _cluster,
    admin.UnregisterBroker: _cluster,
    acls.CreateAcls: _cluster,
    acls.DeleteAcls: _cluster,
    users.AlterUser: _cluster,
    users.DeleteUser: _cluster,
}
"""Every request of ``wire/native/{admin,acls,users}.py`` that the controller answers, and what
the segment listener asks of it."""
