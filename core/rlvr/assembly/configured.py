"""Records of a configuration: the resolved options and the chosen specs."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

import rlvr.specs as specs
from rlvr.config.core import RunOptions
from rlvr.config.layers import Options
from rlvr.plugins.host import PluginHost


@frozen(kw_only=True)
class Chosen:
    """The specs a run is made of. Parts that a command does not need are None."""

    task: specs.TaskSpec
    reward: specs.RewardSpec
    algorithm: specs.AlgorithmSpec | None = None
    sampler: specs.SamplerSpec | None = None
    advantage: specs.AdvantageSpec | None = None
    loss: specs.LossSpec | None = None
    backend: specs.BackendSpec | None = None
    checkpointer: specs.CheckpointerSpec | None = None
    curriculum: specs.CurriculumSpec | None = None
    teachers: tuple[specs.TeacherSpec, ...] = ()
    callbacks: tuple[specs.CallbackSpec, ...] = ()

    def parts(self) -> list[specs.PartSpec]:
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


STARTER = "starter"
NO_TASK = specs.TaskSpec(name="no-task", target="rlvr:none")
NO_REWARD = specs.RewardSpec(name="no-reward", target="rlvr:none")
"""In place of task and reward where `rlvr config show` was given none."""
