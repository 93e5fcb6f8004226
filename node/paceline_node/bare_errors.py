"""Errors that are kept, not raised any further at once.

An error's traceback refers to the frames that it came through, and they to all that was at work.
Where one of them keeps the error that is a cycle, which the garbage collector may not find for long
(``app/garbage_collector.py``). So who keeps an error keeps it bare; who raises one that a variable
holds lets go of the variable (``try: raise error`` ... ``finally: del error``). No error is made
once and raised again and again: each time adds to its traceback.
"""

from __future__ import annotations

from typing import TypeVar

E = TypeVar("E", bound=BaseException)


def bare(error: E) -> E:
    """``error``, without what it came through."""
    error.__traceback__ = error.__context__ = error.__cause__ = None
    return error
