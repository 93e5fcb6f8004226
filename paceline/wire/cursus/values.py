"""Values that many commands share: names, partitions, generations, lists of offsets."""

from __future__ import annotations

import re

from paceline.types import is_internal_topic, is_valid_topic_name
from paceline.wire.cursus.arguments import Arguments
from paceline.wire.cursus.errors import CursusError, invalid, quoted
from paceline.wire.cursus.requests import Credentials, TransactionFence

TRANSACTIONAL_ID = ("transactional_id", "txn", "transaction")
PRODUCER_ID = ("producerId", "producer_id")
_MAX_NAME_BYTES = 255
_MAX_PATTERN = 256
_WILDCARDS = re.compile(r"[*?]")
_OFFSET_ENTRY = re.compile(r"(P?)([0-9]{1,9}):([0-9]{1,18})\Z")
_CONTROL = re.compile("[\x00-\x1f\x7f]")


def topic_name(args: Arguments, *, pattern: bool = False) -> str:
    """A topic's name; with ``pattern``, wildcards are allowed. The broker's own topics are refused
    like names that cannot be (DESIGN 3.3)."""
    name = args.required("topic")
    plain = _WILDCARDS.sub("x", name) if pattern and len(name) <= _MAX_PATTERN else name
    if not is_valid_topic_name(plain) or is_internal_topic(name):
        reason = "expected 1 to 249 of A-Z a-z 0-9 . _ -, not . or .., not beginning with __"
        raise CursusError("invalid_topic_name", f"topic={quoted(name)} reason={quoted(reason)}")
    return name


def name_of(args: Arguments, *names: str, field: str | None = None) -> str:
    """A group's, member's or transaction's name: 1 to 255 bytes without control characters."""
    word = field or names[0]
    value = args.required(*names, field=word)
    if len(value.encode()) > _MAX_NAME_BYTES or _CONTROL.search(value):
        raise invalid(word, args.command, "expected 1 to 255 bytes without control characters")
    return value


def partition_of(args: Arguments, *, default: int | None = None, low: int = 0) -> int:
    text = args.text("partition")
    if text and not re.fullmatch(r"-?[0-9]{1,10}", text):
        raise CursusError("invalid_partition", f"command={args.command}")
    partition = args.integer("partition", default=default, low=-(2**31))
    if partition < low or partition >= 2**31:
        raise CursusError("invalid_partition", f"command={args.command}")
    return partition


def generation_of(args: Arguments) -> int:
    return args.integer("generation")


def optional_generation(args: Arguments) -> int | None:
    """Clients that are in no group send -1 or 0."""
    generation = args.optional_integer("generation", low=-1)
    return generation if generation is not None and generation >= 1 else None


def offsets_of(args: Arguments) -> tuple[tuple[int, int], ...]:
    text = args.text("offsets")
    if not text:
        raise CursusError("no_valid_offsets", f"command={args.command}")
    found: dict[int, int] = {}
    for entry in text.split(","):
        match = _OFFSET_ENTRY.match(entry)
        if match is None or not (match[1] or args.positional):
            raise CursusError("invalid_batch_commit_entry", f"entry={quoted(entry[:64])}")
        partition = int(match[2])
        if partition in found:
            group, topic = args.text("group"), args.text("topic")
            raise CursusError(
                "duplicate_partition", f"partition={partition} group={group} topic={topic}"
            )
        found[partition] = int(match[3])
    return tuple(found.items())


def fence_of(args: Arguments) -> TransactionFence:
    return TransactionFence(
        name_of(args, *TRANSACTIONAL_ID),
        name_of(args, *PRODUCER_ID),
        args.integer("epoch"),
    )


def credentials_of(args: Arguments) -> Credentials | None:
    """What a command says about who sends it."""
    if not args.has("principal"):
        return None
    return Credentials(args.text("principal"), args.text("auth_token", "token"))
