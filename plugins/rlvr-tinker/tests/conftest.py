"""See sdk_leftovers.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from sdk_leftovers import clear_away, connections_of_the_sdk, forgive

__all__ = ["connections_of_the_sdk"]


def pytest_sessionfinish() -> None:
    """The last look for what was left open comes after this."""
    clear_away()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What the SDK leaves is no fault of our tests."""
    forgive(items, Path(__file__).parent)
