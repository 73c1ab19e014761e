"""The buses that the tests of this folder run on."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["memory", "nats"])
def url(request: pytest.FixtureRequest) -> str:
    """The embedded bus, of the test file's own name, and a real NATS."""
    if request.param == "memory":
        return f"memory://{request.path.stem.replace('_', '-')}"
    return str(request.getfixturevalue("nats_server").url)
