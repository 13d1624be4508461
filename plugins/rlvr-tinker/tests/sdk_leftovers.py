"""What the SDK leaves behind is cleared away before it disturbs the tests of others.

tinker 0.38.0 never closes the connection that it reads its configuration over. Python says so when
it finds it, in whatever test that happens; warnings are errors there.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from functools import cache

import pytest


def clear_away() -> None:
    """Have Python find now what is left open."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(autouse=True, scope="module")
def connections_of_the_sdk() -> Iterator[None]:
    """After each file of tests."""
    yield
    clear_away()


def pytest_itemcollected(item: pytest.Item) -> None:
    """For a conftest: what is found while a test below it runs is no fault of that test."""
    for warning in ("pytest.PytestUnraisableExceptionWarning", "ResourceWarning"):
        item.add_marker(pytest.mark.filterwarnings(f"ignore::{warning}"))


_clear_away_once = cache(clear_away)


def pytest_sessionfinish() -> None:
    """For several conftests: the last look for what was left open comes after this."""
    _clear_away_once()
