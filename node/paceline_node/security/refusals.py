"""What to do about a refusal: who lacks which right, and the command that gives it.

Nodes and clients refuse in one form, ``WHO may not OPERATION KIND NAME`` (``principals.py``).
Whoever is known lacks a right, and is not told to log in.
"""

from __future__ import annotations

import re
import shlex

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
    if written and (operation, kind) == ("describe", "topic"):
        operation = "produce"
    return _allow(who, operation, kind, name)


def _allow(who: str, operation: str, kind: str, name: str) -> str:
    right, others = _right(operation, kind), ""
    if operation == "describe" and name and kind in _WIDER:
        right, others = _WIDER[kind]
    option = _OPTIONS.get(kind)
    what = "--cluster" if option is None else f"{option} {shlex.quote(name or '*')}"
    principal = "NAME" if who.startswith("the owner of ") else shlex.quote(who)
    command = f"paceline acl create --principal {principal} --operation {right} {what}"
    also = f" ({others})" if others else ""
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
