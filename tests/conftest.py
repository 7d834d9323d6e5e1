"""Settings that every test shares: reproducible random cases, with the seed printed when one fails."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "dredge", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("dredge")
