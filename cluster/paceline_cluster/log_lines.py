"""A line of a node's log as its facts: when, how grave, what, and with which fields.

Nodes write JSON or, by default, text for people::

    2026-11-26T09:17:58Z [info     ] role changed     isr=[0] partition=__groups/2 role='a b'
"""

from __future__ import annotations

import ast
import json
import os
import re
from pathlib import Path
from typing import Any

_HEAD = re.compile(r"(\S+) \[(\w+) *\] (.*)")
_FIELD = re.compile(r"(?:^| +)([a-zA-Z_]\w*)=")
_CLOSING = {"[": "]", "(": ")", "{": "}"}
_GRAVE = ("warning", "error", "critical")
_NEAR_THE_END = 64 * 1024
_LAST_WORDS = "paceline-node: "
"""How what begins that a node prints before it ends with an exit code of its own."""


def parsed(line: str) -> dict[str, Any]:
    """``time``, ``level``, ``event`` and ``fields``; only ``line`` where it is none of a node's own
    (a traceback, what a library printed)."""
    if line.startswith("{"):
        return _of_json(line)
    head = _HEAD.fullmatch(line)
    if head is None:
        return {"line": line}
    first = _FIELD.search(head[3])
    event = head[3] if first is None else head[3][: first.start()]
    fields = "" if first is None else head[3][first.start() :]
    return {
        "time": head[1],
        "level": head[2],
        "event": event.rstrip(),
        "fields": _fields(fields),
    }


def last_complaint(path: Path) -> str:
    """What a node's log says last, and when, that is no mere information; empty where its last
    64 KiB hold nothing of the kind."""
    for line in reversed(_last_lines(path)):
        entry = parsed(line)
        if entry.get("level") in _GRAVE:
            why = entry["fields"].get("reason") or entry["fields"].get("error")
            return f"{entry['time']} {entry['event']}" + (f": {why}" if why else "")
    return ""


def last_words(path: Path) -> str:
    """Why a node that is gone ended, as its log has it: what it printed at its very end, else its
    last complaint."""
    printed: list[str] = []
    for line in reversed(_last_lines(path)):
        if "time" in parsed(line):
            break
        printed.insert(0, line.removeprefix(_LAST_WORDS).strip())
        if line.startswith(_LAST_WORDS):
            return " ".join(printed)
    return last_complaint(path)


def _last_lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _NEAR_THE_END))
            return file.read().decode("utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _of_json(line: str) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except ValueError:
        return {"line": line}
    known = {name: data.pop(key, None) for name, key in _KEYS.items()}
    return {**known, "fields": data}


_KEYS = {"time": "timestamp", "level": "level", "event": "event"}


def _fields(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    at = 0
    while (name := _FIELD.match(text, at)) is not None:
        at = _end_of_value(text, name.end())
        found[name[1]] = _value(text[name.end() : at])
    return found


def _end_of_value(text: str, start: int) -> int:
    """Where a value ends that is a word, a quoted text, or brackets around such."""
    closing: list[str] = []
    at = start
    while at < len(text):
        character = text[at]
        if character in "'\"":
            at = _end_of_quote(text, at)
            continue
        if character in _CLOSING:
            closing.append(_CLOSING[character])
        elif closing and character == closing[-1]:
            closing.pop()
        elif character == " " and not closing:
            break
        at += 1
    return at


def _end_of_quote(text: str, start: int) -> int:
    at = start + 1
    while at < len(text) and text[at] != text[start]:
        at += 2 if text[at] == "\\" else 1
    return at + 1


def _value(text: str) -> Any:
    """Numbers, texts, lists and the like as JSON can hold them, anything else as it is written."""
    try:
        value = ast.literal_eval(text)
        json.dumps(value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text
    return value
