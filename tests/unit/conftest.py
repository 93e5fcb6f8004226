"""``autojump_clock`` counts where only a fixture of a test asks for it, too.

pytest-trio looks for a clock among a test's own arguments alone: a node in memory, whose fixture
asked for the clock, would wait for real time.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests import virtual_clock


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    for item in items:
        if "autojump_clock" in getattr(item, "fixturenames", ()) and item.get_closest_marker(
            "trio"
        ):
            # In front of the mark that pytest-trio has set meanwhile: the first one counts.
            item.add_marker(pytest.mark.trio(run=virtual_clock.run), append=False)
