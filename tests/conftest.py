"""What holds for all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# No test judges a time (SETTLED T1): a busy machine generates and runs examples slowly, too.
settings.register_profile("paceline", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("paceline")
