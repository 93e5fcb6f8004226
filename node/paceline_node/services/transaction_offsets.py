"""Offsets that a transaction commits: pending in their group until it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paceline_node.groups.engine import GroupEngine
from paceline_node.groups.offsets import Commit
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.groups import GroupService
from paceline_node.services.open_group import OpenGroup
from paceline_node.services.transaction_rpc import TransactionRpc
from paceline_node.services.transactions import TransactionService
from paceline_node.transactions.keys import ProducerIdentity, TransactionKey


class TransactionOffsets:
    """Runs where the group's coordinator is."""

    def __init__(
        self,
        groups: GroupService,
        transactions: TransactionService,
        rpc: TransactionRpc,
    ) -> None:
        self._groups = groups
        self._transactions = transactions
        self._rpc = rpc

    async def commit(
        self,
        principal: Principal,
        key: TransactionKey,
        who: ProducerIdentity,
        group: OpenGroup,
        commits: Sequence[Commit],
        *,
        adds: bool,
        check: Callable[[GroupEngine], None],
    ) -> None:
        """Have ``commits`` made in ``group``, which was opened for that, when the transaction
        commits, and dropped when it aborts.

        ``check`` raises unless the caller may commit in the group, as the family judges; it is
        asked before and after the transaction's coordinator. ``adds``: the group need not have been
        added to the transaction before. Raises what ``check`` raises, what the group's coordinator
        and the transaction's (:meth:`TransactionRpc.verify`) raise, AuthorizationFailed, and
        InvalidTransactionState when the transaction was ended meanwhile.
        """
        self._transactions.permit(principal, Operation.TRANSACT, key.name)

        await self._rpc.pend(
            key,
            who,
            group.key,
            commits,
            adds=adds,
            check=check,
            client=principal.account,
            commit_s=self._groups.commit_s,
        )
