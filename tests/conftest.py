"""What all tests share."""

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.helpers import SHARED, published

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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """A test of the reference folder that skips although the folder is there fails."""
    report = yield
    if report.skipped and SHARED.is_dir() and item.get_closest_marker("shared"):
        report.outcome = "failed"
        report.longrepr = (
            f"{item.nodeid} was skipped although the reference folder is there: {report.longrepr}"
        )
    return report


def pytest_terminal_summary(terminalreporter):
    """Say how many tests read the reference folder, or were skipped for its absence."""

    def count(outcome):
        return sum("shared" in report.keywords for report in terminalreporter.stats.get(outcome, []))

    terminalreporter.write_line(
        f"reference folder: {count('passed')} tests read it, {count('skipped')} were skipped for its absence"
    )


@pytest.fixture(scope="session")
def published_audit():
    """The audit's findings on the published record, run once."""
    from producer.backend.cpu import NumpyBackend  # noqa: PLC0415 - most tests need no NumPy
    from producer.record.audit import audit_record  # noqa: PLC0415
    from producer.record.reading import parse_record  # noqa: PLC0415

    return audit_record(parse_record(published()), NumpyBackend(1), lambda *_: None)


@pytest.fixture(scope="session")
def published_fields():
    """The fields of the published record beside their recomputed values, run once."""
    from producer.backend.cpu import NumpyBackend  # noqa: PLC0415
    from producer.record.reading import parse_record  # noqa: PLC0415
    from producer.record.rederive_v1 import rederive  # noqa: PLC0415

    return rederive(parse_record(published()), NumpyBackend(1), lambda *_: None)
