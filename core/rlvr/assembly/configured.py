"""Records of a configuration: the resolved options and the chosen specs."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from rlvr.config.core import RunOptions
from rlvr.config.layers import Options
from rlvr.plugins.host import PluginHost
from rlvr.specs import (
    AdvantageSpec,
    AlgorithmSpec,
    BackendSpec,
    CallbackSpec,
    CheckpointerSpec,
    CurriculumSpec,
    LossSpec,
    PartSpec,
    RewardSpec,
    SamplerSpec,
    TaskSpec,
    TeacherSpec,
)


@frozen(kw_only=True)
class Chosen:
    """The specs a run is made of. Parts that a command does not need are None."""

    task: TaskSpec
    reward: RewardSpec
    algorithm: AlgorithmSpec | None = None
    sampler: SamplerSpec | None = None
    advantage: AdvantageSpec | None = None
    loss: LossSpec | None = None
    backend: BackendSpec | None = None
    checkpointer: CheckpointerSpec | None = None
    curriculum: CurriculumSpec | None = None
    teachers: tuple[TeacherSpec, ...] = ()
    callbacks: tuple[CallbackSpec, ...] = ()

    def parts(self) -> list[PartSpec]:
        """The chosen part specs (the algorithm is not a part)."""
        one = (self.task, self.reward, self.sampler, self.advantage, self.loss, self.backend)
        found = (*one, self.checkpointer, self.curriculum, *self.teachers, *self.callbacks)
        return [spec for spec in found if spec is not None]


@frozen(kw_only=True)
class Configured:
    """
    Resolved options, where each came from, and the chosen specs.

    Attributes:
        missing: Why parts are missing that `rlvr config show` can do without.
    """

    options: Options
    specs: Mapping[str, type]
    chosen: Chosen
    host: PluginHost
    missing: tuple[str, ...] = ()

    @property
    def run(self) -> RunOptions:
        """The `run.*` options."""
        record: RunOptions = self.options.record("run")
        return record

    @property
    def uses_starter(self) -> bool:
        """True for the embedded starter model."""
        return self.run.model == STARTER


STARTER = "starter"
NO_TASK = TaskSpec(name="none", target="rlvr:none")
NO_REWARD = RewardSpec(name="none", target="rlvr:none")
"""In place of task and reward where `rlvr config show` was given none."""
