"""Models that several tests use, loaded once a session."""

from __future__ import annotations

import pytest

from kvscope.engine.model import catalogue
from kvscope.engine.model.loader import Model, load_model


@pytest.fixture(scope="session")
def toy() -> Model:
    return load_model("toy", num_threads=1)


@pytest.fixture(scope="session")
def smollm2() -> Model:
    """SmolLM2 in float32; fetched where this machine has not got it yet."""
    catalogue.fetch(catalogue.find_entry("smollm2-135m"))
    return load_model("smollm2-135m", dtype="float32")
