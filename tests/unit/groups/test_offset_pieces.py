"""Offsets to store, cut into pieces."""

from __future__ import annotations

from paceline_node.groups.committed_offsets import Commit
from paceline_node.groups.offset_pieces import PIECE_BYTES, PIECE_OFFSETS, latest, pieces


def test_of_each_partition_the_last_counts() -> None:
    said = [Commit("t", 0, 1), Commit("t", 1, 2), Commit("u", 0, 3), Commit("t", 0, 4)]
    assert latest(said) == [Commit("t", 0, 4), Commit("t", 1, 2), Commit("u", 0, 3)]
    [piece] = pieces([Commit("t", 0, at) for at in range(30_000)])
    assert piece == [Commit("t", 0, 29_999)]


def test_nothing_is_one_piece_since_it_is_checked_too() -> None:
    assert list(pieces([])) == [[]]


def test_a_piece_has_only_so_many_offsets() -> None:
    said = [Commit("t", at, at) for at in range(2 * PIECE_OFFSETS + 1)]
    found = list(pieces(said))
    assert [len(each) for each in found] == [PIECE_OFFSETS, PIECE_OFFSETS, 1]
    assert [each for piece in found for each in piece] == said


def test_a_piece_has_only_so_many_bytes() -> None:
    said = [Commit("t", at, at, metadata="x" * 4096) for at in range(PIECE_OFFSETS)]
    found = list(pieces(said))
    assert [each for piece in found for each in piece] == said
    assert max(map(len, found)) * 4096 <= PIECE_BYTES
