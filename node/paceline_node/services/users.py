"""Users, as those see them who administer them. Changes: ``TopicService.administer``."""

from __future__ import annotations

from collections.abc import Iterable

from paceline.wire.native.users import MechanismInfo, TokenInfo, UserInfo
from paceline_node.controller.records import User
from paceline_node.controller.store import MetadataStore
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.access import Access


class UserService:
    """What there is of users; of what proves to be them never more than its kind."""

    def __init__(self, store: MetadataStore, access: Access) -> None:
        self._store = store
        self._access = access

    def describe(self, principal: Principal, names: Iterable[str] | None) -> list[UserInfo]:
        """All users, or those of ``names`` that there are, by name. Raises AuthorizationFailed."""
        self._access.cluster(principal, Operation.DESCRIBE)
        users = self._store.image.users
        wanted = users if names is None else users.keys() & set(names)
        return [_info(users[name]) for name in sorted(wanted)]

    def permit_changes(self, principal: Principal) -> None:
        """Raises AuthorizationFailed for who may not change users."""
        self._access.cluster(principal, Operation.ADMINISTER)


def _info(user: User) -> UserInfo:
    return UserInfo(
        user.name,
        tuple(MechanismInfo(key.mechanism, key.iterations) for key in user.keys),
        tuple(
            TokenInfo(each.token_id, each.created_ms, each.expires_ms, each.note)
            for each in user.tokens
        ),
    )
