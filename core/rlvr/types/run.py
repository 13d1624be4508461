"""A run as observers see it: its identity, checkpoints, pass rates and evaluations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import field, frozen

from rlvr.types.frozen import as_tuple, frozen_map


@frozen(kw_only=True)
class Checkpoint:
    """A saved state on disk: where, at which step, and the sha256 of its manifest."""

    path: Path
    step: int
    digest: str = ""


@frozen(kw_only=True)
class RunInfo:
    """Identity of a run, for observers. `config` is the resolved configuration, dotted keys."""

    id: str
    directory: Path
    plugin: str
    algo: str
    model: str
    steps: int
    seed: int
    config: Mapping[str, Any] = field(factory=dict, repr=False)


@frozen(kw_only=True)
class PassRate:
    """
    Recent pass rate of a problem, for curricula.

    Attributes:
        rate: Running mean of its groups' mean `score01`: of all groups at first, later an
            exponential moving average.
        count: Groups that made it.
        step: Step (0-based) of the last one.
    """

    rate: float
    count: int
    step: int


@frozen(kw_only=True)
class EvalReport:
    """
    Results of a policy on one split.

    `scores` holds score01 of each sample, by problem id. `pass_at` maps k to the unbiased
    estimate 1 - C(n-c, k)/C(n, k), averaged over problems. `low` and `high` bound pass@1 at 95 %
    (bootstrap over problems). `failed` counts samples whose verification could not run.
    `seen` are the problems of families that the model was trained on; `held_out` is True where
    there are none, None where the problems name no family. `measures` are what the loss came to
    on recorded trajectories (`Task.is_offline`), by path ("eval/loss"): there is no pass rate
    then, and `scores` hold no samples.
    """

    split: str
    scores: Mapping[str, tuple[float, ...]]
    pass_at: Mapping[int, float]
    low: float
    high: float
    reward_mean: float
    samples: int
    failed: int = 0
    seconds: float = 0.0
    seen: tuple[str, ...] = field(default=(), converter=as_tuple)
    held_out: bool | None = None
    measures: Mapping[str, float] = field(factory=dict, converter=frozen_map)

    @property
    def pass1(self) -> float:
        """Share of samples that are right, averaged over problems."""
        return self.pass_at.get(1, 0.0)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of pass@1, as that of `rlvr.evaluate` is called."""
        return self.low, self.high


@frozen(kw_only=True)
class Metric:
    """
    One measured number of an evaluation (`Task.measure`).

    `low` and `high` bound it at 95 % (NaN where too little was measured to say); `n` counts what it
    was measured on. `name` is a path ("policy/regret"), `note` what a reader must know to trust it.
    What could not be measured has the value NaN, n = 0 and the reason as its note.
    """

    name: str
    value: float = field(converter=float)
    low: float = field(converter=float)
    high: float = field(converter=float)
    n: int = field(converter=int)
    note: str = ""
