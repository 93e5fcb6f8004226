"""How many files and connections this process may have open, and who gets how many.

A shell's usual limit is 1,024, of which a process may use up to a hard limit that is far higher; it
takes all of that. Clients are accepted only while more than a reserve is left. Of what is not that
reserve at most a third is for logs, whose files rest without a descriptor while not in use, and no
single listener may take more than three quarters.
"""

from __future__ import annotations

import contextlib
import resource

from paceline.values import dataclass
from paceline_node.net.network import RealDescriptors
from paceline_node.settings.limits import LimitSettings

_MOST = 1 << 20
_STORAGE_SHARE = 32
_FEWEST_FILES = 16


@dataclass(frozen=True, slots=True)
class Shares:
    """``files``: logs that have a descriptor at a time; ``storage_reserve``: kept beside for what
    storage opens for a moment; ``per_listener``: connections of one client listener."""

    files: int
    storage_reserve: int
    per_listener: int


def raise_limit(wanted: int) -> None:
    """Have the system let this process open ``wanted`` files and connections; 0: as many as it
    may. Where it may not, the limit stays."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, most) if wanted else most, hard))


def shares(limits: LimitSettings, limit: int | None = None) -> Shares:
    """Of ``limit`` descriptors; None: of those that this process may have."""
    limit = RealDescriptors().limit() if limit is None else limit
    for_clients = max(1, limit - limits.reserved_descriptors)
    return Shares(
        files=max(_FEWEST_FILES, for_clients // 3),
        storage_reserve=min(_STORAGE_SHARE, limit // _STORAGE_SHARE),
        per_listener=max(1, min(limits.connections, for_clients * 3 // 4)),
    )
