"""What every test shares: how long hypothesis looks, and the folder that holds finished distributions."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("dev", max_examples=30, deadline=None)
settings.register_profile("ci", max_examples=200, deadline=None, print_blob=True)
settings.register_profile(
    "fuzz",
    max_examples=100_000,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("ci" if "CI" in os.environ else "dev")


def pytest_addoption(parser):
    parser.addoption("--dist", help="folder of wheels and sdists that tests/repo/test_dist.py looks into")
