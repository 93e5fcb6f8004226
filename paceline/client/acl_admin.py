"""Access control lists as operators make, remove and see them."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import Protocol, TypeVar

from paceline.wire.message import Message
from paceline.wire.native import acls as wire
from paceline.wire.native.acls import Acl, AclFilter, AclsListed
from paceline.wire.native.admin import Done
from paceline.wire.native.api import NativeApi

M = TypeVar("M", bound=Message)


class Request(Protocol):
    """Asks any node, until it answers or the time is over."""

    def __call__(self, api: NativeApi, body: Message, reply: type[M], /) -> Awaitable[M]: ...


class AclAdmin:
    """Reached as ``client.admin.acls``. Calls are retried until the operation timeout: what is
    there already is made again by none of them, and what is gone not removed again."""

    def __init__(self, request: Request) -> None:
        self._request = request

    async def create(self, acls: Iterable[Acl]) -> None:
        """Add ACLs, all or none. Raises InvalidRequest, PolicyViolation (there are as many as there
        may be, or this client could not change ACLs any more)."""
        await self._request(NativeApi.CREATE_ACLS, wire.CreateAcls(tuple(acls)), Done)

    async def delete(self, *filters: AclFilter) -> list[Acl]:
        """Remove the ACLs that any of the filters describes; those that were removed. Raises
        PolicyViolation as :meth:`create`."""
        body = wire.DeleteAcls(filters)
        reply = await self._request(NativeApi.DELETE_ACLS, body, wire.AclsDeleted)
        return list(dict.fromkeys(acl for found in reply.deleted for acl in found.acls))

    async def list(self, wanted: AclFilter | None = None) -> AclsListed:
        """The ACLs that ``wanted`` describes (None: all), and whether there are any rules."""
        body = wire.ListAcls(wanted or AclFilter())
        return await self._request(NativeApi.LIST_ACLS, body, AclsListed)
