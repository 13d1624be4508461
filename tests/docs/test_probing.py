"""The example task of the page on abilities holds the contract."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from rlvr import Reward, RewardFn
from rlvr.testing import TaskContract

FILE = Path(__file__).parents[2] / "examples" / "probing.py"


class IsTheSum(RewardFn):
    """1 where the answer is the number."""

    def __call__(self, problem: Any, trajectory: Any) -> Reward:
        text = trajectory.completion
        is_right = text.isdecimal() and int(text) == problem.payload
        return Reward(value=float(is_right), score01=float(is_right))


class TestSums(TaskContract):
    """All promises, those of annotate, probes and prove as well."""

    def make_task(self) -> Any:
        spec = importlib.util.spec_from_file_location("probing", FILE)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.Sums()

    def make_reward(self) -> RewardFn:
        return IsTheSum()
