"""The suite itself: what it draws is the same every time."""

from __future__ import annotations

import os

import pytest
from hypothesis.internal.conjecture import providers

from unisono.core import limits


@pytest.mark.skipif(os.environ.get("UNISONO_PROFILE") == "fuzz", reason="it draws at random")
def test_what_is_drawn_does_not_depend_on_loaded_modules() -> None:
    """Hypothesis collects constants of local modules; which are loaded other tests decide."""
    assert limits.TOPIC_CHARS  # a module of ours with constants is loaded
    provider = providers.HypothesisProvider(None)
    assert not len(provider._local_constants)
