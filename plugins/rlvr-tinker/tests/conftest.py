"""See sdk_leftovers.py."""

from __future__ import annotations

from sdk_leftovers import clear_away, connections_of_the_sdk, pytest_itemcollected

__all__ = ["connections_of_the_sdk", "pytest_itemcollected"]


def pytest_sessionfinish() -> None:
    """The last look for what was left open comes after this."""
    clear_away()
