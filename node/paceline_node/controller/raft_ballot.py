"""What the voters answered to a campaign, and whether that is enough (RAFT 2.3, 2.6)."""

from __future__ import annotations

from collections.abc import Callable, Collection

from paceline_node.controller.raft_messages import Grant
from paceline_node.controller.raft_progress import has_majority
from paceline_node.controller.raft_types import Config, MemberId

_SURE = frozenset({Grant.SURE})
_LATE = frozenset({Grant.SURE, Grant.UNSURE})
_ANY = frozenset({Grant.SURE, Grant.UNSURE, Grant.WAITS})


class Ballot:
    """The newest answer of each voter, the candidate's own included. ``wall_ms`` is a clock that
    goes on while this process is stopped; what was answered longer than ``fresh_ms`` ago may not be
    so any more, which matters where everybody's word is needed."""

    def __init__(self, wall_ms: Callable[[], int], fresh_ms: int) -> None:
        self._wall_ms = wall_ms
        self._fresh_ms = fresh_ms
        self._answers: dict[MemberId, tuple[Grant, int]] = {}
        self._lives: dict[MemberId, int] = {}
        self._enough_at: int | None = None
        self._counted = _SURE

    def begin(self, config: Config, *, after_pre_votes: bool) -> None:
        """Nobody has answered yet; what the pre-votes rested on says whose votes will count."""
        self._counted = _SURE
        if after_pre_votes and not self._is_majority(config, _SURE):
            self._counted = _LATE if self._is_majority(config, _LATE) else _ANY
        self._answers = {}
        self._lives = {}
        self._enough_at = None

    def note(self, voter: MemberId, grant: Grant, life: int) -> None:
        """An answer of this process of the voter."""
        self._answers[voter] = grant, self._wall_ms()
        self._lives[voter] = life

    def to_ask(self, config: Config) -> list[MemberId]:
        """Whom to ask, in order: the silent ones, and while somebody is not sure all others again,
        for their answers grow old."""
        everybody = sorted(_everybody(config))
        if self._who(frozenset({Grant.UNSURE, Grant.WAITS})):
            return everybody
        return [member for member in everybody if member not in self._answers]

    def is_refused(self, config: Config) -> bool:
        """Whether it can not be won any more."""
        return self._is_majority(config, frozenset({Grant.REFUSED}))

    def has_majority(self, config: Config) -> bool:
        """Whether a majority grants it, patient or not."""
        return self._is_majority(config, _ANY)

    def has_ripened(self, config: Config, now: int, wait: int, *, is_newest: bool) -> bool:
        """Whether to go on from pre-votes to an election, at tick ``now``: at once where nobody can
        know more; else whoever does has had ``wait`` ticks to ask by itself, since it is enough,
        and nobody who is heard has a newer log."""
        if self.knows_every_term(config):
            return True
        if not is_newest or not self._is_majority(config, _LATE):
            self._enough_at = None
            return False
        if self._enough_at is None:
            self._enough_at = now
        return now >= self._enough_at + wait

    def knows_every_term(self, config: Config) -> bool:
        """Whether no term can have been given out that those who grant it have not seen: a majority
        is sure, or everybody grants it, just now."""
        return self._is_majority(config, _SURE) or self._is_unanimous(config)

    def waited_with(self) -> dict[MemberId, int]:
        """Where the election rests on voters that are not sure, and has waited for all others: the
        processes that voted. Else none."""
        if self._counted is not _LATE:
            return {}
        return {voter: self._lives[voter] for voter in self._who(_LATE)}

    def is_won(self, config: Config) -> bool:
        """Whether a majority votes for it, as sure as the pre-votes were at least: who is less so
        may have forgotten what it knew, and for whom it voted."""
        return self._is_majority(config, self._counted)

    def _is_unanimous(self, config: Config) -> bool:
        since = self._wall_ms() - self._fresh_ms
        fresh = {
            voter for voter, (grant, at) in self._answers.items() if grant in _ANY and at >= since
        }
        return _everybody(config) <= fresh

    def _is_majority(self, config: Config, grants: Collection[Grant]) -> bool:
        return has_majority(self._who(grants), config.voter_ids)

    def _who(self, grants: Collection[Grant]) -> list[MemberId]:
        return [voter for voter, (grant, _) in self._answers.items() if grant in grants]


def _everybody(config: Config) -> frozenset[MemberId]:
    """Who may know more. A lone voter could ask nobody, and two would be all of them; but a disk
    may be from before others voted, and these listened then."""
    voters = frozenset(config.voter_ids)
    return voters if len(voters) > 2 else frozenset(config.member_ids) | voters
