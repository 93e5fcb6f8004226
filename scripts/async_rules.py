"""flake8-async as its own command runs it, over the files named, in half the time.

It looks at each file's concrete syntax once for each of its visitors, and has the positions of all
nodes worked out anew each time, although none of them changes anything unless it is to mend. Here
they share one tree with its positions. A linter that has other parts one day fails here, and says
which it lacks.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from typing import Any

import flake8_async
import libcst
from flake8_async.runner import Flake8AsyncRunner_cst


def share_one_tree(self: Any) -> Iterator[Any]:
    """What takes the place of the runner's own way."""
    wrapper = libcst.MetadataWrapper(self.module, unsafe_skip_copy=True)
    visitors = (*self.utility_visitors, *self.visitors)
    for visitor in visitors:
        wrapper.visit(visitor)
    yield from self.state.problems
    self.noqas = visitors[-1].noqas


if __name__ == "__main__":
    assert "--autofix" not in " ".join(sys.argv), "mending needs a tree that changes"
    gc.disable()  # trees die by themselves, and nothing else is made
    Flake8AsyncRunner_cst.run = share_one_tree
    sys.exit(flake8_async.main())
