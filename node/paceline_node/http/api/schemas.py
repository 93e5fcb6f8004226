"""What the documents of the API hold: JSON Schemas, by the names under which OpenAPI knows them.

Loaded when somebody asks for the description. Every field is always there; what may be null says
so. More may be added, so readers pass over what they do not know.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def _of(kind: str, text: str, **more: Any) -> Schema:
    return {"type": kind, **({"description": text} if text else {}), **more}


def text(description: str = "", **more: Any) -> Schema:
    """A string."""
    return _of("string", description, **more)


def integer(description: str = "", **more: Any) -> Schema:
    """A whole number."""
    return _of("integer", description, **more)


def number(description: str = "") -> Schema:
    """Any number."""
    return _of("number", description)


def flag(description: str = "") -> Schema:
    """True or false."""
    return _of("boolean", description)


def maybe(schema: Schema) -> Schema:
    """The same, or null."""
    return {**schema, "type": [schema["type"], "null"]}


def several(items: Schema, description: str = "") -> Schema:
    """A list."""
    return _of("array", description, items=items)


def record(description: str, **fields: Schema) -> Schema:
    """An object that has all of these."""
    return _of("object", description, properties=fields, required=list(fields))


def _spread(description: str) -> Schema:
    return record(
        description,
        up_to_ms=several(number(), "bounds"),
        counts=several(
            integer(minimum=0),
            "how many took up to each bound, and longer than the bound before it; the last: longer "
            "than all",
        ),
    )


def ref(name: str) -> Schema:
    """One of :data:`SCHEMAS`."""
    return {"$ref": f"#/components/schemas/{name}"}


_NODE_ID = integer(minimum=0)
_LEADER = integer("-1: none", minimum=-1)
_OFFSET = integer("-1: nobody says it", minimum=-1)
_COUNT = integer(minimum=0)
_NEXT = maybe(text("hand it back as 'after' for the next page; null on the last"))
_PARTITION: dict[str, Schema] = {
    "partition": _COUNT,
    "leader": _LEADER,
    "leader_epoch": integer(minimum=-1),
    "replicas": several(_NODE_ID, "the preferred leader first"),
    "isr": several(_NODE_ID, "those in sync"),
    "pinned": maybe(flag("'role set' keeps its leader; null: it is not known")),
    "follower_marks": several(_NODE_ID, "those that 'role set' keeps from leading it"),
    "log_start_offset": _OFFSET,
    "high_watermark": integer("where committed records end; -1: nobody says it", minimum=-1),
    "log_end_offset": _OFFSET,
    "size_bytes": integer("of the leader's log; -1: nobody says it", minimum=-1),
    "segments": integer("files of it; -1: nobody says it", minimum=-1),
    "progress": several(
        record(
            "a replica as the leader sees it",
            node=_NODE_ID,
            in_sync=flag(),
            log_end_offset=_OFFSET,
            acked_offset=integer("how far it is durable there; -1: not known", minimum=-1),
        )
    ),
    "error": maybe(text("why its leader does not tell of it")),
}
_STALE = maybe(text("why what is told may be out of date, or not all; null where it is not"))
_HIDDEN = maybe(text("that those are left out which who asks may not describe; null: he may all"))
_GROUP: dict[str, Schema] = {
    "group": text(),
    "family": text("of which protocol", enum=["v1", "cursus", "coordinator", "kafka"]),
    "subject": text("the topic of a group that there is for each topic (cursus); else empty"),
    "state": text("Empty, PreparingRebalance, CompletingRebalance, Stable, ..."),
}

_TOPICS: dict[str, Schema] = {
    "TopicSummary": record(
        "a topic in a list",
        name=text(),
        topic_id=text(format="uuid"),
        kind=text("log, segment, event-sourcing"),
        partitions=_COUNT,
        replication_factor=_COUNT,
        leaderless=integer("partitions without leader", minimum=0),
        under_replicated=integer("partitions that lack replicas in sync", minimum=0),
    ),
    "Topics": record(
        "as 'topic list'",
        topics=several(ref("TopicSummary")),
        stale=_STALE,
        hidden=_HIDDEN,
        next=_NEXT,
    ),
    "Topic": record(
        "as 'topic describe'",
        name=text(),
        topic_id=text(format="uuid"),
        kind=text("log, segment, event-sourcing"),
        configs=maybe(
            _of(
                "object",
                "what is set for it; null for who may not see that",
                additionalProperties=text(),
            )
        ),
        settings=maybe(
            several(
                record(
                    "a setting that holds for it at the node that answers",
                    name=text(),
                    value=text(),
                    source=text(enum=["topic", "node", "default"]),
                )
            )
        ),
        stale=_STALE,
        partitions=several(ref("Partition")),
        next=_NEXT,
    ),
    "Partition": record("a partition", **_PARTITION),
    "NamedPartition": record("a partition, with its topic", topic=text(), **_PARTITION),
    "Partitions": record(
        "partitions of all topics",
        partitions=several(ref("NamedPartition")),
        stale=_STALE,
        hidden=_HIDDEN,
        next=_NEXT,
    ),
}
_BYTES: Schema = {
    "description": "text, null, or base64 of what is no UTF-8",
    "oneOf": [{"type": ["string", "null"]}, record("", base64=text())],
}
_RECORDS: dict[str, Schema] = {
    "Records": record(
        "committed records of a partition; half a megabyte of them at most, found within a second "
        "or 8 MiB of the log",
        topic=text(),
        partition=_COUNT,
        log_start_offset=_COUNT,
        end=integer("of what is committed", minimum=0),
        next=integer("the offset to go on from", minimum=0),
        records=several(ref("Record")),
    ),
    "Record": record(
        "as 'consume --json', with the first 4096 bytes of key, value and headers",
        topic=text(),
        partition=_COUNT,
        offset=_COUNT,
        timestamp=integer("in ms since 1970; -1: none", minimum=-1),
        key=_BYTES,
        value=_BYTES,
        headers=several(_of("array", "name and value", items=_BYTES)),
        key_bytes=integer("how long it is; -1: null", minimum=-1),
        value_bytes=integer("how long it is; -1: null", minimum=-1),
    ),
}
_GROUPS: dict[str, Schema] = {
    "GroupListing": record(
        "a group in a list", **_GROUP, members=_COUNT, generation=integer(minimum=-1)
    ),
    "Groups": record(
        "as 'group list'",
        groups=several(ref("GroupListing")),
        stale=_STALE,
        hidden=_HIDDEN,
        next=_NEXT,
    ),
    "Group": record(
        "as 'group describe'",
        **_GROUP,
        generation=integer(minimum=-1),
        coordinator=_NODE_ID,
        protocol=text("how its members share the partitions"),
        members=several(ref("Member")),
        partitions=several(ref("GroupProgress")),
        next=_NEXT,
    ),
    "Member": record(
        "a member",
        member=text(),
        instance=maybe(text("of a static member")),
        client=text(),
        host=maybe(text()),
        partitions=integer("how many it reads", minimum=0),
        leader=flag("whether it deals them out"),
        session_timeout_ms=_COUNT,
        silent_ms=_COUNT,
    ),
    "GroupProgress": record(
        "how far the group has read a partition",
        topic=text(),
        partition=_COUNT,
        committed=maybe(integer("the next to be read; null: nothing is committed", minimum=0)),
        end=maybe(integer("its high watermark; null: its leader does not say it", minimum=0)),
        lag=maybe(integer("records between; from the log start where nothing is committed")),
        member=maybe(text("who reads it")),
    ),
}
_TRANSACTIONS: dict[str, Schema] = {
    "Transactions": record(
        "as 'transaction list'", transactions=several(ref("Transaction")), next=_NEXT
    ),
    "Transaction": record(
        "a transactional id, and its present or last transaction",
        id=text(),
        family=text(enum=["kafka", "cursus", "sink"]),
        state=text("empty, ongoing, prepare_commit, ..."),
        open_s=maybe(number("null: none is open")),
        partitions=integer("that it has written to", minimum=0),
        producer_id=integer(),
        epoch=integer(),
    ),
}
_NODES: dict[str, Schema] = {
    "Node": record(
        "a node, as it says itself; null: it is silent, -1: it does not know",
        id=_NODE_ID,
        pid=maybe(integer()),
        listeners=_of("object", "addresses by protocol", additionalProperties=text()),
        state=text("its own word: running, starting, fenced, ...; drained; or unreachable"),
        role=maybe(text(enum=["controller", None])),
        leads=maybe(integer("partitions", minimum=0)),
        hosts=maybe(integer("replicas", minimum=0)),
        software=maybe(text()),
        uptime_ms=maybe(integer(minimum=0)),
        disk_bytes=maybe(integer("of the file system of its data directory", minimum=-1)),
        disk_free_bytes=maybe(integer(minimum=-1)),
        loop_delay_ms=maybe(integer("its longest standstill of the last minute", minimum=-1)),
        reason=maybe(text("why it does not serve, or is silent")),
    ),
    "Nodes": record(
        "all registered nodes",
        cluster_id=text(format="uuid"),
        controller=maybe(_NODE_ID),
        nodes=several(ref("Node")),
    ),
    "Loads": record("all registered nodes", nodes=several(ref("Load"))),
    "Load": record(
        "what a node has done since its process began; null: it is silent",
        node=_NODE_ID,
        uptime_ms=maybe(_COUNT),
        appended_records=maybe(integer("by it as leader", minimum=0)),
        appended_bytes=maybe(_COUNT),
        fetched_records=maybe(integer("by consumers", minimum=0)),
        fetched_bytes=maybe(_COUNT),
        requests=maybe(integer("answered, of all protocols", minimum=0)),
        connections=maybe(integer("of clients, now", minimum=0)),
        client_memory_bytes=maybe(integer("held on behalf of clients, now", minimum=0)),
        writes=maybe(_spread("requests that wrote records, by how long they took")),
        syncs=maybe(_spread("syncs of logs to the disk, by how long they took")),
        reason=maybe(text("why it is silent")),
    ),
    "Quorum": record(
        "as 'quorum describe'",
        leader=maybe(_NODE_ID),
        term=_COUNT,
        voters=several(_NODE_ID),
        learners=several(_NODE_ID),
        nodes=several(ref("QuorumNode")),
    ),
    "QuorumNode": record(
        "a node's part in it; null: it is silent",
        node=_NODE_ID,
        vote=text(enum=["voter", "learner"]),
        role=maybe(text("leader, follower, candidate, learner, ...")),
        term=maybe(_COUNT),
        commit_offset=maybe(integer(minimum=-1)),
        image_offset=maybe(integer(minimum=-1)),
        state=text("as of the node"),
    ),
    "Connections": record(
        "of clients of the node that answers, the oldest first",
        node=_NODE_ID,
        connections=several(ref("Connection")),
        next=_NEXT,
    ),
    "Connection": record(
        "a connection",
        id=integer("never given twice in the life of a process", minimum=1),
        protocol=text("kind of listener"),
        address=text("of the client"),
        principal=maybe(text("as whom it was served last; null: it has asked for nothing yet")),
        encrypted=flag(),
        age_ms=_COUNT,
        held_bytes=integer("of the node's memory, on its behalf", minimum=0),
    ),
    "Tasks": record(
        "of the process of the node that answers",
        node=_NODE_ID,
        loop_delay_ms=integer("the event loop's longest standstill of the last minute", minimum=0),
        tasks=several(ref("Task")),
    ),
    "Task": record(
        "tasks of one name",
        name=text(),
        count=_COUNT,
        long_slices=integer("how often one kept the event loop for over 10 ms", minimum=0),
        longest_slice_ms=number("the longest such of the last minute; 0: there was none"),
    ),
}
_OTHERS: dict[str, Schema] = {
    "Error": record(
        "why there is no answer",
        error=record(
            "",
            code=text("the broker's name of the error, else that of the HTTP status"),
            message=text(),
            hint=maybe(text("what to do")),
        ),
    ),
    "Health": record(
        "as 'paceline health'",
        healthy=maybe(flag("null: it is not known")),
        reasons=several(text(), "why it is not"),
        checks=several(ref("Check"), "those that pass, too"),
        controller=maybe(_NODE_ID),
        ranges=several(ref("LostRange"), "what nodes' disks lost"),
        certificates=several(
            record(
                "how long it is good",
                node=_NODE_ID,
                setting=text("that names its file"),
                until=text(format="date-time"),
            )
        ),
    ),
    "LostRange": record(
        "offsets that a replica lost, and what becomes of them",
        node=_NODE_ID,
        topic=text(),
        partition=_COUNT,
        start=integer(),
        end=integer("-1: not known"),
        state=text(enum=["damaged", "repairing", "incomplete", "given-up"]),
        reason=text(),
    ),
    "Check": record(
        "one of the checks behind 'paceline health'",
        name=text(),
        level=text(enum=["ok", "warning", "critical"]),
        reason=text(),
        what_to_do=text(),
        node=maybe(integer("null: it is about the cluster")),
    ),
    "Readiness": _of(
        "object",
        "whether this node serves",
        properties={
            "ready": flag(),
            "failed": several(text(), "why it does not"),
            "checks": several(ref("Check")),
            "client_memory": record(
                "what clients hold of its memory; not there while it starts",
                held_bytes=_COUNT,
                limit_bytes=_COUNT,
                is_short=flag(),
            ),
            "tls": record(
                "only where it has certificates",
                until=_of("object", "by setting", additionalProperties=text(format="date-time")),
                refused=text("why newer files are not in force"),
            ),
        },
        required=["ready", "failed", "checks"],
    ),
}
SCHEMAS: dict[str, Schema] = {
    **_TOPICS,
    **_RECORDS,
    **_GROUPS,
    **_TRANSACTIONS,
    **_NODES,
    **_OTHERS,
}
