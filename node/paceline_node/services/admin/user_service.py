"""Users, as those see and change them who administer them (security/DESIGN 4.2, 5.1)."""

from __future__ import annotations

from collections.abc import Iterable

from paceline.errors import PolicyViolation
from paceline.wire.native.admin import Done
from paceline.wire.native.users import AlterUser, DeleteUser, MechanismInfo, TokenInfo, UserInfo
from paceline_node.controller.metadata_records import User
from paceline_node.controller.metadata_store import MetadataStore
from paceline_node.controller.users import altered
from paceline_node.security.principals import Operation, Policy, Principal, Proof
from paceline_node.services.authorization.authorizer import Authorizer
from paceline_node.services.authorization.cluster_policy import ClusterPolicy, can_log_in
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
        """Make, change or forget a user. Raises AuthorizationFailed, the controller's errors, and
        PolicyViolation where nobody could take it back."""
        self.permit_changes(principal)
        self._keep_a_way_in(principal, wish)
        return await self._topics.administer(principal, wish, Done, timeout_s=timeout_s)

    def _keep_a_way_in(self, principal: Principal, wish: AlterUser | DeleteUser) -> None:
        """Either who asks can still administer afterwards, or the user that he makes can."""
        if self._policy is None:
            return
        image = self._store.image
        users = {name: user for name, user in image.users.items() if name != wish.name}
        if isinstance(wish, AlterUser):
            before = image.users.get(wish.name) or User(wish.name)
            users[wish.name] = altered(before, wish, wall_ms=0)
        self._policy.keep_closed(image.acls, users)
        user = Principal(wish.name, Proof.PASSWORD, host=principal.host)
        if not all(self._policy.locks_out(each, image.acls, users) for each in (principal, user)):
            return
        if image.is_guarded:
            raise PolicyViolation(
                f"then {principal} could not log in any more to take that back: another "
                "administrator can do it"
            )
        raise PolicyViolation(
            f"then nobody could administer this cluster: once there is a user, what nothing allows "
            f"is refused, and {wish.name!r} {self._shortcoming(users.get(wish.name))}; the first "
            "user is one that security.super_users of all nodes names (reloaded on SIGHUP), and "
            f"has a password or a token; here it names {self._super_users()}"
        )

    def _shortcoming(self, user: User | None) -> str:
        return "is no super user" if can_log_in(user) else "could not log in"

    def _super_users(self) -> str:
        assert self._policy is not None
        return ", ".join(map(repr, self._policy.super_users)) or "nobody"


def _info(user: User) -> UserInfo:
    return UserInfo(
        user.name,
        tuple(MechanismInfo(key.mechanism, key.iterations) for key in user.keys),
        tuple(
            TokenInfo(each.token_id, each.created_ms, each.expires_ms, each.note)
            for each in user.tokens
        ),
    )
