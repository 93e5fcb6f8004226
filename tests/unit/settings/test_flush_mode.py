"""One enumeration for settings, topics and the incarnation file."""

from __future__ import annotations

import pytest

from paceline_node.settings.flush_mode import FlushMode, weakest


def test_order_of_promises() -> None:
    modes = [FlushMode.of_weakness(number) for number in range(4)]
    assert modes == [FlushMode.BATCH, FlushMode.GROUP, FlushMode.INTERVAL, FlushMode.NONE]
    assert [mode.weakness for mode in modes] == [0, 1, 2, 3], "as incarnation files hold them"
    assert [mode.counts_durable for mode in modes] == [True, True, False, False]
    assert weakest(FlushMode.GROUP, FlushMode.INTERVAL, FlushMode.BATCH) is FlushMode.INTERVAL
    for number in (-1, 4):
        with pytest.raises(ValueError, match="flush mode"):
            FlushMode.of_weakness(number)
