"""The test kit for plugin authors: contracts to inherit, fakes to run against, tools to skip by.

Needs pytest (`pip install "rlvr[testing]"`); LossContract, BackendContract and TinyBackend also
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
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlvr.testing.advantage import AdvantageContract
    from rlvr.testing.backend import BackendContract
    from rlvr.testing.callback import CallbackContract
    from rlvr.testing.checkpointer import CheckpointerContract
    from rlvr.testing.contract import opened
    from rlvr.testing.curriculum import CurriculumContract
    from rlvr.testing.fakes import (
        CharTokenizer,
        ScriptedPolicy,
        TinyBackend,
        TinyRevealer,
        TinyTeacher,
        ToyReward,
        ToyTask,
        random_data,
    )
    from rlvr.testing.loss import LossContract
    from rlvr.testing.plugin import PluginContract
    from rlvr.testing.reward import RewardContract
    from rlvr.testing.sampler import SamplerContract
    from rlvr.testing.task import TaskContract
    from rlvr.testing.teacher import TeacherContract
    from rlvr.testing.tools import require_tool, shared_data

_HOMES = {
    "AdvantageContract": "advantage",
    "BackendContract": "backend",
    "CallbackContract": "callback",
    "CharTokenizer": "fakes",
    "CheckpointerContract": "checkpointer",
    "CurriculumContract": "curriculum",
    "LossContract": "loss",
    "PluginContract": "plugin",
    "RewardContract": "reward",
    "SamplerContract": "sampler",
    "ScriptedPolicy": "fakes",
    "TaskContract": "task",
    "TeacherContract": "teacher",
    "TinyBackend": "fakes",
    "TinyRevealer": "fakes",
    "TinyTeacher": "fakes",
    "ToyReward": "fakes",
    "ToyTask": "fakes",
    "opened": "contract",
    "random_data": "fakes",
    "require_tool": "tools",
    "shared_data": "tools",
}

__all__ = [
    "AdvantageContract",
    "BackendContract",
    "CallbackContract",
    "CharTokenizer",
    "CheckpointerContract",
    "CurriculumContract",
    "LossContract",
    "PluginContract",
    "RewardContract",
    "SamplerContract",
    "ScriptedPolicy",
    "TaskContract",
    "TeacherContract",
    "TinyBackend",
    "TinyRevealer",
    "TinyTeacher",
    "ToyReward",
    "ToyTask",
    "opened",
    "random_data",
    "require_tool",
    "shared_data",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = f"{__name__}.{_HOMES[name]}"
    pytest = sys.modules.get("pytest")
    if pytest is not None and module not in sys.modules:
        pytest.register_assert_rewrite(module)  # a failing contract then shows the values
    return getattr(importlib.import_module(module), name)
