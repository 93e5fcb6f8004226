"""Kafka requests about users: the SCRAM keys that they have (KIP-554)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from types import MappingProxyType

from paceline.errors import (
    AuthorizationFailed,
    ErrorCode,
    PacelineError,
    UserNotFound,
)
from paceline.scram import derived
from paceline.wire.kafka import sasl as wire
from paceline.wire.native.users import AlterUser, ScramKey, UserInfo
from paceline_node.listeners.kafka.call import Call
from paceline_node.listeners.kafka.errors import code_of, message_of
from paceline_node.services.admin.user_service import UserService

MECHANISMS: Mapping[int, str] = MappingProxyType({1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"})
_NUMBERS = {name: number for number, name in MECHANISMS.items()}


class _Wish:
    """What is to be done to one user."""

    def __init__(self) -> None:
        self.keys: list[ScramKey] = []
        self.without: list[str] = []
        self.asked: list[int] = []
        """Mechanisms, by number, in the order in which they are named."""


class KafkaUsers:
    """Users are made by the first key that they get."""

    def __init__(self, users: UserService) -> None:
        self._users = users

    async def describe(
        self, request: wire.DescribeUserScramCredentialsRequest, call: Call
    ) -> wire.DescribeUserScramCredentialsResponse:
        """Mechanisms and iterations, of users that have any."""
        # librdkafka asks for all with a list that is empty.
        names = [each.name for each in request.users] if request.users else None
        try:
            found = {each.name: each for each in self._users.describe(call.principal, names)}
        except AuthorizationFailed as error:
            return wire.DescribeUserScramCredentialsResponse(
                error_code=code_of(error), error_message=message_of(error)
            )
        wanted = [name for name in found if found[name].mechanisms] if names is None else names
        return wire.DescribeUserScramCredentialsResponse(
            error_code=0,
            results=tuple(
                [_described(name, found.get(name)) async for name in call.pace.each(wanted)]
            ),
        )

    async def alter(
        self, request: wire.AlterUserScramCredentialsRequest, call: Call
    ) -> wire.AlterUserScramCredentialsResponse:
        """Each user by itself; of one user all or nothing."""
        wishes: dict[str, _Wish] = defaultdict(_Wish)
        for deletion in request.deletions:
            wish = wishes[deletion.name]
            wish.asked.append(deletion.mechanism)
            wish.without.append(MECHANISMS.get(deletion.mechanism, ""))
        for new in request.upsertions:
            wish = wishes[new.name]
            wish.asked.append(new.mechanism)
            if new.mechanism in MECHANISMS:
                wish.keys.append(_key(MECHANISMS[new.mechanism], new))
        results = [
            await self._altered(name, wishes[name], call)
            async for name in call.pace.each(list(wishes))
        ]
        return wire.AlterUserScramCredentialsResponse(results=tuple(results))

    async def _altered(
        self, name: str, wish: _Wish, call: Call
    ) -> wire.AlterUserScramCredentialsResponseResult:
        try:
            self._users.permit_changes(call.principal)
            code, why = _fault(wish)
            if not code:
                await self._alter(name, wish, call)
        except PacelineError as error:
            code, why = code_of(error), message_of(error)
        return wire.AlterUserScramCredentialsResponseResult(
            user=name, error_code=code, error_message=why or None
        )

    async def _alter(self, name: str, wish: _Wish, call: Call) -> None:
        body = AlterUser(
            name,
            may_create=not wish.without,
            may_exist=True,
            keys=tuple(wish.keys),
            without=tuple(wish.without),
        )
        if wish.without:
            found = self._users.describe(call.principal, [name])
            has = {each.mechanism for user in found for each in user.mechanisms}
            if not has.issuperset(wish.without):
                raise UserNotFound(f"user {name!r} has no such credential")
        await self._users.change(call.principal, body)


def _fault(wish: _Wish) -> tuple[int, str]:
    """What is wrong with a wish in itself."""
    if len(set(wish.asked)) < len(wish.asked):
        return ErrorCode.USER_ALREADY_EXISTS, "a mechanism is named twice"
    if not MECHANISMS.keys() >= set(wish.asked):
        known = ", ".join(f"{number} ({name})" for number, name in MECHANISMS.items())
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"the mechanisms are {known}"
    return ErrorCode.NONE, ""


def _key(mechanism: str, new: wire.AlterUserScramCredentialsRequestUpsertion) -> ScramKey:
    keys = derived(mechanism, bytes(new.salted_password))
    return ScramKey(mechanism, bytes(new.salt), new.iterations, keys.stored_key, keys.server_key)


def _described(name: str, user: UserInfo | None) -> wire.DescribeUserScramCredentialsResponseResult:
    if user is None or not user.mechanisms:
        return wire.DescribeUserScramCredentialsResponseResult(
            user=name,
            error_code=ErrorCode.USER_NOT_FOUND,
            error_message=f"user {name[:80]!r} has no SCRAM credentials",
        )
    return wire.DescribeUserScramCredentialsResponseResult(
        user=name,
        error_code=0,
        credential_infos=tuple(
            wire.DescribeUserScramCredentialsResponseCredentialInfo(
                mechanism=_NUMBERS[each.mechanism], iterations=each.iterations
            )
            for each in user.mechanisms
        ),
    )
