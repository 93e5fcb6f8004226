"""Quotas as operators set and see them."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import Protocol, TypeVar

from paceline.wire.message import Message
from paceline.wire.native import quotas as wire
from paceline.wire.native.admin import Done
from paceline.wire.native.api import NativeApi
from paceline.wire.native.quotas import Quota, QuotaChange

M = TypeVar("M", bound=Message)


class Request(Protocol):
    """Asks any node, until it answers or the time is over."""

    def __call__(self, api: NativeApi, body: Message, reply: type[M], /) -> Awaitable[M]: ...


class QuotaAdmin:
    """Reached as ``client.admin.quotas``. Calls are retried until the operation timeout: what is
    so already is not changed by it."""

    def __init__(self, request: Request) -> None:
        self._request = request

    async def alter(self, changes: Iterable[QuotaChange]) -> None:
        """Set and take away quotas, all or nothing. Raises InvalidRequest, PolicyViolation."""
        await self._request(NativeApi.ALTER_QUOTAS, wire.AlterQuotas(tuple(changes)), Done)

    async def list(self) -> list[Quota]:
        """All of them: those of users, then of addresses, by name."""
        found = await self._request(NativeApi.LIST_QUOTAS, wire.ListQuotas(), wire.QuotasListed)
        return list(found.quotas)
