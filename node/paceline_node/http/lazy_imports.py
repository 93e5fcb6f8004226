"""Modules that most nodes never need are loaded when the first client asks for what they do."""

from __future__ import annotations

import importlib
import sys

import trio


async def load(name: str) -> None:
    """Import a module in a thread, for it takes long enough to be felt, and the loop must not
    stand still. Importing it by statement afterwards costs nothing."""
    if name not in sys.modules:
        await trio.to_thread.run_sync(importlib.import_module, name)
