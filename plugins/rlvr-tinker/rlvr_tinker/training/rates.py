"""What the optimiser of the service needs of the run's `train.*` options."""

from __future__ import annotations

from typing import Any

from attrs import fields, frozen


@frozen(kw_only=True)
class Rates:
    """The names and defaults of `train.*`."""

    lr: float = 1e-5
    warmup: int = 0
    decay: str = "constant"
    grad_clip: float = 1.0
    passes: int = 1
    minibatches: int = 1

    @classmethod
    def of(cls, train: Any) -> Rates:
        """From the options of a `BuildContext`, or the defaults where it has none."""
        if train is None:
            return cls()
        return cls(**{field.name: getattr(train, field.name) for field in fields(cls)})
