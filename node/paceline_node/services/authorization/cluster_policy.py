"""The policy of a cluster: its ACLs, super users, and everything allowed while there are no rules
(security/DESIGN 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from paceline.wire.native.acls import Acl
from paceline.wire.native.asked_by import AskedBy
from paceline_node.controller.metadata_store import MetadataStore
from paceline_node.security.acls import AclRules, Asker, needed
from paceline_node.security.principals import (
    Operation,
    Principal,
    Proof,
    Resource,
    proved_name,
    refuse,
)

_WEAK = (Proof.NONE, Proof.ADDRESS)
"""What makes nobody a super user."""
_OF_USERS = (Proof.PASSWORD, Proof.TOKEN)
"""Who has proved to be a user by these can do it again only as long as there is that user."""


class ClusterPolicy:
    """Judges by the newest metadata that this node has applied. ``super_users`` may do everything;
    so may nodes, for what they pass on was judged where the client is connected."""

    def __init__(
        self,
        store: MetadataStore,
        super_users: Callable[[], Iterable[str]],
        *,
        wants_log_in: Callable[[], bool] = lambda: False,
    ) -> None:
        """``wants_log_in``: whether listeners of this node serve only who has logged in."""
        self._store = store
        self._super_users = super_users
        self._wants_log_in = wants_log_in
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

    def asked_by(self, principal: Principal) -> AskedBy:
        """Who asks the controller to change who may do what; it judges that (``way_in``)."""
        return AskedBy(
            proved_name(principal),
            principal.host,
            is_user=principal.proof in _OF_USERS,
            is_super=self._may_all(principal),
            keep_closed=self._wants_log_in(),
            super_users=tuple(self._super_users()),
        )

    def _may_all(self, principal: Principal) -> bool:
        if principal.proof is Proof.CLUSTER_SECRET:
            return True
        return principal.proof not in _WEAK and principal.name in self._super_users()


def _allows(
    rules: AclRules, principal: Principal, operation: Operation, resource: Resource
) -> bool:
    return rules.allows(
        Asker(proved_name(principal), principal.host),
        needed(operation, resource.kind),
        resource.name,
    )
