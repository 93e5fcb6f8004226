"""Settings of who may do what."""

from __future__ import annotations

from urllib.parse import urlsplit

from paceline.values import dataclass
from paceline_node.settings import counts
from paceline_node.settings.counts import counted
from paceline_node.settings.fields import setting


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """Who may do what."""

    super_users: tuple[str, ...] = setting(
        (),
        "Users, and principals as their certificates name them, who may do everything, whatever "
        "ACLs say; the same on all nodes. The first user of a cluster must be one of them.",
        reloadable=True,
    )
    acls_max: int = counted(counts.ACLS)


@dataclass(frozen=True, slots=True)
class OauthSettings:
    """Tokens that somebody else issues (JWT): SASL OAUTHBEARER, and ``Authorization: Bearer``."""

    jwks: str = setting(
        "",
        "The issuer's public keys: a file, or an https:// URL (http:// on this machine alone); "
        "empty: no such tokens. Needs the extra oauth.",
    )
    jwks_authority: str = setting(
        "", "Who signs the certificate of that URL's host; empty: whom this machine trusts."
    )
    issuer: str = setting("", "Who has to have issued a token (iss).")
    audience: tuple[str, ...] = setting((), "For whom: one of these (aud).")
    principal_claim: str = setting("sub", "The claim that says whose a token is.")
    leeway_ms: int = setting(30_000, "How far the issuer's clock may be off.", low=0, high=600_000)
    refresh_ms: int = setting(
        3_600_000,
        "How old the keys may get before they are read again, which a token of an unknown key "
        "brings forward; if that fails the former ones are good for a day.",
        low=10_000,
        high=24 * 3600 * 1000,
    )

    @property
    def is_url(self) -> bool:
        """Whether the keys are not in a file."""
        return "://" in self.jwks

    def problems(self) -> list[tuple[str, str]]:
        """What is missing, by setting."""
        if not self.jwks:
            return []
        found = [
            (f"oauth.{name}", "a token that anybody may use anywhere proves nothing: name it")
            for name in ("issuer", "audience", "principal_claim")
            if not getattr(self, name)
        ]
        if self.is_url:
            try:
                url = urlsplit(self.jwks)
                host, is_whole = url.hostname, bool(url.hostname) and (url.port or 1) > 0
            except ValueError:
                host, is_whole = None, False
            is_safe = url.scheme == "https" or (
                url.scheme == "http" and host in ("localhost", "127.0.0.1", "::1")
            )
            if not (is_whole and is_safe):
                found.append(("oauth.jwks", "expected https://HOST/PATH, or a file"))
        return found
