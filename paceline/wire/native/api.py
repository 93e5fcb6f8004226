"""Numbers of the native protocol's requests, as they stand in a frame's ``api`` field."""

from __future__ import annotations

import enum
from typing import Any

from paceline.errors import InvalidRequest

PROTOCOL_VERSION = 1
MAX_ITEMS = 81_920
"""Elements that all arrays and maps of a request may have together: enough for a FETCH of 11,000
partitions."""


def items_of(body: list[Any], *, at_most: int) -> int:
    """How many elements the arrays and maps of a request have together. Raises InvalidRequest for
    more than ``at_most``."""
    count = 0
    todo: list[Any] = [body]
    while todo:
        values = todo.pop()
        count += len(values)
        if count > at_most:
            raise InvalidRequest(f"a request of more than {at_most} items; ask in several")
        for value in values.values() if type(values) is dict else values:
            if type(value) is list or type(value) is dict:
                todo.append(value)
    return count


class NativeApi(enum.IntEnum):
    """Requests of the native protocol. Served on the ``native`` and ``http``
    (WebSocket) listeners to clients, and on the ``peer`` listener to nodes that forward."""

    HELLO = 1
    METADATA = 2
    PRODUCE = 3
    FETCH = 4
    LIST_OFFSETS = 5
    INIT_PRODUCER = 6
    REPORT_CORRUPT = 7
    TRIM_PARTITION = 8
    AUTHENTICATE = 9
    CREATE_TOPIC = 20
    DELETE_TOPIC = 21
    ALTER_TOPIC = 22
    ADD_PARTITIONS = 23
    DESCRIBE_TOPIC = 24
    ELECT_LEADER = 25
    SET_ROLE = 26
    FENCE_BROKER = 27
    REGISTER_EXTERNAL = 28
    RECONCILE_EXTERNAL = 29
    REASSIGN_PARTITION = 30
    ALTER_GROUP = 31
    ALTER_USER = 32
    DELETE_USER = 33
    LIST_USERS = 34
    ALTER_QUOTAS = 35
    CREATE_ACLS = 36
    DELETE_ACLS = 37
    LIST_ACLS = 38
    LIST_QUOTAS = 39
    STATUS = 40
    STOP_CLUSTER = 41
    ADD_VOTER = 42
    REMOVE_VOTER = 43
    UNREGISTER_BROKER = 44
    LIST_REASSIGNMENTS = 45
    LOAD = 46
    FIND_COORDINATOR = 50
    JOIN_GROUP = 51
    SYNC_GROUP = 52
    HEARTBEAT_GROUP = 53
    LEAVE_GROUP = 54
    COMMIT_OFFSETS = 55
    FETCH_OFFSETS = 56
    LIST_GROUPS = 57
    DESCRIBE_GROUP = 58
    DELETE_GROUP = 59
    DELETE_OFFSETS = 60
    RESET_OFFSETS = 61
    FIND_TRANSACTION_COORDINATOR = 70
    END_TRANSACTION = 71
    COMMIT_TRANSACTION_OFFSETS = 72
    LIST_TRANSACTIONS = 73
    DESCRIBE_TRANSACTION = 74
    ABORT_TRANSACTION = 75
    BEGIN_ATTEMPT = 80
    TOUCH_BATCH = 81
    COMMIT_GROUP = 82
    ABORT_GROUP = 83
    SINK_STATE = 84
