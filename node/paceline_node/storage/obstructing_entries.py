"""What lies where a file of the node should be, and is none (DESIGN 5.6)."""

from __future__ import annotations

from paceline_node.env import Disk

ODD_SUFFIX = ".odd"


def make_way(disk: Disk, path: str) -> None:
    """Remove the file ``path``; fine when it is missing. A directory there, which none of the
    node's is, is moved aside. Raises OSError."""
    try:
        disk.remove(path)
    except (IsADirectoryError, PermissionError):  # the latter is what macOS says of one
        import structlog  # hardly ever needed, and the command line begins with this module

        aside = path + ODD_SUFFIX
        disk.remove_tree(aside)
        disk.rename(path, aside)
        structlog.get_logger(component="disk").error(
            "moved aside: no file where one of the node should be", path=path, to=aside
        )
