"""What this node's listeners ask who somebody is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from paceline.errors import ConfigurationError
from paceline_node.controller.image import Image
from paceline_node.controller.metadata_records import User
from paceline_node.controller.metadata_store import MetadataStore
from paceline_node.env import Env
from paceline_node.security.attempts import Attempts
from paceline_node.security.authentication import Authenticator
from paceline_node.security.scram import Decoys
from paceline_node.security.sessions import Login
from paceline_node.settings import Settings
from paceline_node.settings.security import OauthSettings


def make_authenticator(
    env: Env, store: MetadataStore, decoy_secret: bytes, settings: Settings
) -> Authenticator:
    """One that knows the users of the newest metadata here. Raises ConfigurationError."""
    attempts = Attempts(env.now)

    def find(name: str) -> User | None:
        return store.image.users.get(name)

    authenticator = Authenticator(
        find,
        env.host.apart(),
        attempts,
        Decoys(decoy_secret, lambda: store.image.users),
        random=env.rng.randbytes,
        wall_ms=env.host.wall_ms,
        mechanisms=settings.login.mechanisms,
        session_ms=settings.login.session_ms,
        delegation_secret=decoy_secret,
        foreign=_foreign(env, settings.oauth, attempts) if settings.oauth.jwks else None,
    )

    def image_changed(old: Image, new: Image) -> None:
        if new.users is not old.users or new.is_guarded != old.is_guarded:
            authenticator.sessions.users_changed(new.users, is_guarded=new.is_guarded)

    store.subscribe(image_changed)
    return authenticator


def check_oauth(settings: OauthSettings) -> None:
    """Raise ConfigurationError where tokens are to be taken and cannot be: when a node starts, not
    when a client comes. Who publishes keys at a URL need not be there yet."""
    if not settings.jwks:
        return
    if find_spec("jwt") is None or find_spec("cryptography") is None:
        raise ConfigurationError(
            "oauth.jwks needs the packages PyJWT and cryptography; install paceline[oauth]"
        )
    from paceline_node.security.key_set import BadKeys, read_keys
    from paceline_node.security.key_source import read_file

    try:
        if settings.jwks_authority:
            Path(settings.jwks_authority).read_bytes()
        if not settings.is_url:
            read_keys(read_file(settings.jwks))
    except (OSError, BadKeys) as error:
        raise ConfigurationError(f"oauth.jwks: {error}") from error


def _foreign(
    env: Env, settings: OauthSettings, attempts: Attempts
) -> Callable[[str, str], Awaitable[Login]]:
    # Here, not above: a node that takes no such tokens does without PyJWT.
    from paceline_node.security.bearer_tokens import BearerTokens, Expected
    from paceline_node.security.key_set import KeySet
    from paceline_node.security.key_source import fetch, read_file

    if settings.is_url:
        read = partial(fetch, settings.jwks, settings.jwks_authority)
    else:
        read = partial(read_file, settings.jwks)
    keys = KeySet(read, env.host.run_blocking, env.now, refresh_s=settings.refresh_ms / 1000)
    expected = Expected(
        settings.issuer, settings.audience, settings.principal_claim, settings.leeway_ms
    )
    return BearerTokens(keys, expected, attempts, env.host.wall_ms).login
