"""See sdk_leftovers.py."""

from __future__ import annotations

from sdk_leftovers import connections_of_the_sdk, pytest_itemcollected, pytest_sessionfinish

__all__ = ["connections_of_the_sdk", "pytest_itemcollected", "pytest_sessionfinish"]
