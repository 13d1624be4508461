"""Progress of a run: the one thing that changes, and all that a resumed run needs to know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from attrs import frozen


@frozen(kw_only=True)
class RunState:
    """
    Where a run stands.

    Problem order, sampling seeds and minibatch splits are functions of (seed, step), so the step
    is enough to go on exactly; weights and optimiser are the backend's part of a checkpoint.
    """

    step: int = 0
    seconds: float = 0.0

    def advanced(self, seconds: float) -> RunState:
        """The state after one more step that took `seconds`."""
        return attrs.evolve(self, step=self.step + 1, seconds=self.seconds + seconds)

    def to_json(self) -> dict[str, Any]:
        """Plain values for a checkpoint."""
        return attrs.asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RunState:
        """The state that `to_json` wrote; unknown keys of later versions are ignored."""
        known = {f.name for f in attrs.fields(cls)}
        return cls(**{k: v for k, v in values.items() if k in known})
