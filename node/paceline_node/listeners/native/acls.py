"""Native requests about ACLs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from paceline.wire.frame import Frame
from paceline.wire.message import Message
from paceline.wire.native import acls as wire
from paceline.wire.native.api import NativeApi
from paceline_node.security.principals import Principal
from paceline_node.services.admin.acl_service import AclService

Handler = Callable[[Frame, Principal], Awaitable[Message]]


class NativeAcls:
    """Handlers by api number, in :meth:`handlers`."""

    def __init__(self, acls: AclService) -> None:
        self._acls = acls

    def handlers(self) -> dict[int, Handler]:
        """What is served of ACLs."""
        return {
            NativeApi.CREATE_ACLS: self._create,
            NativeApi.DELETE_ACLS: self._delete,
            NativeApi.LIST_ACLS: self._list,
        }

    async def _create(self, frame: Frame, principal: Principal) -> Message:
        return await self._acls.open(principal).create(wire.CreateAcls.unpack(frame.body).acls)

    async def _delete(self, frame: Frame, principal: Principal) -> Message:
        return await self._acls.open(principal).delete(wire.DeleteAcls.unpack(frame.body).filters)

    async def _list(self, frame: Frame, principal: Principal) -> Message:
        found = self._acls.listed(principal, wire.ListAcls.unpack(frame.body).filter)
        return wire.AclsListed(tuple(found), self._acls.is_guarded)
