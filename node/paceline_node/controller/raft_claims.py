"""Which voters say that they have a newer log (RAFT 2.6)."""

from __future__ import annotations

from collections.abc import Collection

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

    def note_own(self, voter: MemberId, log: LogEnd, now: int) -> None:
        """It asked for a vote, or answered: so its own log ends."""
        self._own[voter] = log, now

    def note_heard(self, voter: MemberId, log: LogEnd, now: int) -> None:
        """It told of the newest log that it has heard of by itself."""
        self._heard[voter] = log, now

    def newest_own(self, voters: Collection[MemberId], now: int) -> LogEnd:
        """The newest log of a voter that was heard here. What others have heard is not passed on,
        or two might tell each other for ever of one that has gone."""
        return self._newest(self._own, voters, now)

    def newest(self, voters: Collection[MemberId], now: int) -> LogEnd:
        """The newest log that a voter is known to have."""
        return max(self._newest(self._heard, voters, now), self.newest_own(voters, now))

    def _newest(
        self,
        claims: dict[MemberId, tuple[LogEnd, int]],
        voters: Collection[MemberId],
        now: int,
    ) -> LogEnd:
        fresh = [
            log
            for voter, (log, tick) in claims.items()
            if voter in voters and now < tick + self._keep_ticks
        ]
        return max(fresh, default=NO_LOG)
