"""What to do about a refusal, told to somebody at a terminal."""

from __future__ import annotations

from paceline.login import VARIABLES
from paceline_cluster.errors import LOG_IN


def what_to_do(refusal: str, *, written: str = "") -> str:
    """The next step after a refusal, by its sentence. ``written``: the topic that was to be, where
    that is known."""
    if "wrong user or password" in refusal:
        return (
            f"the password is the first line of the file that {VARIABLES['password_file']} names; "
            "an administrator sets another one by 'paceline user password NAME'"
        )
    from paceline_node.security import refusals  # imported where something is refused

    return refusals.what_to_do(refusal, log_in=LOG_IN, written=written)
