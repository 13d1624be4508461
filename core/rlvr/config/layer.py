"""One source of option values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen


@frozen
class Layer:
    """
    One source of option values: a file, the environment, the command line, an algorithm.

    Attributes:
        name: How a person knows it: `command line`, `run.toml`.
        values: Dotted key (`train.lr`) to value.
        where: Key to a more exact place than `name` (a variable, a line), where there is one.
        is_typed: True where the source knows numbers from texts (TOML), so that a text is not
            read as a number.
    """

    name: str
    values: Mapping[str, Any]
    where: Mapping[str, str] = field(factory=dict, kw_only=True)
    is_typed: bool = field(default=False, kw_only=True)

    def place(self, key: str) -> str:
        """Where the value of a key stands."""
        return self.where.get(key, self.name)
