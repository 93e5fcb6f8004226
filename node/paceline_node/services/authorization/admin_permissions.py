"""What each administrative request does to what, for the policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from paceline.wire.message import Message
from paceline.wire.native import acls, admin, quotas, users
from paceline.wire.peer import control
from paceline_node.security.principals import CLUSTER, Operation, Resource, ResourceKind
from paceline_node.settings.topic_config import ACCESS_POLICY, ACCESS_READERS, ACCESS_WRITERS

ACCESS = frozenset({ACCESS_POLICY, ACCESS_READERS, ACCESS_WRITERS})
"""Settings of a topic that say who may use it."""

Permission = tuple[Operation, Resource]


Permissions = tuple[Permission, ...]

_ADMINISTER: Permission = (Operation.ADMINISTER, CLUSTER)


def permissions_for(request: Message) -> Permissions:
    """The operations and resources that a request asks for: all of them."""
    return PERMISSIONS[type(request)](request)


def _topic(operation: Operation, name: str) -> Permission:
    return operation, Resource(ResourceKind.TOPIC, name)


def _by_name(operation: Operation) -> Callable[[Any], Permissions]:
    return lambda request: (_topic(operation, request.name),)


def _by_topic(operation: Operation) -> Callable[[Any], Permissions]:
    return lambda request: (_topic(operation, request.topic),)


def _cluster(_: Any) -> Permissions:
    return (_ADMINISTER,)


def _alter_topic(request: admin.AlterTopic) -> Permissions:
    """Who may use a topic is no setting like others: to change that is to change rights."""
    permissions = _by_name(Operation.ALTER_CONFIGS)(request)
    is_of_rights = not request.configs.keys().isdisjoint(ACCESS)
    return (*permissions, _ADMINISTER) if is_of_rights else permissions


def _alter_group(request: admin.AlterGroup) -> Permissions:
    """What the group's consumers are told to read must be known to whoever tells them."""
    group = (Operation.ALTER, Resource(ResourceKind.GROUP, request.group))
    return (group, *(_topic(Operation.DESCRIBE, each) for each in request.topics))


def _elect(request: admin.ElectLeader) -> Permissions:
    """An unclean election throws away what was acknowledged."""
    if request.unclean:
        return (_ADMINISTER,)
    return (_topic(Operation.MOVE_LEADER, request.topic),)


PERMISSIONS: Mapping[type[Message], Callable[[Any], Permissions]] = {
    admin.CreateTopic: _by_name(Operation.CREATE),
    admin.DeleteTopic: _by_name(Operation.DELETE),
    admin.AlterTopic: _alter_topic,
    admin.AddPartitions: _by_name(Operation.ALTER),
    admin.AlterGroup: _alter_group,
    admin.ElectLeader: _elect,
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
    quotas.AlterQuotas: _cluster,
    users.AlterUser: _cluster,
    users.DeleteUser: _cluster,
}
"""Every request of ``wire/native/{admin,acls,quotas,users}.py`` that the controller answers, and
what the segment listener asks of it."""
