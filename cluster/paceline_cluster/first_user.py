"""The user that a cluster is made with, so that it is never open: not even while it starts."""

from __future__ import annotations

import secrets
from dataclasses import field

from paceline.errors import UnacceptableCredential
from paceline.values import dataclass
from paceline_cluster.errors import BadSetting
from paceline_node.controller.metadata_records import User
from paceline_node.controller.users import check_name

PASSWORD_FILE = "admin.password"  # noqa: S105  a file's name
_PASSWORD_BYTES = 24


@dataclass(frozen=True, slots=True)
class FirstUser:
    """An administrator. ``is_drawn``: nobody knows the password yet but whoever makes the
    cluster, so it is left in its directory."""

    name: str
    password: str = field(repr=False)
    is_drawn: bool = False

    def __post_init__(self) -> None:
        try:
            check_name(self.name)
        except UnacceptableCredential as error:
            raise BadSetting(str(error)) from None

    def record(self) -> User:
        """What the cluster keeps of it. Takes a while: the password is made slow to guess."""
        # The client takes its time to load, and few clusters are made with a user.
        from paceline.client.user_admin import derive_keys

        return User(self.name, keys=derive_keys(self.password))


def drawn(name: str) -> FirstUser:
    """One with a password that nobody guesses."""
    return FirstUser(name, secrets.token_urlsafe(_PASSWORD_BYTES), is_drawn=True)
