"""What others on the network may do to a node that they should not: for its log, and for health.

Judged by what holds, not by what somebody wished for: whoever mends it hears no more of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paceline.health import Exposure
from paceline_node.settings import ClientAuth, Listener, ListenerKind, Login, Settings
from paceline_node.settings.addresses import is_loopback

_PAGES = (ListenerKind.CURSUS_HEALTH, ListenerKind.CURSUS_METRICS)
"""They show how the node is, and take nothing."""


def exposures(settings: Settings, *, is_guarded: bool) -> tuple[Exposure, ...]:
    """Of the listeners that other machines reach. ``is_guarded``: there are users or ACLs."""
    far = [
        each
        for each in settings.effective_listeners
        if each.kind not in _PAGES and not is_loopback(each.host)
    ]
    found = []
    open_ = [each for each in far if _lets_in_anybody(settings, each)]
    if open_ and not is_guarded:
        found.append(
            Exposure(
                f"whoever reaches {_named(open_)} may do everything: there are no users and no "
                "ACLs",
                "name an administrator in security.super_users of all nodes, send them SIGHUP, and "
                "make it: 'paceline user create'; or let only those reach the ports who may",
            )
        )
    certified = [each for each in far if _lets_in_by_certificate(settings, each)]
    if certified and not is_guarded:
        found.append(
            Exposure(
                f"whoever shows {_named(certified)} a certificate may do everything: clients are "
                "to log in there, and there are no users and no ACLs",
                "name an administrator in security.super_users of all nodes, send them SIGHUP, and "
                "make it, with a certificate: 'paceline user create'",
            )
        )
    plain = [each for each in far if not each.tls or each.plain_too]
    if plain:
        found.append(
            Exposure(
                f"what {_named(plain)} of this node and others say to each other is not encrypted",
                "put +tls behind the schemes of listeners, and name certificates in tls.*; or let "
                "nobody else into that network",
            )
        )
    return tuple(found)


def _lets_in_anybody(settings: Settings, listener: Listener) -> bool:
    """Peers prove the cluster's secret."""
    return not (
        listener.kind is ListenerKind.PEER
        or listener.login is Login.REQUIRED
        or settings.client_auth(listener) is ClientAuth.REQUIRED
    )


def _lets_in_by_certificate(settings: Settings, listener: Listener) -> bool:
    """Whoever has one need not log in."""
    return (
        listener.login is Login.REQUIRED and settings.client_auth(listener) is not ClientAuth.NONE
    )


def _named(listeners: Iterable[Listener]) -> str:
    names: Sequence[str] = [each.kind.value for each in listeners]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
