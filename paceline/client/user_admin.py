"""Users of the cluster, as those administer them who may. Passwords and tokens stay here: nodes
get what they need to recognise them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import trio

from paceline.client.retry import may_repeat, may_repeat_once_only
from paceline.errors import PacelineError
from paceline.scram import MAX_ITERATIONS, SALT_BYTES, SCRAM_HASHES, derived, salted
from paceline.tokens import RANDOM_BYTES, make_token
from paceline.wire.message import Message
from paceline.wire.native.admin import Done
from paceline.wire.native.api import NativeApi
from paceline.wire.native.users import (
    AlterUser,
    DeleteUser,
    ListUsers,
    NewToken,
    ScramKey,
    UserInfo,
    UsersListed,
)

M = TypeVar("M", bound=Message)


class Request(Protocol):
    """Asks any node, again where that does no harm."""

    def __call__(
        self,
        api: NativeApi,
        body: Message,
        reply: type[M],
        *,
        may_retry: Callable[[PacelineError], bool] = ...,
    ) -> Coroutine[Any, Any, M]: ...


class UserAdmin:
    """Reached as ``client.admin.users``. Calls are retried until the operation timeout."""

    def __init__(self, request: Request) -> None:
        self._request = request

    async def list(self, names: Iterable[str] | None = None) -> list[UserInfo]:
        """All users, or those of ``names`` that there are, by name."""
        wanted = ListUsers(None if names is None else tuple(names))
        return list((await self._request(NativeApi.LIST_USERS, wanted, UsersListed)).users)

    async def create(
        self,
        name: str,
        password: str | None = None,
        *,
        mechanisms: Sequence[str] = tuple(SCRAM_HASHES),
        iterations: int = MAX_ITERATIONS,
    ) -> None:
        """Make a user, who without a password can only be known by tokens. Raises
        UserAlreadyExists, UnacceptableCredential."""
        keys = await _keys(password, mechanisms, iterations)
        await self._alter(AlterUser(name, may_create=True, may_exist=False, keys=keys))

    async def set_password(
        self,
        name: str,
        password: str,
        *,
        mechanisms: Sequence[str] = tuple(SCRAM_HASHES),
        iterations: int = MAX_ITERATIONS,
    ) -> None:
        """Change a user's password; the former one is good for no mechanism any more. Raises
        UserNotFound, UnacceptableCredential."""
        keys = await _keys(password, mechanisms, iterations)
        await self._alter(
            AlterUser(
                name, may_create=False, may_exist=True, keys=keys, without=tuple(SCRAM_HASHES)
            )
        )

    async def make_token(self, name: str, *, expires_ms: int = 0, note: str = "") -> str:
        """A new token of a user; nobody can find out again what it is. ``expires_ms``: since 1970,
        0 never. Raises UserNotFound."""
        text, token = make_token(name, secrets.token_bytes(RANDOM_BYTES))
        new = NewToken(token.token_id, token.digest, expires_ms, note)
        await self._alter(AlterUser(name, may_create=False, may_exist=True, tokens=(new,)))
        return text

    async def revoke(self, name: str, token_ids: Iterable[str]) -> None:
        """Forget tokens of a user; one that is not there is no error. Raises UserNotFound."""
        await self._alter(
            AlterUser(name, may_create=False, may_exist=True, revoked=tuple(token_ids))
        )

    async def delete(self, name: str) -> None:
        """Forget a user. Raises UserNotFound."""
        await self._request(
            NativeApi.DELETE_USER, DeleteUser(name), Done, may_retry=may_repeat_once_only
        )

    async def _alter(self, body: AlterUser) -> None:
        await self._request(NativeApi.ALTER_USER, body, Done, may_retry=may_repeat)


async def _keys(
    password: str | None, mechanisms: Sequence[str], iterations: int
) -> tuple[ScramKey, ...]:
    if password is None:
        return ()
    make = partial(derive_keys, password, mechanisms, iterations)
    return await trio.to_thread.run_sync(make)


def derive_keys(
    password: str,
    mechanisms: Sequence[str] = tuple(SCRAM_HASHES),
    iterations: int = MAX_ITERATIONS,
) -> tuple[ScramKey, ...]:
    """What nodes get of a password. Takes a while: not for an event loop."""
    made = []
    for mechanism in mechanisms:
        salt = secrets.token_bytes(SALT_BYTES)
        keys = derived(mechanism, salted(mechanism, password, salt, iterations))
        made.append(ScramKey(mechanism, salt, iterations, keys.stored_key, keys.server_key))
    return tuple(made)
