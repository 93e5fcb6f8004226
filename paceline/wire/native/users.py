"""Users and what proves to be them: SCRAM keys and tokens; logging in on a connection.

No password and no token ever travels in these but in ``Authenticate``, and there only as the
mechanism has it: who makes a user derives the keys, who makes a token sends its digest.
"""

from __future__ import annotations

from paceline.values import dataclass
from paceline.wire.message import Message
from paceline.wire.native.asked_by import AskedBy


@dataclass(frozen=True, slots=True)
class ScramKey(Message):
    """What a server keeps of a password for one mechanism (RFC 5802)."""

    mechanism: str
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


@dataclass(frozen=True, slots=True)
class NewToken(Message):
    """A token whose secret has this SHA-256. ``expires_ms``: since 1970, 0 never. ``note``: what it
    is for, to people."""

    token_id: str
    digest: bytes
    expires_ms: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class AlterUser(Message):
    """Make a user (``may_create``), or change the one there is (``may_exist``), all or nothing.

    ``keys`` are set by mechanism, those of the mechanisms ``without`` are removed first; likewise
    ``tokens`` and ``revoked``, the ids of those that go.
    """

    name: str
    may_create: bool
    may_exist: bool
    keys: tuple[ScramKey, ...] = ()
    without: tuple[str, ...] = ()
    tokens: tuple[NewToken, ...] = ()
    revoked: tuple[str, ...] = ()
    asked_by: AskedBy | None = None


@dataclass(frozen=True, slots=True)
class DeleteUser(Message):
    name: str
    asked_by: AskedBy | None = None


@dataclass(frozen=True, slots=True)
class ListUsers(Message):
    """These users, or all."""

    names: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class MechanismInfo(Message):
    mechanism: str
    iterations: int


@dataclass(frozen=True, slots=True)
class TokenInfo(Message):
    token_id: str
    created_ms: int
    expires_ms: int
    note: str


@dataclass(frozen=True, slots=True)
class UserInfo(Message):
    name: str
    mechanisms: tuple[MechanismInfo, ...]
    tokens: tuple[TokenInfo, ...]


@dataclass(frozen=True, slots=True)
class UsersListed(Message):
    """By name; of the users asked for those that there are."""

    users: tuple[UserInfo, ...]


@dataclass(frozen=True, slots=True)
class Authenticate(Message):
    """One message of a SASL exchange; ``mechanism`` empty after the first. Asked again later, it
    begins a new one: who a connection is must be shown again before ``lifetime_ms`` are over."""

    mechanism: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Authenticated(Message):
    """The server's message. ``done``: it is who it says; ``lifetime_ms`` 0: for good."""

    data: bytes
    done: bool
    lifetime_ms: int = 0
