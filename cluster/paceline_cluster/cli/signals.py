"""Ctrl-C and SIGTERM as an orderly end of what reads or writes records."""

from __future__ import annotations

import signal
from collections.abc import Callable

import trio


async def on_signals(first: Callable[[], None], again: Callable[[], None]) -> None:
    """Call ``first`` at SIGINT or SIGTERM, ``again`` at the next ones. Never returns; cancelled, it
    leaves signals as they were."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        act = first
        async for _ in signals:
            act()
            act = again
