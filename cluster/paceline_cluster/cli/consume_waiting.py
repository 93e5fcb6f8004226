"""Says what ``consume`` waits for when it is to end somewhere, and cannot go on there.

A partition without a leader is waited for, however long that takes: who reads to an end wants all
that lies before it. In silence that looks as if the command hung.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import trio

from paceline.client import Client
from paceline.errors import PacelineError, UnknownTopicOrPartition

QUIET_S = 1.0
"""After so long without records leaders are asked whether they are there."""
_LOOK_S = 0.25
_ANSWER_S = 5.0
_NAMED = 5


class Waiting:
    """``topics`` are read, or only these ``partitions`` of one of them. ``say`` is told once what
    is waited for, and once that it goes on."""

    def __init__(
        self,
        client: Client,
        topics: Sequence[str],
        partitions: Collection[int],
        say: Callable[[str], None],
    ) -> None:
        self._client = client
        self._topics = topics
        self._partitions = partitions
        self._say = say
        self._heard = trio.current_time()
        self._is_told = False

    def records_came(self) -> None:
        """Some partition is read at this moment."""
        self._heard = trio.current_time()

    def over(self) -> None:
        """All that was waited for is there."""
        self.records_came()
        if self._is_told:
            self._is_told = False
            self._say("reading goes on")

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await trio.sleep(_LOOK_S)
            if trio.current_time() - self._heard < QUIET_S:
                continue
            lacking = await self._lacking()
            if not lacking:
                self.over()
            elif not self._is_told and trio.current_time() - self._heard >= QUIET_S:
                self._is_told = True
                self._say(f"waiting for {lacking}; 'paceline health' says what is wrong")

    async def _lacking(self) -> str:
        """The partitions of which no leader answers, and why; empty where all do."""
        silent: list[str] = []
        with trio.move_on_after(_ANSWER_S) as patience:
            try:
                for topic in self._topics:
                    found = await self._client.admin.describe_topic(topic, timeout_s=0)
                    silent += [
                        f"{topic}/{each.partition} ({each.message or 'it has no leader'})"
                        for each in found.partitions
                        if (each.error or each.message)
                        and (not self._partitions or each.partition in self._partitions)
                    ]
            except PacelineError as error:
                # What waiting does not help, as of a topic that is not there, reading says itself.
                is_awaited = error.retriable and not isinstance(error, UnknownTopicOrPartition)
                return f"the cluster ({error})" if is_awaited else ""
        if patience.cancelled_caught:
            return f"a leader that does not answer, of {', '.join(self._topics[:_NAMED])}"
        more = f" and {len(silent) - _NAMED} more" if len(silent) > _NAMED else ""
        return f"{', '.join(silent[:_NAMED])}{more}"
