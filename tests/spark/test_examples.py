"""The example that needs Spark, in a session of its own as its users run it."""

from __future__ import annotations

import pytest

from tests.examples import require_pass
from tests.spark.conftest import JAVA_OPTIONS


@pytest.mark.usefixtures("spark")  # which skips where no Java can be found
def test_the_invoices_of_the_examples() -> None:
    require_pass("invoices", hang_s=840.0, SPARK_SUBMIT_OPTS=JAVA_OPTIONS)
