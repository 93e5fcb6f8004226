"""The highest leader epochs of names whose topics are gone (DESIGN 9.6).

Clients believe no leader of an older epoch than they know of a partition of that name; so what is
made anew under a name begins above all that the name had.
"""

from __future__ import annotations

from collections.abc import Mapping

from paceline.types import LeaderEpoch

MAX_NAMES = 1_000


def remembered(
    known: Mapping[str, LeaderEpoch], name: str, epoch: LeaderEpoch
) -> dict[str, LeaderEpoch]:
    """``known`` with a name whose topic was removed just now. The one that went first comes first,
    and is forgotten where there are too many."""
    epochs = without(known, name)
    epochs[name] = epoch
    while len(epochs) > MAX_NAMES:
        del epochs[next(iter(epochs))]
    return epochs


def without(known: Mapping[str, LeaderEpoch], name: str) -> dict[str, LeaderEpoch]:
    """``known`` without a name that a topic has now, which remembers for itself."""
    return {each: epoch for each, epoch in known.items() if each != name}
