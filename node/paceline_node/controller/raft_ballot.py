"""What the voters answered to a campaign, and whether that is enough (RAFT 2.3, 2.6). Pure."""

from __future__ import annotations

from collections.abc import Collection

from paceline_node.controller.raft_messages import Grant
from paceline_node.controller.raft_progress import has_majority
from paceline_node.controller.raft_types import MemberId


class Ballot:
    """The newest answer of each voter, the candidate's own included."""

    def __init__(self) -> None:
        self._answers: dict[MemberId, Grant] = {}
        self._before: dict[MemberId, Grant] = {}
        self._enough_at: int | None = None

    def begin(self, *, after_pre_votes: bool) -> None:
        """Nobody has answered yet; what was answered to pre-votes says whose votes will count."""
        self._before = self._answers if after_pre_votes else {}
        self._answers = {}
        self._enough_at = None

    def note(self, voter: MemberId, grant: Grant) -> None:
        self._answers[voter] = grant

    def unanswered(self, voters: Collection[MemberId]) -> list[MemberId]:
        """Whom to ask, in order: the silent ones, and who will soon not ask for patience."""
        waits = (None, Grant.WAITS)
        return sorted(voter for voter in voters if self._answers.get(voter) in waits)

    def is_refused(self, voters: Collection[MemberId]) -> bool:
        """Whether it can not be won any more."""
        return has_majority(self._who(Grant.REFUSED), voters)

    def has_majority(self, voters: Collection[MemberId]) -> bool:
        """Whether a majority grants it, patient or not."""
        return has_majority(self._who(Grant.SURE, Grant.UNSURE, Grant.WAITS), voters)

    def has_ripened(self, voters: Collection[MemberId], now: int, wait: int) -> bool:
        """Whether to go on from pre-votes to an election, at tick ``now``: at once where nobody can
        know more; else whoever does has had ``wait`` ticks to ask by itself, since it is enough."""
        if self.knows_every_term(voters):
            return True
        if not self.is_enough(voters):
            self._enough_at = None
            return False
        if self._enough_at is None:
            self._enough_at = now
        return now >= self._enough_at + wait

    def is_enough(self, voters: Collection[MemberId]) -> bool:
        """Whether a majority grants it without those whose disk may have gone back in time just
        now; or everybody does, and nobody is left to know more."""
        certain = has_majority(self._who(Grant.SURE, Grant.UNSURE), voters)
        return certain or self._is_unanimous(voters)

    def knows_every_term(self, voters: Collection[MemberId]) -> bool:
        """Whether no term can have been given out that those who grant it have not seen."""
        return has_majority(self._who(Grant.SURE), voters) or self._is_unanimous(voters)

    def is_won(self, voters: Collection[MemberId]) -> bool:
        """Whether a majority votes for it; not counting whose process has started since its
        pre-vote, or had not been asked for one: they may have forgotten what they knew."""
        counted = [
            voter
            for voter, grant in self._answers.items()
            if Grant.REFUSED < grant <= self._before.get(voter, Grant.SURE)
        ]
        return has_majority(counted, voters)

    def _is_unanimous(self, voters: Collection[MemberId]) -> bool:
        return set(voters) <= set(self._who(Grant.SURE, Grant.UNSURE, Grant.WAITS))

    def _who(self, *grants: Grant) -> list[MemberId]:
        return [voter for voter, grant in self._answers.items() if grant in grants]
