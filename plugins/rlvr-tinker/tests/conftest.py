"""What the SDK leaves behind is cleared away before it disturbs the tests of others.

tinker 0.38.0 never closes the connection that it reads its configuration over. Python says so when
it finds it, in whatever test that happens; warnings are errors there.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest


def _clear_away() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(autouse=True, scope="module")
def _connections_of_the_sdk() -> Iterator[None]:
    yield
    _clear_away()


def pytest_sessionfinish() -> None:
    """The last look for what was left open comes after this."""
    _clear_away()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Found while a test of ours runs, it is no fault of the test."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            for warning in ("pytest.PytestUnraisableExceptionWarning", "ResourceWarning"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{warning}"))
