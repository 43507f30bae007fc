"""What all tests share."""

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.helpers import SHARED

# Forked workers and a busy machine make single examples slow; the suite has no timed assertions.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# A run of CI can be repeated: the same commit sees the same examples.
settings.register_profile("ci", settings.get_profile("suite"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "suite")


def pytest_collection_modifyitems(items):
    if SHARED.is_dir():
        return
    for item in items:
        if item.get_closest_marker("shared"):
            item.add_marker(
                pytest.mark.skip(reason=f"the reference folder {SHARED.name} is not beside the checkout")
            )
