"""Which voters say that they have a newer log (RAFT 2.6)."""

from __future__ import annotations

from paceline_node.controller.raft_messages import RaftMessage, VoteRequest, VoteResponse
from paceline_node.controller.raft_types import MemberId

LogEnd = tuple[int, int]
"""Term and index of the last entry: the newer log has the greater one."""
NO_LOG: LogEnd = (0, 0)


class Claims:
    """Of the last ``keep_ticks``, in which whoever runs has been heard several times."""

    def __init__(self, keep_ticks: int) -> None:
        self._keep_ticks = keep_ticks
        self._own: dict[MemberId, tuple[LogEnd, int]] = {}
        self._heard: dict[MemberId, tuple[LogEnd, int]] = {}

    def note(self, message: RaftMessage, now: int) -> None:
        """Who asks for a vote, or answers, says where its log ends; an answer tells of the newest
        log that its sender has heard of by itself, too."""
        if isinstance(message, VoteRequest | VoteResponse):
            self._own[message.sender] = (message.last_term, message.last_index), now
        if isinstance(message, VoteResponse):
            self._heard[message.sender] = (message.heard_term, message.heard_index), now

    def newest_own(self, now: int, *, besides: MemberId | None = None) -> LogEnd:
        """The newest log of a voter that was heard here. What others have heard is not passed on,
        or two might tell each other for ever of one that has gone."""
        return self._newest(self._own, now, besides)

    def newest(self, now: int) -> LogEnd:
        """The newest log that somebody is known to have."""
        return max(self._newest(self._heard, now, None), self.newest_own(now))

    def _newest(
        self, claims: dict[MemberId, tuple[LogEnd, int]], now: int, besides: MemberId | None
    ) -> LogEnd:
        fresh = [
            log
            for voter, (log, tick) in claims.items()
            if voter != besides and now < tick + self._keep_ticks
        ]
        return max(fresh, default=NO_LOG)
