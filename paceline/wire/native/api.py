"""Numbers of the native protocol's requests, as they stand in a frame's ``api`` field."""

from __future__ import annotations

import enum

PROTOCOL_VERSION = 1


class NativeApi(enum.IntEnum):
    """Requests of the native protocol (SETTLED R12). Served on the ``native`` and ``http``
    (WebSocket) listeners to clients, and on the ``peer`` listener to nodes that forward."""

    HELLO = 1
    METADATA = 2
    PRODUCE = 3
    FETCH = 4
    LIST_OFFSETS = 5
    INIT_PRODUCER = 6
    REPORT_CORRUPT = 7
    TRIM_PARTITION = 8
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
    STATUS = 40
    STOP_CLUSTER = 41
    ADD_VOTER = 42
    REMOVE_VOTER = 43
    UNREGISTER_BROKER = 44
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
