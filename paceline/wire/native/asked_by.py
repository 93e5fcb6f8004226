"""For whom a node asks the controller to change who may do what."""

from __future__ import annotations

from paceline.values import dataclass
from paceline.wire.message import Message


@dataclass(frozen=True, slots=True)
class AskedBy(Message):
    """Nodes add it to the wishes of clients, who cannot say it themselves: the controller, where
    changes come one after the other, judges by it whether it may be.

    ``name`` and ``host``: as ACLs know him. ``is_user``: he has shown what proves a user, and can
    again only as long as there is that user. ``is_super``: he may do everything. ``keep_closed``:
    the node has listeners for those only who log in. ``super_users``: whom its settings name.
    """

    name: str
    host: str
    is_user: bool
    is_super: bool
    keep_closed: bool
    super_users: tuple[str, ...]
