"""Who asks, what for, and who says whether they may (paceline_node/DESIGN 5).

Every request to the services is put to the node's :class:`Policy`. Until credentials exist
that is :class:`AllowAll`, which allows everything that makes sense; what does not (producing to a
group) is a bug of ours, not a refusal.
"""

from __future__ import annotations

import enum
from dataclasses import field
from typing import NamedTuple, NoReturn, Protocol

from paceline.errors import AuthorizationFailed
from paceline.types import NodeId
from paceline.values import dataclass


class Proof(enum.Enum):
    """How a principal was established."""

    NONE = "none"
    ADDRESS = "address"
    CERTIFICATE = "certificate"
    PASSWORD = "password"  # noqa: S105  the kind of proof, not a password
    TOKEN = "token"  # noqa: S105  likewise
    JWT = "jwt"
    CLUSTER_SECRET = "cluster-secret"  # noqa: S105  the kind of proof, not a password


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks. Protocols without credentials act as :data:`ANONYMOUS`. ``source``: whom what it
    makes the node keep counts for, where that is not its name. ``host``: the address that it asks
    from, as ACLs name it. ``reached_from``: that address as its socket tells it; empty for
    streams in memory."""

    name: str
    proof: Proof
    source: str = field(default="", compare=False)
    host: str = field(default="", compare=False)
    reached_from: str = field(default="", compare=False)

    @property
    def account(self) -> str:
        """Whom shares count it for."""
        return self.source or self.name

    def __str__(self) -> str:
        return self.name


ANONYMOUS = Principal("anonymous", Proof.NONE)
NODE_PREFIX = "node:"
_NAME_CHARACTERS = 255


def is_client_name(name: str) -> bool:
    """Whether a client can be called so: it is printable, and means nobody of ours."""
    folded = name.casefold()
    is_ours = folded == ANONYMOUS.name or folded.startswith(NODE_PREFIX)
    return name.isprintable() and 0 < len(name) <= _NAME_CHARACTERS and not is_ours


def proved_name(principal: Principal) -> str:
    """Under which name policies know somebody: who has proved nothing may call himself what he
    likes."""
    return ANONYMOUS.name if principal.proof is Proof.NONE else principal.name


def node_principal(node: NodeId) -> Principal:
    """Another node of the cluster, as authenticated by the peer handshake."""
    return Principal(f"{NODE_PREFIX}{node}", Proof.CLUSTER_SECRET)


class ResourceKind(enum.Enum):
    TOPIC = "topic"
    GROUP = "group"
    TRANSACTION = "transaction"
    CLUSTER = "cluster"


class Resource(NamedTuple):
    """What is asked for; the cluster has no name."""

    kind: ResourceKind
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind.value} {self.name}".rstrip()


CLUSTER = Resource(ResourceKind.CLUSTER)

_TOPIC, _GROUP = ResourceKind.TOPIC, ResourceKind.GROUP
_TRANSACTION, _CLUSTER = ResourceKind.TRANSACTION, ResourceKind.CLUSTER


class Operation(enum.Enum):
    """What is done to a resource; ``kinds`` are those that it makes sense for."""

    PRODUCE = ("produce", _TOPIC)
    IDENTIFY_PRODUCER = ("identify-producer", _CLUSTER)
    CONSUME = ("consume", _TOPIC)
    DESCRIBE = ("describe", _TOPIC, _GROUP, _TRANSACTION, _CLUSTER)
    CREATE = ("create", _TOPIC)
    DELETE = ("delete", _TOPIC, _GROUP)
    ALTER = ("alter", _TOPIC, _GROUP)
    ALTER_CONFIGS = ("alter-configs", _TOPIC)
    DESCRIBE_CONFIGS = ("describe-configs", _TOPIC)
    MOVE_LEADER = ("move-leader", _TOPIC)
    JOIN_GROUP = ("join-group", _GROUP)
    COMMIT_OFFSETS = ("commit-offsets", _GROUP)
    TRANSACT = ("transact", _TRANSACTION)
    ADMINISTER = ("administer", _CLUSTER)
    REPLICATE = ("replicate", _CLUSTER)

    def __init__(self, label: str, *kinds: ResourceKind) -> None:
        self.label = label
        self.kinds = kinds


class Policy(Protocol):
    """Decides who may do what. Asked for every request, so it must be quick, and never waits."""

    def authorize(self, principal: Principal, operation: Operation, resource: Resource) -> None:
        """Return when ``principal`` may do ``operation`` to ``resource``; otherwise raise
        AuthorizationFailed, as :func:`refuse` does."""


class AllowAll:
    """The policy of a cluster without credentials."""

    def authorize(self, principal: Principal, operation: Operation, resource: Resource) -> None:
        """Allow it."""
        assert resource.kind in operation.kinds, f"{principal}: {operation} on {resource}"


class Forbidden(AuthorizationFailed):
    """``principal`` may not do ``operation`` to ``resource``."""

    def __init__(self, principal: Principal, operation: Operation, resource: Resource) -> None:
        asked = f"{operation.label} {resource}"
        if operation is Operation.IDENTIFY_PRODUCER:  # nobody knows that he asks the cluster for it
            asked = "get a producer id: it takes the right to write a topic"
        super().__init__(f"{principal} may not {asked}")
        self.resource = resource


def refuse(principal: Principal, operation: Operation, resource: Resource) -> NoReturn:
    """Raise AuthorizationFailed, naming all three."""
    raise Forbidden(principal, operation, resource)
