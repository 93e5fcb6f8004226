"""Who asks, what for, and whether they may (SETTLED P11).

Every request on the service surface passes :func:`authorize`. Until credentials exist it allows
everything that makes sense; what does not (producing to a group) is a bug of ours, not a refusal.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from paceline.types import NodeId


class Proof(enum.Enum):
    """How a principal was established."""

    NONE = "none"
    CLUSTER_SECRET = "cluster-secret"  # noqa: S105  the kind of proof, not a password


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks. Protocols without credentials act as :data:`ANONYMOUS`."""

    name: str
    proof: Proof

    def __str__(self) -> str:
        return self.name


ANONYMOUS = Principal("anonymous", Proof.NONE)


def node_principal(node: NodeId) -> Principal:
    """Another node of the cluster, as authenticated by the peer handshake."""
    return Principal(f"node:{node}", Proof.CLUSTER_SECRET)


class ResourceKind(enum.Enum):
    TOPIC = "topic"
    GROUP = "group"
    TRANSACTION = "transaction"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class Resource:
    """What is asked for; the cluster has no name."""

    kind: ResourceKind
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind.value} {self.name}".rstrip()


CLUSTER = Resource(ResourceKind.CLUSTER)


class Operation(enum.Enum):
    """What is done to a resource."""

    PRODUCE = "produce"
    CONSUME = "consume"
    DESCRIBE = "describe"
    CREATE = "create"
    DELETE = "delete"
    ALTER = "alter"
    MOVE_LEADER = "move-leader"
    JOIN_GROUP = "join-group"
    COMMIT_OFFSETS = "commit-offsets"
    TRANSACT = "transact"
    ADMINISTER = "administer"
    REPLICATE = "replicate"


_TOPIC, _GROUP = ResourceKind.TOPIC, ResourceKind.GROUP
_TRANSACTION, _CLUSTER = ResourceKind.TRANSACTION, ResourceKind.CLUSTER

APPLIES_TO: dict[Operation, frozenset[ResourceKind]] = {
    Operation.PRODUCE: frozenset({_TOPIC}),
    Operation.CONSUME: frozenset({_TOPIC}),
    Operation.DESCRIBE: frozenset({_TOPIC, _GROUP, _TRANSACTION, _CLUSTER}),
    Operation.CREATE: frozenset({_TOPIC}),
    Operation.DELETE: frozenset({_TOPIC, _GROUP}),
    Operation.ALTER: frozenset({_TOPIC, _GROUP}),
    Operation.MOVE_LEADER: frozenset({_TOPIC}),
    Operation.JOIN_GROUP: frozenset({_GROUP}),
    Operation.COMMIT_OFFSETS: frozenset({_GROUP}),
    Operation.TRANSACT: frozenset({_TRANSACTION}),
    Operation.ADMINISTER: frozenset({_CLUSTER}),
    Operation.REPLICATE: frozenset({_CLUSTER}),
}
"""Which operations make sense on which kinds of resource."""


def authorize(principal: Principal, operation: Operation, resource: Resource) -> None:
    """Return when ``principal`` may do ``operation`` to ``resource``; otherwise raise
    AuthorizationFailed, naming all three. At present nothing is refused."""
    assert resource.kind in APPLIES_TO[operation], f"{principal}: {operation} on {resource}"
