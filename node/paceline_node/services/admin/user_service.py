"""Users, as those see and change them who administer them (security/DESIGN 4.2, 5.1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from paceline.wire.native.admin import Done
from paceline.wire.native.users import AlterUser, DeleteUser, MechanismInfo, TokenInfo, UserInfo
from paceline_node.controller.metadata_records import User
from paceline_node.controller.metadata_store import MetadataStore
from paceline_node.security.principals import Operation, Policy, Principal
from paceline_node.services.authorization.authorizer import Authorizer
from paceline_node.services.authorization.cluster_policy import ClusterPolicy
from paceline_node.services.topics.topic_service import ADMIN_TIMEOUT_S, TopicService


class UserService:
    """What there is of users; of what proves to be them never more than its kind."""

    def __init__(
        self, store: MetadataStore, topics: TopicService, access: Authorizer, policy: Policy
    ) -> None:
        self._store = store
        self._topics = topics
        self._access = access
        self._policy = policy if isinstance(policy, ClusterPolicy) else None

    def describe(self, principal: Principal, names: Iterable[str] | None) -> list[UserInfo]:
        """All users, or those of ``names`` that there are, by name. Raises AuthorizationFailed."""
        self._access.cluster(principal, Operation.DESCRIBE)
        users = self._store.image.users
        wanted = users if names is None else users.keys() & set(names)
        return [_info(users[name]) for name in sorted(wanted)]

    def permit_changes(self, principal: Principal) -> None:
        """Raises AuthorizationFailed for who may not change users."""
        self._access.cluster(principal, Operation.ADMINISTER)

    async def change(
        self,
        principal: Principal,
        wish: AlterUser | DeleteUser,
        *,
        timeout_s: float = ADMIN_TIMEOUT_S,
    ) -> Done:
        """Make, change or forget a user. Raises AuthorizationFailed, and the controller's
        errors: PolicyViolation where nobody could take it back."""
        self.permit_changes(principal)
        asked_by = None if self._policy is None else self._policy.asked_by(principal)
        wish = replace(wish, asked_by=asked_by)  # whatever a client says
        return await self._topics.administer(principal, wish, Done, timeout_s=timeout_s)


def _info(user: User) -> UserInfo:
    return UserInfo(
        user.name,
        tuple(MechanismInfo(key.mechanism, key.iterations) for key in user.keys),
        tuple(
            TokenInfo(each.token_id, each.created_ms, each.expires_ms, each.note)
            for each in user.tokens
        ),
    )
