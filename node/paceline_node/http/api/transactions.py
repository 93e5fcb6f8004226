"""Transactions."""

from __future__ import annotations

from paceline.documents.transactions import transaction_document
from paceline_node.http.api.call import Call, place_of_transaction
from paceline_node.http.api.documents import Document, listed
from paceline_node.loop_turns import Turns
from paceline_node.services.admin.transaction_views import TransactionViews


class TransactionPages:
    """Of the whole cluster."""

    def __init__(self, looks: TransactionViews, turns: Turns) -> None:
        self._looks = looks
        self._turns = turns

    async def transactions(self, call: Call) -> Document:
        """As ``transaction list``."""
        page = await self._looks.listed(
            call.principal,
            states=call.several("state"),
            after=call.after_transaction(),
            limit=call.limit,
        )
        found = await self._turns.run(listed(page.items, transaction_document))
        last = found[-1] if page.has_more else None
        return {
            "transactions": found,
            "next": last and place_of_transaction(last["family"], last["id"]),
        }
