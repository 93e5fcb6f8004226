"""Quotas as clients set and see them (DESIGN 10)."""

from __future__ import annotations

from collections.abc import Iterable

from paceline.wire.native.admin import Done
from paceline.wire.native.quotas import AlterQuotas, Quota, QuotaChange
from paceline_node.controller.metadata_store import MetadataStore
from paceline_node.controller.quotas import check
from paceline_node.security.principals import Operation, Principal
from paceline_node.security.quotas import quotas_in
from paceline_node.services.authorization.authorizer import Authorizer
from paceline_node.services.topics.topic_service import ADMIN_TIMEOUT_S, TopicService


class QuotaService:
    """What is asked of the controller is judged here, as all administration is."""

    def __init__(self, store: MetadataStore, topics: TopicService, access: Authorizer) -> None:
        self._store = store
        self._topics = topics
        self._access = access

    def permit_changes(self, principal: Principal) -> None:
        """Raises AuthorizationFailed for who may not change quotas."""
        self._access.cluster(principal, Operation.ADMINISTER)

    def checked(self, change: QuotaChange) -> QuotaChange:
        """The change. Raises InvalidRequest for one that makes no sense."""
        check(change)
        return change

    async def alter(
        self,
        principal: Principal,
        changes: Iterable[QuotaChange],
        *,
        timeout_s: float = ADMIN_TIMEOUT_S,
    ) -> Done:
        """Set quotas, all or nothing. Raises AuthorizationFailed, InvalidRequest,
        PolicyViolation."""
        wish = AlterQuotas(tuple(changes))
        return await self._topics.administer(principal, wish, Done, timeout_s=timeout_s)

    def listed(self, principal: Principal) -> list[Quota]:
        """All of them, in order. Raises AuthorizationFailed."""
        self._access.cluster(principal, Operation.DESCRIBE)
        return sorted(quotas_in(self._store.image.configs), key=_order)


def _order(quota: Quota) -> tuple[int, bool, str, int]:
    return quota.of, quota.name is not None, quota.name or "", quota.limit
