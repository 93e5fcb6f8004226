"""The proof itself is tested: each way of losing, doubling or reordering is noticed."""

import json
from pathlib import Path

import pytest

from tests.e2e.acked import Acked, Problems, check, read_acked

SOURCE = [("a", "1"), ("b", "2"), ("a", "3"), ("b", "4")]
ACKED = [Acked(1, 0, 0, 5), Acked(2, 1, 0, 5), Acked(3, 0, 1, 6)]
READ = [(0, 0, "a", "1"), (1, 0, "b", "2"), (0, 1, "a", "3")]


def test_all_well() -> None:
    check(SOURCE, ACKED, READ)


def test_unacknowledged_lines_may_be_there() -> None:
    check(SOURCE, ACKED, [*READ, (1, 1, "b", "4")])


@pytest.mark.parametrize(
    ("read", "problem"),
    [
        (READ[:2], "acknowledged but not read"),
        ([*READ, (0, 2, "a", "3")], "read twice"),
        ([(0, 0, "a", "3"), (0, 1, "a", "1"), READ[1]], "out of order in its key"),
        ([READ[0], READ[1], (1, 1, "a", "3")], "key in two partitions"),
        ([READ[0], READ[1], (0, 5, "a", "3")], "at another place"),
        ([*READ, (0, 2, "a", "9")], "never written"),
        ([*READ, (0, 2, "a", "4")], "never written"),
        ([READ[1], (0, 1, "a", "1"), (0, 1, "a", "3")], "offsets do not grow"),
    ],
)
def test_each_anomaly_is_found(read: list[tuple[int, int, str, str]], problem: str) -> None:
    with pytest.raises(Problems, match=problem):
        check(SOURCE, ACKED, read)


def test_line_acknowledged_twice_is_found() -> None:
    with pytest.raises(Problems, match="acknowledged twice"):
        check(SOURCE, [*ACKED, ACKED[0]], READ)


def test_cut_last_line_is_left_out(tmp_path: Path) -> None:
    line = json.dumps({"line": 1, "partition": 0, "offset": 0, "leader_epoch": 5, "key": "a"})
    path = tmp_path / "acked"
    path.write_text(line + "\n" + line[:20])
    assert read_acked(path) == [Acked(1, 0, 0, 5)]
