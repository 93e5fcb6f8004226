"""Tests marked ``virtual_time`` run on a clock that jumps whenever all tasks wait.

Their nodes are in memory (``node/machines.py``): real sockets and threads would not be waited for.
``virtual_time(False)`` is for a test that needs those, in a file of others.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests import virtual_clock


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    for item in items:
        mark = item.get_closest_marker("virtual_time")
        if mark is not None and mark.args != (False,) and item.get_closest_marker("trio"):
            # In front of the mark that pytest-trio has set meanwhile: the first one counts.
            item.add_marker(pytest.mark.trio(run=virtual_clock.run), append=False)
