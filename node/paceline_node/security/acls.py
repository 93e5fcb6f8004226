"""What ACLs mean: who may do what to which resource (DESIGN 4). Data in, decision out.

:class:`AclRules` is made once for a set of ACLs and indexed by resource: a check looks at the
literal pattern of the name, at the wildcard and at each length that a prefix has. What it found is
kept for the next request that asks the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from typing import NamedTuple

from paceline.errors import InvalidRequest
from paceline.types import TOPIC_NAMES, is_valid_topic_name
from paceline.wire.native.acls import (
    ANY_HOST,
    ANY_NAME,
    EVERYBODY,
    MAX_ACLS_OF_A_REQUEST,
    MAX_NAME_BYTES,
    MAX_OPEN_FILTERS,
    MAX_PRINCIPAL_BYTES,
    OPERATIONS,
    Acl,
    AclEffect,
    AclFilter,
    AclOperation,
    AclPattern,
    AclResource,
)
from paceline_node.client_addresses import host_of
from paceline_node.security.principals import Operation, ResourceKind

_KEPT = 10_000
"""Answers that are kept; then they are looked for anew."""


def check(acl: Acl) -> None:
    """Raises InvalidRequest for an ACL that makes no sense."""
    problem = (
        _of_operation(acl) or _of_principal(acl.principal) or _of_name(acl) or _of_host(acl.host)
    )
    if problem:
        raise InvalidRequest(f"ACL: {problem}")


def _of_operation(acl: Acl) -> str:
    known = OPERATIONS[acl.resource]
    if acl.operation is AclOperation.ALL or acl.operation in known:
        return ""
    words = ", ".join(each.name.lower() for each in known)
    return f"{acl.operation.name.lower()} of a {acl.resource.name.lower()}: expected {words}, all"


def _of_principal(name: str) -> str:
    if 0 < len(name.encode()) <= MAX_PRINCIPAL_BYTES and name.isprintable():
        return ""
    return f"principal {name[:80]!r}: expected 1 to {MAX_PRINCIPAL_BYTES} bytes that can be printed"


def _of_name(acl: Acl) -> str:
    name = acl.name
    if acl.resource is AclResource.CLUSTER:
        return "" if not name and acl.pattern is AclPattern.LITERAL else "the cluster has no name"
    if acl.pattern is AclPattern.PREFIXED and name == ANY_NAME:
        return "a prefix is a beginning of names; all of them is the literal *"
    if not 0 < len(name.encode()) <= MAX_NAME_BYTES:
        return f"name {name[:80]!r}: expected 1 to {MAX_NAME_BYTES} bytes"
    if acl.resource is AclResource.TOPIC and name != ANY_NAME:
        is_dots = acl.pattern is AclPattern.PREFIXED and name in (".", "..")
        if not is_dots and not is_valid_topic_name(name):
            return f"topic {name[:80]!r}: expected {TOPIC_NAMES}"
    return ""


def _of_host(host: str) -> str:
    if host == ANY_HOST:
        return ""
    try:
        address = ip_address(host)
    except ValueError:
        return f"host {host[:80]!r}: expected an IP address, or *"
    expected = host_of(str(address))
    return "" if expected == host else f"host {host}: expected {expected}, as clients are known"


def described(acls: Iterable[Acl], filters: Iterable[AclFilter]) -> list[tuple[Acl, ...]]:
    """Which of the ACLs each filter describes, none of them twice. Raises InvalidRequest for more
    filters than may be asked at once."""
    left = set(acls)
    found: list[tuple[Acl, ...]] = []
    open_count = 0
    for each in filters:
        only = each.only
        if only is None:
            open_count += 1
            its = {acl for acl in left if each.fits(acl)}
        else:
            its = {only} & left
        if len(found) >= MAX_ACLS_OF_A_REQUEST or open_count > MAX_OPEN_FILTERS:
            raise InvalidRequest(
                f"at most {MAX_ACLS_OF_A_REQUEST} filters in a request, {MAX_OPEN_FILTERS} of them "
                "for more than one ACL"
            )
        left -= its
        found.append(tuple(sorted(its, key=Acl.pack)))
    return found


# --- from what services ask to what ACLs allow ----------------------------------------------------


class Needed(NamedTuple):
    """The operation that an ACL must allow."""

    resource: AclResource
    operation: AclOperation


_TYPES = {
    ResourceKind.TOPIC: AclResource.TOPIC,
    ResourceKind.GROUP: AclResource.GROUP,
    ResourceKind.CLUSTER: AclResource.CLUSTER,
    ResourceKind.TRANSACTION: AclResource.TRANSACTIONAL_ID,
}
_OPERATIONS = {
    (Operation.PRODUCE, ResourceKind.TOPIC): AclOperation.WRITE,
    (Operation.CONSUME, ResourceKind.TOPIC): AclOperation.READ,
    (Operation.CREATE, ResourceKind.TOPIC): AclOperation.CREATE,
    (Operation.DELETE, ResourceKind.TOPIC): AclOperation.DELETE,
    (Operation.ALTER, ResourceKind.TOPIC): AclOperation.ALTER,
    (Operation.ALTER_CONFIGS, ResourceKind.TOPIC): AclOperation.ALTER_CONFIGS,
    (Operation.DESCRIBE_CONFIGS, ResourceKind.TOPIC): AclOperation.DESCRIBE_CONFIGS,
    (Operation.MOVE_LEADER, ResourceKind.TOPIC): AclOperation.ALTER,
    (Operation.JOIN_GROUP, ResourceKind.GROUP): AclOperation.READ,
    (Operation.COMMIT_OFFSETS, ResourceKind.GROUP): AclOperation.READ,
    (Operation.DELETE, ResourceKind.GROUP): AclOperation.DELETE,
    # Who may throw a group's progress away may set it.
    (Operation.ALTER, ResourceKind.GROUP): AclOperation.DELETE,
    (Operation.TRANSACT, ResourceKind.TRANSACTION): AclOperation.WRITE,
    (Operation.IDENTIFY_PRODUCER, ResourceKind.CLUSTER): AclOperation.IDEMPOTENT_WRITE,
    (Operation.ADMINISTER, ResourceKind.CLUSTER): AclOperation.ALTER,
    (Operation.REPLICATE, ResourceKind.CLUSTER): AclOperation.CLUSTER_ACTION,
    **{(Operation.DESCRIBE, kind): AclOperation.DESCRIBE for kind in Operation.DESCRIBE.kinds},
}


def needed(operation: Operation, kind: ResourceKind) -> Needed:
    """What ``operation`` of a resource of that kind takes."""
    return Needed(_TYPES[kind], _OPERATIONS[operation, kind])


def _bit(operation: AclOperation) -> int:
    return 1 << operation


_ALL = sum(map(_bit, AclOperation))
_DENYING = {each: _bit(each) for each in AclOperation} | {AclOperation.ALL: _ALL}
_SEEING = AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER
_ALLOWING = dict(_DENYING)
"""Whoever may do something to a resource may know of it. Who may not know of it may still do it, if
he is allowed to: only what is denied by name is."""
for _each in _SEEING:
    _ALLOWING[_each] |= _bit(AclOperation.DESCRIBE)
_ALLOWING[AclOperation.ALTER_CONFIGS] |= _bit(AclOperation.DESCRIBE_CONFIGS)


# --- rules ----------------------------------------------------------------------------------------


class Asker(NamedTuple):
    """Whose name was proved, and where he is."""

    name: str
    host: str


class _Masks:
    """Operations, as bits, that an asker is allowed and denied."""

    __slots__ = ("allowed", "denied")

    def __init__(self) -> None:
        self.allowed = 0
        self.denied = 0

    def add(self, acl: Acl) -> None:
        if acl.effect is AclEffect.DENY:
            self.denied |= _DENYING[acl.operation]
        else:
            self.allowed |= _ALLOWING[acl.operation]


class _Entry:
    """All that is said of the resources of one pattern, by principal and host."""

    __slots__ = ("_by_asker",)

    def __init__(self) -> None:
        self._by_asker: defaultdict[tuple[str, str], _Masks] = defaultdict(_Masks)

    def add(self, acl: Acl) -> None:
        # What was made before such hosts were refused fits, too: above all what it denies.
        host = host_of(acl.host) if ":" in acl.host else acl.host
        self._by_asker[acl.principal, host].add(acl)

    def of(self, asker: Asker) -> tuple[int, int]:
        """What is allowed, and what is denied."""
        allowed = denied = 0
        for name in (asker.name, EVERYBODY):
            for host in (asker.host, ANY_HOST):
                found = self._by_asker.get((name, host))
                if found is not None:
                    allowed |= found.allowed
                    denied |= found.denied
        return allowed, denied


class AclRules:
    """The decisions that follow from a set of ACLs."""

    def __init__(self, acls: Iterable[Acl]) -> None:
        self._literal: dict[tuple[AclResource, str], _Entry] = {}
        self._prefixed: dict[tuple[AclResource, str], _Entry] = {}
        lengths: dict[AclResource, set[int]] = {each: set() for each in AclResource}
        for acl in acls:
            is_literal = acl.pattern is AclPattern.LITERAL
            entries = self._literal if is_literal else self._prefixed
            key = acl.resource, acl.name
            entry = entries.get(key)
            if entry is None:
                entry = entries[key] = _Entry()
            entry.add(acl)
            if not is_literal:
                lengths[acl.resource].add(len(acl.name))
        self._lengths = {each: sorted(found) for each, found in lengths.items()}
        self._known: dict[tuple[AclResource, str, Asker], tuple[int, int]] = {}
        self._writers: dict[Asker, bool] = {}

    def allows(self, asker: Asker, needed: Needed, name: str) -> bool:
        """Whether ``asker`` may: something allows it, and nothing denies it."""
        resource, operation = needed
        allowed, denied = self._masks(resource, name, asker)
        bit = _bit(operation)
        if denied & bit:
            return False
        if allowed & bit:
            return True
        if needed == _IDEMPOTENCE:
            return self._writes_anywhere(asker)
        # As in Kafka: who may make topics of any name in this cluster may make this one.
        return needed == _CREATION and self.allows(asker, _CLUSTER_CREATION, "")

    def _masks(self, resource: AclResource, name: str, asker: Asker) -> tuple[int, int]:
        key = (resource, name, asker)
        found = self._known.get(key)
        if found is None:
            entries = [self._literal.get((resource, name)), *self._wider(resource, name)]
            found = _together(entries, asker)
            if len(name) <= MAX_NAME_BYTES:  # else no resource of this cluster
                if len(self._known) >= _KEPT:
                    self._known.clear()
                self._known[key] = found
        return found

    def _wider(self, resource: AclResource, name: str) -> Iterator[_Entry | None]:
        """The patterns that describe ``name`` and all that begins with it."""
        yield self._literal.get((resource, ANY_NAME))
        for length in self._lengths[resource]:
            if length > len(name):
                break
            yield self._prefixed.get((resource, name[:length]))

    def _writes_anywhere(self, asker: Asker) -> bool:
        """Whether there may be a topic that ``asker`` may write to: who may write needs a number
        for it, and every Kafka client of today asks for one (KIP-679)."""
        found = self._writers.get(asker)
        if found is None:
            if len(self._writers) >= _KEPT:
                self._writers.clear()
            found = self._writers[asker] = self._find_written(asker)
        return found

    def _find_written(self, asker: Asker) -> bool:
        topic, write = AclResource.TOPIC, _bit(AclOperation.WRITE)
        for entries in (self._literal, self._prefixed):
            for (resource, name), entry in entries.items():
                if resource is topic and entry.of(asker)[0] & write:
                    above = [entry, *self._wider(topic, name)]
                    if not _together(above, asker)[1] & write:
                        return True
        return False


def _together(entries: Iterable[_Entry | None], asker: Asker) -> tuple[int, int]:
    allowed = denied = 0
    for entry in entries:
        if entry is not None:
            more_allowed, more_denied = entry.of(asker)
            allowed |= more_allowed
            denied |= more_denied
    return allowed, denied


_IDEMPOTENCE = Needed(AclResource.CLUSTER, AclOperation.IDEMPOTENT_WRITE)
_CREATION = Needed(AclResource.TOPIC, AclOperation.CREATE)
_CLUSTER_CREATION = Needed(AclResource.CLUSTER, AclOperation.CREATE)
