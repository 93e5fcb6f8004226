"""Connections by who has logged in on them: they end with what was shown there (DESIGN 5.4)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import structlog

from paceline.errors import AuthenticationFailed
from paceline.values import dataclass
from paceline.wire.native.users import ScramKey
from paceline_node.security.principals import Principal, Proof


class TokenView(Protocol):
    """A token of a user, without its secret."""

    @property
    def token_id(self) -> str: ...

    @property
    def digest(self) -> bytes: ...

    @property
    def expires_ms(self) -> int: ...


class UserView(Protocol):
    """A user, with what proves to be it."""

    @property
    def keys(self) -> Sequence[ScramKey]: ...

    @property
    def tokens(self) -> Sequence[TokenView]: ...


@dataclass(frozen=True, slots=True)
class Login:
    """Who somebody has proved to be. ``lifetime_ms``: for how long that holds, 0 for good.
    ``token_id``: of the token that proved it, if one did."""

    principal: Principal
    lifetime_ms: int = 0
    token_id: str = ""


Find = Callable[[str], UserView | None]


class Session:
    """One log-in of one connection. ``end`` ends the connection, and may be called late."""

    __slots__ = ("end", "is_over", "login")

    def __init__(self, login: Login, end: Callable[[], None]) -> None:
        self.login = login
        self.is_over = False
        self.end = end


class Sessions:
    """Of one node. ``find`` gives a user by name, as it is now."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._by_name: defaultdict[str, set[Session]] = defaultdict(set)

    def enter(self, login: Login, end: Callable[[], None]) -> Session:
        """Keep one, until :meth:`leave`. Raises AuthenticationFailed where what was shown is worth
        nothing any more: an exchange takes its time."""
        name = login.principal.name
        session = Session(login, end)
        if not _holds(session, self._find(name)):
            raise AuthenticationFailed(f"user {name!r} was deleted, or what it logs in with")
        self._by_name[name].add(session)
        return session

    def leave(self, session: Session | None) -> None:
        """Forget one; again does no harm."""
        if session is None:
            return
        name = session.login.principal.name
        found = self._by_name.get(name)
        if found is not None:
            found.discard(session)
            if not found:
                del self._by_name[name]

    def users_changed(self, users: Mapping[str, UserView], *, is_guarded: bool = True) -> None:
        """End those whose user is gone, or what it logged in with. Another password is none that
        is gone, as in Kafka: it is asked for when a log-in is repeated. In a cluster that is not
        guarded any more they end when it is again: whoever deletes the last user is answered."""
        for name in list(self._by_name):
            user = users.get(name)
            over = [each for each in self._by_name[name] if not _holds(each, user)]
            for each in over:
                each.is_over = True
            if over and is_guarded:
                structlog.get_logger().info(
                    "connections end, for what they logged in with is gone",
                    user=name,
                    connections=len(over),
                )
                for each in over:
                    self.leave(each)
                    each.end()


def _holds(session: Session, user: UserView | None) -> bool:
    login = session.login
    if session.is_over:
        return False
    if login.principal.proof is Proof.JWT:
        return True  # no user of this cluster, and good until it expires
    if user is None:
        return False
    if login.principal.proof is Proof.TOKEN:
        return any(each.token_id == login.token_id for each in user.tokens)
    return bool(user.keys)
