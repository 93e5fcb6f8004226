"""``python -m paceline_node --config FILE``: run one broker until SIGTERM or SIGINT."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the process; ``app/process.py`` says how."""
    # structlog would load rich to draw tracebacks, which a node never does: 5 MB and a tenth of a
    # second. It goes without what cannot be imported.
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]
    from paceline_node.app.process import command

    command()()


if __name__ == "__main__":
    main()
