"""Points in the code at which a node kills itself, by name, when it is told to.

Beside the node's folder lie ``crash.armed``, with the name of a site (``Host.buggify``), and after
the blow ``crash.hit``, with the same. So a test knows that the process died there and nowhere else
(DESIGN 2.2).
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

_ARMED = "crash.armed"
_HIT = "crash.hit"


class CrashPoints:
    """Both sides: the harness arms, the node strikes."""

    def __init__(self, folder: Path) -> None:
        self._armed = folder / _ARMED
        self._hit = folder / _HIT

    def arm(self, site: str) -> None:
        """Let the node die when it comes to ``site`` next."""
        self._hit.unlink(missing_ok=True)
        written = self._armed.with_suffix(".new")
        written.write_text(site, encoding="utf-8")
        written.replace(self._armed)

    def hit(self) -> str | None:
        """The site at which the node died since it was armed last."""
        return self._hit.read_text(encoding="utf-8") if self._hit.exists() else None

    def strike(self, site: str) -> None:
        """In the node: die if this is the site. SIGKILL leaves nothing behind but what the kernel
        was given."""
        try:
            wanted = self._armed.read_text(encoding="utf-8")
        except FileNotFoundError:
            return
        if wanted == site:
            self._armed.replace(self._hit)
            os.kill(os.getpid(), signal.SIGKILL)
