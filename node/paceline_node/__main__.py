"""``python -m paceline_node --config FILE``: run one broker until SIGTERM or SIGINT."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Run the process; ``app/process.py`` says how."""
    # structlog would load rich to draw tracebacks, which a node never does: 5 MB and a tenth of a
    # second. It goes without what cannot be imported.
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]
    # Nothing of what is loaded is garbage; to look for some took a fifth of the time.
    gc.disable()
    from paceline_node.app.process import command

    gc.enable()
    command()()


if __name__ == "__main__":
    main()
