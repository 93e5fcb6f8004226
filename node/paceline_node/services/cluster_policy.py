"""The policy of a cluster: its ACLs, super users, and everything allowed while there are no rules
(security/DESIGN 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from paceline.wire.native.acls import Acl
from paceline_node.controller.store import MetadataStore
from paceline_node.security.acls import AclRules, Asker, needed
from paceline_node.security.principals import (
    ANONYMOUS,
    CLUSTER,
    Operation,
    Principal,
    Proof,
    Resource,
    refuse,
)


class ClusterPolicy:
    """Judges by the newest metadata that this node has applied. ``super_users`` may do everything;
    so may nodes, for what they pass on was judged where the client is connected."""

    def __init__(self, store: MetadataStore, super_users: Callable[[], Iterable[str]]) -> None:
        self._store = store
        self._super_users = super_users
        self._acls: frozenset[Acl] | None = None
        self._rules = AclRules(())

    @property
    def is_guarded(self) -> bool:
        """Whether what nothing allows is refused."""
        return self._store.image.is_guarded

    def authorize(self, principal: Principal, operation: Operation, resource: Resource) -> None:
        """Return when ``principal`` may do it; else raise AuthorizationFailed."""
        assert resource.kind in operation.kinds, f"{principal}: {operation} on {resource}"
        image = self._store.image
        if not image.is_guarded or self._may_all(principal):
            return
        if image.acls is not self._acls:
            self._acls, self._rules = image.acls, AclRules(image.acls)
        if not _allows(self._rules, principal, operation, resource):
            refuse(principal, operation, resource)

    def locks_out(self, principal: Principal, acls: frozenset[Acl]) -> bool:
        """Whether ``principal`` could not change ACLs any more if there were these."""
        if not acls or self._may_all(principal):
            return False
        return not _allows(AclRules(acls), principal, Operation.ADMINISTER, CLUSTER)

    def _may_all(self, principal: Principal) -> bool:
        if principal.proof is Proof.CLUSTER_SECRET:
            return True
        return principal.proof is not Proof.NONE and principal.name in self._super_users()


def _allows(
    rules: AclRules, principal: Principal, operation: Operation, resource: Resource
) -> bool:
    # Whoever has proved nothing may call himself what he likes.
    name = ANONYMOUS.name if principal.proof is Proof.NONE else principal.name
    return rules.allows(
        Asker(name, principal.host), needed(operation, resource.kind), resource.name
    )
