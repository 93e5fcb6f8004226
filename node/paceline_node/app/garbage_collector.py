"""The garbage collector of a node that remembers much.

Nearly all that a node keeps (producers, transactional ids, groups, offsets) is freed by counting
references. Python's collector looks through all of it again each time it has grown by a quarter:
for a quarter of a second at 100,000 transactional ids, in which nothing else happens. So what has
outlived a collection is set aside (``gc.freeze``), and the next one looks at what is newer only,
some ten thousand objects. Cycles among what was set aside are not found then. So that they do not
pile up, everything is looked through once after what is set aside has doubled: a few times in a
node's life. That counts objects. A few of them may hold much. So what holds much ends without
cycles, above all connections (net/DESIGN 6), and whoever sees the process grow nevertheless has
everything looked through, too (``freed_memory.py``).
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Final

_OLDEST: Final = 2
FEW: Final = 1_000_000
"""Objects: up to so many may be added before everything is looked through; 50 ms or so."""


class Aside:
    """Decides when everything is to be looked through. ``count`` counts what is set aside."""

    def __init__(self, count: Callable[[], int], few: int = FEW) -> None:
        self._count = count
        self._few = few
        self._after_all = count()
        self._added = 0
        self._is_looking_through = False

    def may_set_aside(self, survivors: int) -> bool:
        """Whether what survived a collection is to be set aside; if not, all that was must come
        back, so that the next collection looks through everything."""
        if self._is_looking_through:  # that collection has been
            self._is_looking_through = False
            self._after_all, self._added = survivors, 0
            return True
        self._added += survivors
        limit = max(self._few, self._after_all)
        if self._added > limit:  # most may have gone since
            self._added = max(0, self._count() + survivors - self._after_all)
        self._is_looking_through = self._added > limit
        return not self._is_looking_through

    def all_comes_back(self) -> None:
        """The next collection is one of everything."""
        self._is_looking_through = True


class Collector:
    """The collector of this process, from now on and for its life: what there is is set aside, and
    what survives."""

    def __init__(self, few: int = FEW) -> None:
        gc.collect()
        gc.freeze()
        self._aside = Aside(gc.get_freeze_count, few)
        gc.callbacks.append(self._collected)

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase != "stop" or info["generation"] != _OLDEST:
            return
        if self._aside.may_set_aside(len(gc.get_objects(_OLDEST))):
            gc.freeze()
        else:
            gc.unfreeze()

    def look_through(self) -> None:
        """Free every cycle, now; a quarter of a second for a million objects, in which nothing else
        happens."""
        self._aside.all_comes_back()
        gc.unfreeze()
        gc.collect()
