"""What can go wrong around a cluster on this machine, with the exit code it means.

Failures that a broker answers are :mod:`paceline.errors`; these are about files, processes and
ports of the launcher. Exit codes follow sysexits (paceline_node/DESIGN 2.2).
"""

from __future__ import annotations

import enum
from typing import ClassVar

from paceline.login import VARIABLES

LOG_IN = f"say who you are by {VARIABLES['username']} and {VARIABLES['password_file']}"
"""What to do for somebody who may not do something."""


class Exit(enum.IntEnum):
    """Exit codes of ``paceline``."""

    OK = 0
    USAGE = 64
    DATA = 65
    UNAVAILABLE = 69
    BUG = 70
    TIMEOUT = 75
    NO_PERMISSION = 77
    CONFIGURATION = 78
    INTERRUPTED = 130


class ClusterError(Exception):
    """Root of the launcher's errors: what is wrong, and what to do about it where that is known.
    ``str(error)`` is one sentence of both."""

    exit_code: ClassVar[Exit] = Exit.UNAVAILABLE

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class NoSuchCluster(ClusterError):
    """No cluster where the caller pointed, or nowhere to look."""

    exit_code = Exit.DATA


class NoSuchSegment(ClusterError):
    """The cluster has no segment of that name."""

    exit_code = Exit.DATA


class NoSuchNode(ClusterError):
    """The cluster has no node of that number."""

    exit_code = Exit.DATA


class BadState(ClusterError):
    """A file of the launcher cannot be understood."""

    exit_code = Exit.DATA


class Refused(ClusterError):
    """The request does not fit the state the cluster is in."""


class BadSetting(ClusterError):
    """A port or setting keeps the cluster from starting."""

    exit_code = Exit.CONFIGURATION


class BadScenario(ClusterError):
    """A scenario of ``chaos`` is not there or cannot be understood; the text names all that is
    wrong."""

    exit_code = Exit.CONFIGURATION


class NobodyThere(ClusterError):
    """Nothing takes connections at the cluster's addresses."""


class ClusterStopped(ClusterError):
    """None of the cluster's nodes runs, and all are of this machine."""


class OtherProtocol(ClusterError):
    """What listens at the cluster's addresses speaks another protocol than the native one."""

    exit_code = Exit.DATA


class TooLate(ClusterError):
    """What was waited for did not come in time."""

    exit_code = Exit.TIMEOUT


class NodeEnded(ClusterError):
    """A node process ended although it should run."""


class NodeMisconfigured(NodeEnded):
    """A node refused its configuration (its exit code 78)."""

    exit_code = Exit.CONFIGURATION


class BadInput(ClusterError):
    """Input data that cannot be understood."""

    exit_code = Exit.DATA
