"""What this node's listeners ask who somebody is."""

from __future__ import annotations

from paceline_node.controller.image import Image
from paceline_node.controller.metadata_records import User
from paceline_node.controller.metadata_store import MetadataStore
from paceline_node.env import Env
from paceline_node.security.attempts import Attempts
from paceline_node.security.authentication import Authenticator
from paceline_node.security.scram import Decoys
from paceline_node.settings.tree import LoginSettings


def make_authenticator(
    env: Env, store: MetadataStore, decoy_secret: bytes, settings: LoginSettings
) -> Authenticator:
    """One that knows the users of the newest metadata here."""

    def find(name: str) -> User | None:
        return store.image.users.get(name)

    authenticator = Authenticator(
        find,
        env.host.run_blocking,
        Attempts(env.now),
        Decoys(decoy_secret),
        random=env.rng.randbytes,
        wall_ms=env.host.wall_ms,
        mechanisms=settings.mechanisms,
        session_ms=settings.session_ms,
    )

    def image_changed(old: Image, new: Image) -> None:
        if new.users is not old.users or new.is_guarded != old.is_guarded:
            authenticator.sessions.users_changed(new.users, is_guarded=new.is_guarded)

    store.subscribe(image_changed)
    return authenticator
