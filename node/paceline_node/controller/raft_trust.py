"""Whether a member's disk may have forgotten a newer leader than the one it follows (RAFT 2.9)."""

from __future__ import annotations

from paceline_node.controller.raft_messages import AppendResponse, Grant


class Trust:
    """In one member, in one leadership. What its process may have forgotten was promised before it
    started. So its leader asks the others once more, in a round that begins after the first answer
    of this process: if enough of them still follow, then nobody led in a newer term before it
    started. What the member had promised, it had promised to this leader or to earlier ones then,
    and it has all of that again once it has what this leader had at the end of the round."""

    def __init__(self, elected_with: int = 0) -> None:
        """``elected_with``: the process of it that the election rested on, after it had waited for
        all who could know more: such a one is as good as sure. 0: none."""
        self._elected_with = elected_with
        self._life = 0
        self._is_first = False
        self._word = Grant.WAITS
        self._round: int | None = None
        self._needs: int | None = None
        self._has = 0
        self._is_told = False

    def note(self, answer: AppendResponse) -> None:
        """An answer came."""
        if answer.life != self._life:
            self._is_first = self._life == 0
            self._life = answer.life
            self._round = self._needs = None
            self._has = 0
            self._is_told = False
        self._word = answer.word
        if answer.ok:
            self._has = max(self._has, answer.match)

    def needs_round(self) -> bool:
        """Whether a round is to be begun for it."""
        return self._round is None and not (self._word is Grant.SURE and self._is_first)

    def begin(self, round_: int) -> None:
        """This round begins now."""
        self._round = round_

    def is_open(self) -> bool:
        """Whether it waits for a round."""
        return self._round is not None and self._needs is None

    def confirmed(self, round_: int, last_index: int) -> None:
        """This round was answered by enough; the leader's log ends there."""
        if self._needs is None and self._round is not None and self._round <= round_:
            self._needs = last_index

    def counts(self) -> bool:
        """Whether its word is as good as anybody's."""
        return self._is_sure_by_itself() or self._is_confirmed()

    def would_be_elected_with(self) -> bool:
        """Whether an election may rest on it, though it may have to wait for others a little."""
        return self.counts() or self._word is Grant.UNSURE

    @property
    def is_sure(self) -> bool:
        """Whether it says so itself: in a hand-over only such votes count."""
        return self._word is Grant.SURE

    def has_news(self) -> bool:
        """Whether this process does not know yet that it may be sure."""
        return not self._is_told and self._may_be_sure()

    def tell(self) -> int:
        """The process to tell now that it may be sure; 0: none."""
        if not self._may_be_sure():
            return 0
        self._is_told = True
        return self._life

    def _may_be_sure(self) -> bool:
        return self._word is not Grant.SURE and self._is_confirmed()

    def _is_sure_by_itself(self) -> bool:
        """Some leader told it, or the election took it for good enough. Not where this leader had
        heard of another process before: nobody but this one could have told the new one, so it is
        an answer of an earlier one, that was long under way."""
        if self._word is Grant.UNSURE:
            return self._life == self._elected_with
        return self._word is Grant.SURE and self._is_first

    def _is_confirmed(self) -> bool:
        return self._needs is not None and self._has >= self._needs
