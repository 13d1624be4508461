"""The state of an installed plugin: active, or why it is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from attrs import field, frozen

State = Literal["active", "disabled", "broken", "incompatible", "conflict"]


@frozen
class PluginStatus:
    """
    One installed plugin.

    Attributes:
        name: The entry point's name: what a person types.
        reason: Why it is not active, and what to do; "" where it is.
        offers: Label (`tasks`, `losses`, ...) to the names it offers; empty unless active.
        hooks: Names of the hooks it implements.
        error: The exception behind `broken`, for tracebacks.
    """

    name: str
    distribution: str
    version: str
    status: State = "active"
    reason: str = ""
    offers: Mapping[str, tuple[str, ...]] = field(factory=dict)
    hooks: tuple[str, ...] = ()
    error: BaseException | None = field(default=None, repr=False, eq=False)

    @property
    def is_active(self) -> bool:
        """True when its offers count and its observers are called."""
        return self.status == "active"

    @property
    def state(self) -> str:
        """The status as the end of a sentence: it is ..."""
        return "in conflict" if self.status == "conflict" else self.status

    @property
    def origin(self) -> str:
        """`distribution version`, as people write it."""
        return f"{self.distribution} {self.version}".strip()
