"""Who belongs to the metadata quorum: what its leader changes by itself, and what operators ask.

Every change is one configuration entry of the log, one voter at a time. Rules: RAFT 4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol
from uuid import UUID

import structlog

from paceline.errors import (
    DuplicateBrokerRegistration,
    InvalidRequest,
    NotController,
    Throttled,
)
from paceline.types import NodeId
from paceline_node.controller.raft import Raft
from paceline_node.controller.raft_leader import Leader
from paceline_node.controller.raft_membership import (
    Surroundings,
    plan,
    rival_of,
    wanted_voters,
    with_listener,
    with_voter,
    without,
)
from paceline_node.controller.raft_types import Config, Member, MemberId
from paceline_node.settings.counts import JOINING


class VoterChanges(Protocol):
    """What an operator may ask for, through the active controller. Both return index and term of
    the entry, and raise NotController, or InvalidRequest with the reason; nothing was appended
    then."""

    def add_voter(self, node: NodeId, directory_id: UUID | None) -> tuple[int, int]:
        """Let a member vote that listens so far."""

    def remove_voter(self, node: NodeId, directory_id: UUID | None) -> tuple[int, int]:
        """Let a voter listen only."""


class Membership:
    """The members as one node sees them; only the leader can change them. ``changed`` is called
    after an entry was appended. ``forgetful`` are members that a leader found on an old copy of
    their disks: it tells them everything again, but what they voted for they may have forgotten."""

    def __init__(
        self,
        core: Raft,
        *,
        most_voters: int,
        retired: Callable[[UUID], bool],
        changed: Callable[[], None],
    ) -> None:
        self._core = core
        self._most_voters = most_voters
        self._retired = retired
        self._changed = changed
        self.forgetful: frozenset[MemberId] = frozenset()
        self._joining: dict[NodeId, Member] = {}
        self._log = structlog.get_logger(component="quorum")

    def deposed(self) -> None:
        """This node does not lead: whoever asked to be let in asks again."""
        self._joining.clear()
        self.forgetful = frozenset()

    def admit(self, member: Member) -> None:
        """A node asks to take part (JOIN_CLUSTER), or was seen with another disk than its voter's.

        The leader lets it in as soon as that is safe: a new node listens; a wiped voter is
        replaced when a majority of the other voters is live (RAFT 4.3); an address is updated.
        Call again until the configuration shows the member; a change of leader forgets it. Raises
        NotController, Throttled, and DuplicateBrokerRegistration while the node is there with
        another disk.
        """
        leadership = self._leadership()
        rival = rival_of(self._core.config, member)
        if rival is not None and rival.id in leadership.live():
            raise DuplicateBrokerRegistration(
                f"node {member.node_id} is running with another data directory "
                f"({rival.directory_id}); stop that process first"
            )
        if member.node_id not in self._joining and len(self._joining) >= JOINING.bound:
            raise Throttled(f"{JOINING.bound} nodes are joining already")
        self._joining[member.node_id] = member

    def follow_plan(self) -> None:
        """Propose the next change that the members' state asks for, if there is one."""
        leadership = self._core.leadership
        if leadership is None:
            return
        self._tell_of_forgetful(leadership.forgetful())
        if not leadership.may_change_config():
            return
        config = self._core.config
        for node in [n for n, member in self._joining.items() if member in config.members]:
            del self._joining[node]
        seen = Surroundings(
            leadership.live(),
            leadership.caught_up(),
            self._joining,
            self._most_voters,
            self._retired,
        )
        change = plan(config, seen)
        if change is None:
            return
        try:
            self._core.propose_config(change)
        except (InvalidRequest, NotController):
            return  # not safe now, or leadership is moving: the next round looks again

    def _tell_of_forgetful(self, found: frozenset[MemberId]) -> None:
        for member in sorted(found - self.forgetful):
            self._log.error(
                "a member lacks metadata that it had acknowledged: its disk is an old copy; "
                "format it with --replace",
                member=str(member),
            )
        self.forgetful = found

    # --- by hand ---------------------------------------------------------------------------------

    def add_voter(self, node: NodeId, directory_id: UUID | None) -> tuple[int, int]:
        """Let a member vote that has listened so far and caught up; ``directory_id``, if given,
        must be its disk. Nothing to do for a voter. Raises NotController, InvalidRequest."""
        leadership = self._leadership()
        learner = self._member(node, directory_id)
        if learner.id in self._core.config.voter_ids:
            return self._as_it_is()
        if learner.id not in leadership.caught_up():
            raise InvalidRequest(f"node {node} has not caught up with the metadata log yet")
        return self._propose(with_voter(self._core.config, node))

    def remove_voter(self, node: NodeId, directory_id: UUID | None) -> tuple[int, int]:
        """Let a voter listen only; ``directory_id``, if given, must be its disk. Nothing to do for
        who does: a leader that is asked to remove itself cannot answer, and the next one is asked.

        Raises NotController, and InvalidRequest where it would leave too few live voters, or where
        the quorum would only make it a voter again, to be as many as it should.
        """
        leadership = self._leadership()
        config = self._core.config
        voter = self._member(node, directory_id)
        if voter.id not in config.voter_ids:
            return self._as_it_is()
        change = with_listener(config, node)
        wanted = wanted_voters(len(config.members), most=self._most_voters)
        if voter.id in leadership.live() and len(change.voters) < wanted:
            raise InvalidRequest(
                f"the quorum keeps {wanted} voters, and node {node} is one that runs; add another "
                "voter first"
            )
        return self._propose(change)

    def remove(self, node: NodeId, *, force: bool = False) -> tuple[int, int]:
        """Take a member out. ``force`` skips the check that enough live voters remain, for who
        knows better. Raises NotController, InvalidRequest."""
        return self._propose(without(self._core.config, node), force=force)

    def _leadership(self) -> Leader:
        leadership = self._core.leadership
        if leadership is None:
            raise NotController(f"node {self._core.state.me.node} does not lead the quorum")
        return leadership

    def _member(self, node: NodeId, directory_id: UUID | None) -> Member:
        config = self._core.config
        member = config.voter(node) or config.learner(node)
        if member is None:
            raise InvalidRequest(f"node {node} is no member of the metadata quorum; start it first")
        if directory_id not in (None, member.directory_id):
            raise InvalidRequest(
                f"node {node} is a member with directory {member.directory_id}, not {directory_id}"
            )
        return member

    def _as_it_is(self) -> tuple[int, int]:
        """Where the configuration in force stands; it may not be committed yet."""
        return self._core.log.config_index, self._core.state.term

    def _propose(self, config: Config, *, force: bool = False) -> tuple[int, int]:
        entry = self._core.propose_config(config, force=force)
        self._changed()
        return entry.index, entry.term
