"""ACLs as clients make, remove and see them (DESIGN 10)."""

from __future__ import annotations

from collections.abc import Iterable

from paceline.wire.native.acls import (
    Acl,
    AclFilter,
    AclsDeleted,
    CreateAcls,
    DeleteAcls,
)
from paceline.wire.native.admin import Done
from paceline.wire.native.asked_by import AskedBy
from paceline_node.controller.metadata_store import MetadataStore
from paceline_node.security.acls import check
from paceline_node.security.principals import Operation, Policy, Principal
from paceline_node.services.authorization.authorizer import Authorizer
from paceline_node.services.authorization.cluster_policy import ClusterPolicy
from paceline_node.services.topics.topic_service import ADMIN_TIMEOUT_S, TopicService


class OpenAcls:
    """For those who may change them; made by :meth:`AclService.open`."""

    def __init__(
        self,
        principal: Principal,
        topics: TopicService,
        asked_by: AskedBy | None,
    ) -> None:
        self._principal = principal
        self._topics = topics
        self._asked_by = asked_by

    def checked(self, acl: Acl) -> Acl:
        """The ACL. Raises InvalidRequest for one that makes no sense."""
        check(acl)
        return acl

    async def create(self, acls: Iterable[Acl], *, timeout_s: float = ADMIN_TIMEOUT_S) -> Done:
        """Add ACLs, all or none. Raises InvalidRequest, and PolicyViolation where there were too
        many, or ``principal`` could not take them back."""
        wish = CreateAcls(tuple(acls), self._asked_by)
        return await self._topics.administer(self._principal, wish, Done, timeout_s=timeout_s)

    async def delete(
        self, filters: Iterable[AclFilter], *, timeout_s: float = ADMIN_TIMEOUT_S
    ) -> AclsDeleted:
        """Remove the ACLs that any of the filters describes. Raises as :meth:`create`."""
        wish = DeleteAcls(tuple(filters), self._asked_by)
        return await self._topics.administer(
            self._principal, wish, AclsDeleted, timeout_s=timeout_s
        )


class AclService:
    """What is asked of the controller is judged here, as all administration is."""

    def __init__(
        self, store: MetadataStore, topics: TopicService, access: Authorizer, policy: Policy
    ) -> None:
        self._store = store
        self._topics = topics
        self._access = access
        self._policy = policy if isinstance(policy, ClusterPolicy) else None

    @property
    def is_guarded(self) -> bool:
        """Whether what nothing allows is refused."""
        return self._store.image.is_guarded

    def open(self, principal: Principal) -> OpenAcls:
        """To change them. Raises AuthorizationFailed."""
        self._access.cluster(principal, Operation.ADMINISTER)
        asked_by = None if self._policy is None else self._policy.asked_by(principal)
        return OpenAcls(principal, self._topics, asked_by)

    def listed(self, principal: Principal, wanted: AclFilter) -> list[Acl]:
        """Those that ``wanted`` describes, by resource, name and principal. Raises
        AuthorizationFailed."""
        self._access.cluster(principal, Operation.DESCRIBE)
        return sorted(filter(wanted.fits, self._store.image.acls), key=_order)


def _order(acl: Acl) -> tuple[int, str, int, str, int]:
    return acl.resource, acl.name, acl.pattern, acl.principal, acl.operation
