"""Which tasks there are in this process, by name: what a node is busy with, and what leaks.

Connections are called after their protocol, and requests with a task of their own after their kind,
so the names are few.
"""

from __future__ import annotations

from collections import Counter

import trio

from paceline_node.sliced_work import Work

_TASKS_PER_UNIT = 8
_UNINTERESTING = "paceline_node."


def name_of(task: trio.lowlevel.Task) -> str:
    """What it is called for people."""
    return task.name.removeprefix(_UNINTERESTING)


def count_tasks(root: trio.lowlevel.Task | None) -> Work[Counter[str]]:
    """Tasks below ``root`` by name, itself too. Those that begin or end meanwhile may be missing,
    or be counted still."""
    found: Counter[str] = Counter()
    todo = [] if root is None else [root]
    while todo:
        task = todo.pop()
        found[name_of(task)] += 1
        if not found.total() % _TASKS_PER_UNIT:
            yield 1
        for nursery in task.child_nurseries:
            todo.extend(nursery.child_tasks)
    return found
