"""What to do about a refusal: who lacks which right, and the command that gives it.

Nodes and clients refuse in one form, ``WHO may not OPERATION KIND NAME`` (``principals.py``).
Whoever is known lacks a right, and is not told to log in.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from paceline_node.security.acls import needed
from paceline_node.security.principals import ANONYMOUS, Operation, ResourceKind

_MAY_NOT = " may not "
_OF_A_RESOURCE = re.compile(r"([a-z-]+) (topic|group|transaction|cluster)\b ?(.*)")
_OF_AN_ID = "get a producer id"
_OPTIONS = {"topic": "--topic", "group": "--group", "transaction": "--transactional-id"}
_WIDER = {
    "topic": ("read", "'--operation write' to write; 'describe' only shows it"),
    "group": ("read", "'--operation describe' only shows it"),
    "transaction": ("write", "'--operation describe' only shows it"),
}
"""Of what may not even be seen: the right that is meant as a rule, and the others."""


def what_to_do(refusal: str, *, log_in: str, written: str = "") -> str:
    """The next step after a refusal, by its sentence. ``log_in``: how one says there who he is.
    ``written``: the topic that was to be, where that is known."""
    before, is_refusal, asked = refusal.partition(_MAY_NOT)
    who = before.rpartition(": ")[2]
    if not is_refusal:
        return log_in
    if who == ANONYMOUS.name:
        return f"{log_in}, as somebody who may"
    if asked.startswith(_OF_AN_ID):
        return _allow(who, "produce", "topic", written or "NAME")
    found = _OF_A_RESOURCE.fullmatch(asked)
    if found is None:
        return "'paceline acl create' says who may do what"
    operation, kind, name = found.groups()
    if written and kind == "topic" and operation in ("create", "describe"):
        # Who may not see it does not know whether it is there.
        made = ", and 'create' only while there is none" if operation == "describe" else ""
        command = _command(who, ("write", "create"), [(kind, name)])
        return _allowed_by(command, f"'write' is to write it{made}")
    return _allow(who, operation, kind, name)


def what_all_takes(refusal: str, needed: Sequence[tuple[str, str]]) -> str:
    """The command that allows to read all of these (kind, name), of whom one was refused; empty
    where somebody has to log in first."""
    before, _, _ = refusal.partition(_MAY_NOT)
    who = before.rpartition(": ")[2]
    if who == ANONYMOUS.name or _MAY_NOT not in refusal:
        return ""
    return _allowed_by(_command(who, ("read",), needed), "all that this takes")


def _allow(who: str, operation: str, kind: str, name: str) -> str:
    right, others = _right(operation, kind), ""
    if operation == "describe" and name and kind in _WIDER:
        right, others = _WIDER[kind]
    return _allowed_by(_command(who, (right,), [(kind, name)]), others)


def _command(who: str, rights: Sequence[str], of: Sequence[tuple[str, str]]) -> str:
    principal = "NAME" if who.startswith("the owner of ") else shlex.quote(who)
    operations = " ".join(f"--operation {right}" for right in rights)
    resources = " ".join(
        f"{_OPTIONS[kind]} {shlex.quote(name or '*')}" if kind in _OPTIONS else "--cluster"
        for kind, name in of
    )
    return f"paceline acl create --principal {principal} {operations} {resources}"


def _allowed_by(command: str, note: str) -> str:
    also = f" ({note})" if note else ""
    return (
        f"an administrator allows it: {command}{also}; "
        "what is denied stays so ('paceline acl list')"
    )


def _right(operation: str, kind: str) -> str:
    """What ACLs call it."""
    of_kind = ResourceKind(kind)
    for each in Operation:
        if each.label == operation and of_kind in each.kinds:
            return needed(each, of_kind).operation.name.lower().replace("_", "-")
    return operation
