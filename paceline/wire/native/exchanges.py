"""Which administrative request has which api number, and what answers it."""

from __future__ import annotations

from paceline.values import dataclass
from paceline.wire.message import Message
from paceline.wire.native import acls, admin, quotas, users
from paceline.wire.native.api import NativeApi


@dataclass(frozen=True, slots=True)
class Exchange:
    """How one kind of request travels."""

    api: int
    request: type[Message]
    response: type[Message]


ADMINISTRATION: tuple[Exchange, ...] = (
    Exchange(NativeApi.CREATE_TOPIC, admin.CreateTopic, admin.TopicCreated),
    Exchange(NativeApi.DELETE_TOPIC, admin.DeleteTopic, admin.Done),
    Exchange(NativeApi.ALTER_TOPIC, admin.AlterTopic, admin.Done),
    Exchange(NativeApi.ADD_PARTITIONS, admin.AddPartitions, admin.Done),
    Exchange(NativeApi.ALTER_GROUP, admin.AlterGroup, admin.Done),
    Exchange(NativeApi.ALTER_USER, users.AlterUser, admin.Done),
    Exchange(NativeApi.DELETE_USER, users.DeleteUser, admin.Done),
    Exchange(NativeApi.ELECT_LEADER, admin.ElectLeader, admin.RoleSet),
    Exchange(NativeApi.SET_ROLE, admin.SetRole, admin.RoleSet),
    Exchange(NativeApi.FENCE_BROKER, admin.FenceBroker, admin.Done),
    Exchange(NativeApi.REGISTER_EXTERNAL, admin.RegisterExternal, admin.Done),
    Exchange(NativeApi.RECONCILE_EXTERNAL, admin.ReconcileExternal, admin.Reconciled),
    Exchange(NativeApi.REASSIGN_PARTITION, admin.ReassignPartition, admin.Done),
    Exchange(NativeApi.ADD_VOTER, admin.AddVoter, admin.Done),
    Exchange(NativeApi.REMOVE_VOTER, admin.RemoveVoter, admin.Done),
    Exchange(NativeApi.UNREGISTER_BROKER, admin.UnregisterBroker, admin.Done),
    Exchange(NativeApi.CREATE_ACLS, acls.CreateAcls, admin.Done),
    Exchange(NativeApi.DELETE_ACLS, acls.DeleteAcls, acls.AclsDeleted),
    Exchange(NativeApi.ALTER_QUOTAS, quotas.AlterQuotas, admin.Done),
)
