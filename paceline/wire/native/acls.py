"""Access control lists: the rules of who may do what, and the requests about them.

Numbers and words are those of Kafka's ACLs, so that its tools say and see the same.
"""

from __future__ import annotations

import enum
from typing import Any

from paceline.values import dataclass
from paceline.wire.message import Message
from paceline.wire.native.asked_by import AskedBy

EVERYBODY = "*"
"""As a principal: everybody, who has shown no credentials too."""
ANY_HOST = "*"
ANY_NAME = "*"
"""As the name of a literal pattern: all resources of the type."""
MAX_NAME_BYTES = 255
MAX_PRINCIPAL_BYTES = 255
MAX_ACLS_OF_A_REQUEST = 1_000
MAX_OPEN_FILTERS = 20
"""Filters of a request that leave anything open: all ACLs are looked at for each of them."""


class AclResource(enum.IntEnum):
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class AclPattern(enum.IntEnum):
    """``LITERAL``: the resource of that name; ``PREFIXED``: all whose names begin so."""

    LITERAL = 3
    PREFIXED = 4


class AclOperation(enum.IntEnum):
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class AclEffect(enum.IntEnum):
    DENY = 2
    ALLOW = 3


OPERATIONS: dict[AclResource, tuple[AclOperation, ...]] = {
    AclResource.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResource.GROUP: (AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE),
    AclResource.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
    AclResource.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
}
"""What may be done to which resources, beside all."""


@dataclass(frozen=True, slots=True)
class Acl(Message):
    """``principal`` at ``host`` may, or may not, do ``operation`` to what ``pattern`` and ``name``
    describe. The cluster has no name."""

    principal: str
    resource: AclResource
    pattern: AclPattern
    name: str
    operation: AclOperation
    host: str = ANY_HOST
    effect: AclEffect = AclEffect.ALLOW


@dataclass(frozen=True, slots=True)
class AclFilter(Message):
    """Those ACLs that have these values; None: any. ``is_match``: those that hold for the resource
    called ``name``, whatever their patterns."""

    principal: str | None = None
    resource: AclResource | None = None
    pattern: AclPattern | None = None
    name: str | None = None
    operation: AclOperation | None = None
    host: str | None = None
    effect: AclEffect | None = None
    is_match: bool = False

    def fits(self, acl: Acl) -> bool:
        """Whether this is one of them."""
        return (
            self.principal in (None, acl.principal)
            and self.resource in (None, acl.resource)
            and self.operation in (None, acl.operation)
            and self.host in (None, acl.host)
            and self.effect in (None, acl.effect)
            and self._fits_name(acl)
        )

    @property
    def only(self) -> Acl | None:
        """The one ACL that this may describe; None for one that leaves anything open."""
        values: tuple[Any, ...] = (self.principal, self.resource, self.pattern, self.name)
        values += (self.operation, self.host, self.effect)
        return None if self.is_match or None in values else Acl(*values)

    def _fits_name(self, acl: Acl) -> bool:
        if self.is_match:
            return self.name is None or holds_for(acl, self.name)
        return self.pattern in (None, acl.pattern) and self.name in (None, acl.name)


def holds_for(acl: Acl, name: str) -> bool:
    """Whether the pattern of an ACL describes a resource of its type called ``name``."""
    if acl.pattern is AclPattern.PREFIXED:
        return name.startswith(acl.name)
    return acl.name in (name, ANY_NAME)


@dataclass(frozen=True, slots=True)
class CreateAcls(Message):
    """Add ACLs, all or none. Those that are there stay. Answered by ``Done``."""

    acls: tuple[Acl, ...]
    asked_by: AskedBy | None = None


@dataclass(frozen=True, slots=True)
class DeleteAcls(Message):
    """Remove the ACLs that any of the filters describes."""

    filters: tuple[AclFilter, ...]
    asked_by: AskedBy | None = None


@dataclass(frozen=True, slots=True)
class AclsOfFilter(Message):
    acls: tuple[Acl, ...]


@dataclass(frozen=True, slots=True)
class AclsDeleted(Message):
    """What each filter described, in their order; what several did, by the first of them."""

    deleted: tuple[AclsOfFilter, ...]
    metadata_offset: int
    term: int = 0


@dataclass(frozen=True, slots=True)
class ListAcls(Message):
    filter: AclFilter = AclFilter()


@dataclass(frozen=True, slots=True)
class AclsListed(Message):
    """In order of resource, name and principal. ``is_guarded``: what nothing allows is refused;
    else there are no rules, and everything is allowed."""

    acls: tuple[Acl, ...]
    is_guarded: bool
