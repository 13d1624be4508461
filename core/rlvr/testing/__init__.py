"""The test kit for plugin authors: contracts to inherit, fakes to run against, tools to skip by.

Needs pytest (extra `testing`); LossContract, BackendContract and TinyBackend also
need torch when they run. Every name is imported when it is first used.

A contract is a class of tests. Inherit it, give one or two factories, and pytest does the rest:

    from rlvr.testing import RewardContract

    class TestMyReward(RewardContract):
        def make_reward(self): ...
        def right(self): ...

Contracts (one a part): TaskContract, RewardContract, CurriculumContract, SamplerContract,
AdvantageContract, LossContract, BackendContract, TeacherContract, CheckpointerContract,
CallbackContract, and PluginContract for `plugin.py` itself.
Fakes: CharTokenizer, ScriptedPolicy, ToyTask, ToyReward, TinyBackend, TinyTeacher, TinyRevealer,
random_data.
Tools: require_tool, shared_data, opened.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlvr.testing.advantage import AdvantageContract as AdvantageContract
    from rlvr.testing.backend import BackendContract as BackendContract
    from rlvr.testing.callback import CallbackContract as CallbackContract
    from rlvr.testing.checkpointer import CheckpointerContract as CheckpointerContract
    from rlvr.testing.contract import opened as opened
    from rlvr.testing.curriculum import CurriculumContract as CurriculumContract
    from rlvr.testing.fakes import CharTokenizer as CharTokenizer
    from rlvr.testing.fakes import ScriptedPolicy as ScriptedPolicy
    from rlvr.testing.fakes import TinyBackend as TinyBackend
    from rlvr.testing.fakes import TinyRevealer as TinyRevealer
    from rlvr.testing.fakes import TinyTeacher as TinyTeacher
    from rlvr.testing.fakes import ToyReward as ToyReward
    from rlvr.testing.fakes import ToyTask as ToyTask
    from rlvr.testing.fakes import random_data as random_data
    from rlvr.testing.loss import LossContract as LossContract
    from rlvr.testing.plugin import PluginContract as PluginContract
    from rlvr.testing.reward import RewardContract as RewardContract
    from rlvr.testing.sampler import SamplerContract as SamplerContract
    from rlvr.testing.task import TaskContract as TaskContract
    from rlvr.testing.teacher import TeacherContract as TeacherContract
    from rlvr.testing.tools import require_tool as require_tool
    from rlvr.testing.tools import shared_data as shared_data

_FAKES = (
    *("CharTokenizer", "ScriptedPolicy", "TinyBackend", "TinyRevealer", "TinyTeacher"),
    *("ToyReward", "ToyTask", "random_data"),
)
_PARTS = (
    *("Advantage", "Backend", "Callback", "Checkpointer", "Curriculum", "Loss", "Plugin"),
    *("Reward", "Sampler", "Task", "Teacher"),
)
_HOMES = {
    **{f"{part}Contract": part.lower() for part in _PARTS},
    **dict.fromkeys(_FAKES, "fakes"),
    "opened": "contract",
    **dict.fromkeys(("require_tool", "shared_data"), "tools"),
}

__all__ = sorted(_HOMES)


if not TYPE_CHECKING:  # a name that is misspelt fails in mypy

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = f"{__name__}.{_HOMES[name]}"
        pytest = sys.modules.get("pytest")
        if pytest is not None and module not in sys.modules:
            beside = [found.name for found in pkgutil.iter_modules(__path__, f"{__name__}.")]
            new = [name for name in beside if name not in sys.modules]
            pytest.register_assert_rewrite(*new)  # a failing contract then shows the values
        return getattr(importlib.import_module(module), name)
