"""Offsets that a transaction commits: pending in their group until it ends."""

from __future__ import annotations

from collections.abc import Sequence

from paceline_node.groups.committed_offsets import Commit
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.groups.group_service import GroupService
from paceline_node.services.groups.open_group import GroupMember
from paceline_node.services.groups.open_kafka_group import OpenKafkaGroup
from paceline_node.services.transactions.transaction_rpc import TransactionRpc
from paceline_node.services.transactions.transaction_service import TransactionService
from paceline_node.transaction_names import ProducerIdentity, TransactionKey


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
        group: OpenKafkaGroup,
        member: GroupMember | None,
        commits: Sequence[Commit],
        *,
        adds: bool,
    ) -> None:
        """Have ``commits`` made in ``group``, which was opened for that, when the transaction
        commits, and dropped when it aborts.

        Whether ``member`` may commit in the group (:meth:`OpenKafkaGroup.check`) is asked before
        and after the transaction's coordinator. ``adds``: the group need not have been added to the
        transaction before. Raises what that check raises, what the group's coordinator and the
        transaction's (:meth:`TransactionRpc.verify`) raise, AuthorizationFailed, and
        InvalidTransactionState when the transaction was ended meanwhile.
        """
        self._transactions.permit(principal, Operation.TRANSACT, key.owner)

        await self._rpc.pend(
            key,
            who,
            group.key,
            commits,
            adds=adds,
            check=group.check(member, commits),
            client=principal.account,
            commit_s=self._groups.commit_s,
        )
