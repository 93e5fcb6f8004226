"""Users and what proves to be them: SCRAM keys and digests of tokens (DESIGN 15).

A user's record holds all of it, as a partition's does, so one that was applied twice changes
nothing. Nothing in it lets anybody log in: neither a password nor a token can be made of it.
"""

from __future__ import annotations

from dataclasses import replace

from paceline.errors import (
    PolicyViolation,
    UnacceptableCredential,
    UserAlreadyExists,
    UserNotFound,
)
from paceline.scram import MAX_ITERATIONS, MIN_ITERATIONS, SCRAM_HASHES
from paceline.wire.native.admin import Done
from paceline.wire.native.users import AlterUser, DeleteUser, NewToken, ScramKey
from paceline_node.controller import way_in
from paceline_node.controller.context import Context, Outcome
from paceline_node.controller.metadata_records import RemoveUser, TokenKey, User
from paceline_node.security.principals import is_client_name
from paceline_node.settings.counts import USER_TOKENS, USERS

_KEY_BYTES = {"sha256": 32, "sha512": 64}
_DIGEST_BYTES = 32
_SALT_BYTES_MAX = 256
_NOTE_CHARACTERS_MAX = 200
_ID_CHARACTERS = frozenset("0123456789abcdef")
_ID_LENGTH = 16


def alter_user(request: AlterUser, context: Context) -> Outcome:
    """Make or change a user, all or nothing. Nothing changes where it is so already: the salt of a
    key and the id of a token are random, so that is the same wish once more.

    Raises UserNotFound, UserAlreadyExists, UnacceptableCredential, PolicyViolation,
    AuthorizationFailed.
    """
    _check(request)
    known = context.image.users.get(request.name)
    before = known or User(request.name)
    after = _altered(before, request, context.wall_ms)
    if known is None:
        if not request.may_create:
            raise UserNotFound(f"user {request.name!r} does not exist")
        if len(context.image.users) >= USERS.bound:
            raise PolicyViolation(f"there are {USERS.bound} users, the most there may be")
    elif not request.may_exist and after != known:
        raise UserAlreadyExists(f"user {request.name!r} exists already")
    if len(after.tokens) > max(USER_TOKENS.bound, len(before.tokens)):
        raise PolicyViolation(f"a user has at most {USER_TOKENS.bound} tokens; revoke some")
    records = () if after == known else (after,)
    outcome = Outcome(records, lambda at: Done(at.offset, at.term))
    return way_in.kept(outcome, context, request.asked_by, request.name)


def delete_user(request: DeleteUser, context: Context) -> Outcome:
    """Forget a user. Raises UserNotFound, PolicyViolation, AuthorizationFailed."""
    if request.name not in context.image.users:
        raise UserNotFound(f"user {request.name!r} does not exist")
    outcome = Outcome((RemoveUser(request.name),), lambda at: Done(at.offset, at.term))
    return way_in.kept(outcome, context, request.asked_by, request.name)


def _altered(before: User, request: AlterUser, wall_ms: int) -> User:
    """The user after the request. ``wall_ms``: when new tokens are made."""
    keys = {key.mechanism: key for key in before.keys if key.mechanism not in request.without}
    keys |= {key.mechanism: key for key in request.keys}
    tokens = {each.token_id: each for each in before.tokens if each.token_id not in request.revoked}
    for new in request.tokens:
        known = tokens.get(new.token_id)
        if known is None or known.digest != new.digest:
            tokens[new.token_id] = TokenKey(
                new.token_id, new.digest, wall_ms, new.expires_ms, new.note
            )
    return replace(before, keys=tuple(keys.values()), tokens=tuple(tokens.values()))


def check_name(name: str) -> None:
    """Raise UnacceptableCredential where no user can be called so."""
    if not is_client_name(name):
        raise UnacceptableCredential(
            f"no user can be called {name[:80]!r}: expected 1 to 255 printable characters, "
            "not anonymous, and not node: in front"
        )


def _check(request: AlterUser) -> None:
    check_name(request.name)
    for key in request.keys:
        _check_key(key)
    for token in request.tokens:
        _check_token(token)


def _check_key(key: ScramKey) -> None:
    hash_name = SCRAM_HASHES.get(key.mechanism)
    if hash_name is None:
        raise UnacceptableCredential(
            f"no mechanism {key.mechanism[:80]!r}: expected {' or '.join(SCRAM_HASHES)}"
        )
    if not MIN_ITERATIONS <= key.iterations <= MAX_ITERATIONS:
        raise UnacceptableCredential(
            f"{key.iterations} iterations: expected {MIN_ITERATIONS} to {MAX_ITERATIONS}"
        )
    size = _KEY_BYTES[hash_name]
    if not len(key.stored_key) == len(key.server_key) == size:
        raise UnacceptableCredential(f"keys of {key.mechanism} have {size} bytes each")
    if not 8 <= len(key.salt) <= _SALT_BYTES_MAX:
        raise UnacceptableCredential(
            f"a salt of {len(key.salt)} bytes: expected 8 to {_SALT_BYTES_MAX}"
        )


def _check_token(token: NewToken) -> None:
    if len(token.token_id) != _ID_LENGTH or not _ID_CHARACTERS.issuperset(token.token_id):
        raise UnacceptableCredential(f"a token's id is {_ID_LENGTH} hexadecimal digits")
    if len(token.digest) != _DIGEST_BYTES:
        raise UnacceptableCredential(f"a token's digest is the {_DIGEST_BYTES} bytes of a SHA-256")
    if token.expires_ms < 0:
        raise UnacceptableCredential("a token expires at a time since 1970, or at 0: never")
    if len(token.note) > _NOTE_CHARACTERS_MAX or not token.note.isprintable():
        raise UnacceptableCredential(
            f"a token's note has at most {_NOTE_CHARACTERS_MAX} characters, on one line"
        )
