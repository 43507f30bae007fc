"""The library that learns."""

import pytest

from tests.producer.conftest import _need


@pytest.fixture(scope="session")
def torch():
    """The library."""
    _need("torch")
    import torch  # noqa: PLC0415 - an extra, and slow to import

    return torch
