"""README.md, followed as the pages of the documentation are. It takes as long as all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.test_docs import HANG_S, README, require_so


@pytest.mark.timeout(HANG_S + 60)
def test_it_does_what_it_says(cluster: Cluster, tmp_path: Path) -> None:
    require_so(cluster, tmp_path, README)
