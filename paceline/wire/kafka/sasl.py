"""Requests about who the client is, and about users. Source: Kafka's published message
definitions."""

from __future__ import annotations

from typing import Annotated

from paceline.values import dataclass
from paceline.wire.kafka.layout import (
    I8,
    I16,
    I32,
    I64,
    Bytes,
    NullableStr,
    Str,
    Struct,
    since,
)

# SaslHandshake (17), versions 0 and 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslHandshakeRequest(Struct):
    """By which mechanism the client logs in. After version 0 the exchange follows without
    headers: a size of four bytes and that many, both ways."""

    mechanism: Str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslHandshakeResponse(Struct):
    error_code: I16
    mechanisms: tuple[Str, ...] = ()


# SaslAuthenticate (36), versions 0 to 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslAuthenticateRequest(Struct):
    auth_bytes: Bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslAuthenticateResponse(Struct):
    error_code: I16
    error_message: NullableStr = None
    auth_bytes: Bytes = b""
    session_lifetime_ms: Annotated[I64, since(1)] = 0


# DescribeUserScramCredentials (50), version 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeUserScramCredentialsRequestUserName(Struct):
    name: Str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeUserScramCredentialsRequest(Struct):
    """Of these users; of all where none is named."""

    users: tuple[DescribeUserScramCredentialsRequestUserName, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeUserScramCredentialsResponseCredentialInfo(Struct):
    mechanism: I8 = 0
    iterations: I32 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeUserScramCredentialsResponseResult(Struct):
    user: Str = ""
    error_code: I16
    error_message: NullableStr = None
    credential_infos: tuple[DescribeUserScramCredentialsResponseCredentialInfo, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeUserScramCredentialsResponse(Struct):
    throttle_time_ms: I32 = 0
    error_code: I16
    error_message: NullableStr = None
    results: tuple[DescribeUserScramCredentialsResponseResult, ...] = ()


# AlterUserScramCredentials (51), version 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterUserScramCredentialsRequestDeletion(Struct):
    name: Str = ""
    mechanism: I8 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterUserScramCredentialsRequestUpsertion(Struct):
    """``salted_password``: what PBKDF2 makes of it, by which no password is told."""

    name: Str = ""
    mechanism: I8 = 0
    iterations: I32 = 0
    salt: Bytes = b""
    salted_password: Bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterUserScramCredentialsRequest(Struct):
    deletions: tuple[AlterUserScramCredentialsRequestDeletion, ...] = ()
    upsertions: tuple[AlterUserScramCredentialsRequestUpsertion, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterUserScramCredentialsResponseResult(Struct):
    user: Str = ""
    error_code: I16
    error_message: NullableStr = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterUserScramCredentialsResponse(Struct):
    throttle_time_ms: I32 = 0
    results: tuple[AlterUserScramCredentialsResponseResult, ...] = ()
