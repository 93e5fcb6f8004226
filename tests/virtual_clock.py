"""A trio run on a clock that jumps whenever all tasks wait, for ``pytest.mark.trio(run=...)``."""

from __future__ import annotations

from typing import Any

import trio
from trio.testing import MockClock


def run(*what: Any, clock: trio.abc.Clock | None = None, **more: Any) -> Any:
    return trio.run(*what, clock=clock or MockClock(autojump_threshold=0), **more)
