"""What somebody may do to a resource, in the words of ACLs: for protocols that tell it."""

from __future__ import annotations

from collections.abc import Mapping

from paceline.wire.native.acls import AclOperation
from paceline_node.security.principals import Operation, Principal, Resource, ResourceKind
from paceline_node.services.authorization.authorizer import Authorizer

_ASKED: Mapping[ResourceKind, Mapping[AclOperation, Operation]] = {
    ResourceKind.TOPIC: {
        AclOperation.READ: Operation.CONSUME,
        AclOperation.WRITE: Operation.PRODUCE,
        AclOperation.CREATE: Operation.CREATE,
        AclOperation.DELETE: Operation.DELETE,
        AclOperation.ALTER: Operation.ALTER,
        AclOperation.DESCRIBE: Operation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS: Operation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS: Operation.ALTER_CONFIGS,
    },
    ResourceKind.GROUP: {
        AclOperation.READ: Operation.JOIN_GROUP,
        AclOperation.DELETE: Operation.DELETE,
        AclOperation.DESCRIBE: Operation.DESCRIBE,
    },
    ResourceKind.CLUSTER: {
        AclOperation.ALTER: Operation.ADMINISTER,
        AclOperation.DESCRIBE: Operation.DESCRIBE,
        AclOperation.CLUSTER_ACTION: Operation.REPLICATE,
        AclOperation.IDEMPOTENT_WRITE: Operation.IDENTIFY_PRODUCER,
    },
}


class AuthorizedOperations:
    """Asks for each operation whether it is allowed."""

    def __init__(self, access: Authorizer) -> None:
        self._access = access

    def bits(self, principal: Principal, resource: Resource) -> int:
        """The operations that ``principal`` may do, bit by bit, each at its number."""
        return sum(
            1 << number
            for number, operation in _ASKED[resource.kind].items()
            if self._access.allows(principal, operation, resource)
        )
