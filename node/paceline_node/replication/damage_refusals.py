"""What readers of a damaged range are told.

Another replica may have it whole, and until the controller has said who leads on nobody here knows:
the reader is told to ask again, soon and perhaps elsewhere. Whom the controller lets lead in spite
of its damage has what nobody else has: then the range is lost to readers, and they are told so.
"""

from __future__ import annotations

from paceline.errors import CorruptMessage, ErrorCode
from paceline.types import NodeId
from paceline_node.controller.metadata_records import PartitionRegistration
from paceline_node.controller.partition_change import RECOVERY_UNCLEAN


class MayBeElsewhere(CorruptMessage):
    """This leader's copy is damaged, and another one may take over: ask again."""

    code = ErrorCode.STORAGE_ERROR
    retriable = True


def leads_anyway(node: NodeId, registration: PartitionRegistration | None) -> bool:
    """Whether ``node`` leads in spite of damage: the controller knows of it and has nobody better,
    or an operator let it."""
    if registration is None or registration.leader != node:
        return False
    return node in registration.damaged or was_elected_anyway(node, registration)


def was_elected_anyway(node: NodeId, registration: PartitionRegistration | None) -> bool:
    """Whether an operator let ``node`` lead, whatever its replica lacks."""
    return (
        registration is not None
        and registration.leader == node
        and registration.recovery == RECOVERY_UNCLEAN
    )


def refusal(
    error: CorruptMessage, node: NodeId, registration: PartitionRegistration | None
) -> CorruptMessage:
    """What a reader is told by ``node``, whose log met with ``error``."""
    if registration is None or registration.leader != node or leads_anyway(node, registration):
        return error
    return MayBeElsewhere(f"{error}; another replica may have it and take over: ask again")
