"""Offsets to store, cut into pieces that keep the event loop for a few milliseconds each.

A request may name a thousand partitions, and one of them ten thousand times. Of each partition the
last position counts, as if they had come one after the other. Each piece is a batch of its own:
the coordinator writes and folds it in one step, and every follower folds it in one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from paceline_node.groups.committed_offsets import Commit

PIECE_OFFSETS = 250
PIECE_BYTES = 256 * 1024


def latest(commits: Iterable[Commit]) -> list[Commit]:
    """The last of each partition."""
    return list({(each.topic, each.partition): each for each in commits}.values())


def pieces(commits: Iterable[Commit]) -> Iterator[list[Commit]]:
    """The last of each partition, in pieces; an empty one where there is nothing."""
    piece: list[Commit] = []
    size = 0
    for each in latest(commits):
        if piece and (len(piece) == PIECE_OFFSETS or size >= PIECE_BYTES):
            yield piece
            piece, size = [], 0
        piece.append(each)
        size += len(each.topic) + 4 * len(each.metadata)
    yield piece
