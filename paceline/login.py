"""How a client proves who it is: a user's name, and a file with the password or a token."""

from __future__ import annotations

import os
import secrets
from collections.abc import Awaitable, Callable, Mapping

from paceline.errors import AuthenticationFailed, ConfigurationError
from paceline.given_fields import lacking
from paceline.oauthbearer import DISMISSED, OAUTHBEARER, first_message
from paceline.scram import NONCE_BYTES, PLAIN, SASL_MECHANISMS, ScramClient
from paceline.values import dataclass

VARIABLES = {
    "username": "PACELINE_CLIENT_USERNAME",
    "password_file": "PACELINE_CLIENT_PASSWORD_FILE",
    "mechanism": "PACELINE_CLIENT_MECHANISM",
}
"""Field -> the environment variable that says the same."""
_FILE_BYTES = 32 * 1024

Say = Callable[[str, bytes], Awaitable[bytes]]
"""Sends the mechanism and a message; the answer's bytes."""
InThread = Callable[[Callable[[], bytes]], Awaitable[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLogin:
    """``password_file``: its first line is the password; it is read for each connection.
    ``mechanism``: PLAIN, which needs TLS, also takes a token there. OAUTHBEARER, which does too,
    needs no ``username``: there is a JWT in the file, that says whose it is."""

    username: str = ""
    password_file: str = ""
    mechanism: str = SASL_MECHANISMS[0]

    def __post_init__(self) -> None:
        missing, given = "password_file", "username" if self.username else "mechanism"
        if self.password_file:
            missing, given = "username", "password_file"
        is_named = bool(self.username) or self.mechanism == OAUTHBEARER
        if not (is_named and self.password_file):
            told = lacking("log-in", missing, given, "ClientLogin", VARIABLES)
            raise ConfigurationError(told)
        known = (*SASL_MECHANISMS, OAUTHBEARER)
        if self.mechanism not in known:
            raise ConfigurationError(
                f"log-in: mechanism {self.mechanism!r} is none of {', '.join(known)}"
            )

    @classmethod
    def of(cls, given: Mapping[str, str]) -> ClientLogin | None:
        """From fields by name, None where there are none. Raises ConfigurationError."""
        if not given:
            return None
        return cls(**given)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None) -> ClientLogin | None:
        """What the variables of :data:`VARIABLES` say; None where none is set. Raises
        ConfigurationError."""
        env = os.environ if environ is None else environ
        return cls.of({field: env[name] for field, name in VARIABLES.items() if env.get(name)})

    def given(self) -> dict[str, str]:
        """The fields, as :meth:`of` takes them."""
        fields = {field: text for field in VARIABLES if (text := str(getattr(self, field)))}
        if self.mechanism == SASL_MECHANISMS[0]:
            del fields["mechanism"]
        return fields

    def plain(self) -> bytes:
        """The message of PLAIN. Raises ConfigurationError."""
        return b"\0" + self.username.encode() + b"\0" + self.password()

    def bearer(self) -> bytes:
        """The first message of OAUTHBEARER. Raises ConfigurationError."""
        return first_message(self.password().decode())

    def password(self) -> bytes:
        """What the file holds. Raises ConfigurationError."""
        try:
            with open(self.password_file, "rb") as file:
                password = file.readline(_FILE_BYTES).rstrip(b"\r\n")
            password.decode()
        except (OSError, UnicodeDecodeError) as error:
            why = (
                (error.strerror or str(error)).lower() if isinstance(error, OSError) else "no UTF-8"
            )
            raise ConfigurationError(f"the password file {self.password_file}: {why}") from error
        if not password:
            raise ConfigurationError(
                f"the password file {self.password_file}: its first line is empty"
            )
        return password


async def log_in(login: ClientLogin, say: Say, in_thread: InThread, *, is_encrypted: bool) -> None:
    """Go through the exchange. Raises AuthenticationFailed, ConfigurationError."""
    if login.mechanism in (PLAIN, OAUTHBEARER):
        if not is_encrypted:
            what = "password" if login.mechanism == PLAIN else "token"
            raise AuthenticationFailed(
                f"{login.mechanism} would show the {what} to all: it needs TLS"
            )
        if login.mechanism == PLAIN:
            await say(PLAIN, await in_thread(login.plain))
        elif await say(OAUTHBEARER, await in_thread(login.bearer)):
            await say("", DISMISSED)  # what comes back says why it was refused
        return
    password = (await in_thread(login.password)).decode()
    nonce = secrets.token_bytes(NONCE_BYTES)
    scram = ScramClient(login.mechanism, login.username, password, nonce)
    first = await say(login.mechanism, scram.first())
    scram.finish(await say("", await in_thread(lambda: scram.final(first))))
