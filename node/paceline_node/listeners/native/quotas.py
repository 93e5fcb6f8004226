"""Native requests about quotas; setting them is administration (``requests.py``)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from paceline.wire.frame import Frame
from paceline.wire.message import Message
from paceline.wire.native import quotas as wire
from paceline.wire.native.api import NativeApi
from paceline_node.security.principals import Principal
from paceline_node.services.admin.quota_service import QuotaService

Handler = Callable[[Frame, Principal], Awaitable[Message]]


class NativeQuotas:
    """Handlers by api number, in :meth:`handlers`."""

    def __init__(self, quotas: QuotaService) -> None:
        self._quotas = quotas

    def handlers(self) -> dict[int, Handler]:
        """What is served of quotas."""
        return {NativeApi.LIST_QUOTAS: self._list}

    async def _list(self, frame: Frame, principal: Principal) -> Message:
        wire.ListQuotas.unpack(frame.body)
        return wire.QuotasListed(tuple(self._quotas.listed(principal)))
