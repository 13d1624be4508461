"""Runs the hidden tests on a state of files, and tells only whether they pass."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from weakref import WeakValueDictionary

from rlvr import Problem, Reward, RewardFn, Trajectory

_KEPT = 20_000


class HiddenTests:
    """
    Whether the harness accepts files: one bit, and nothing else of what it said.

    Equal answers are asked about once, also when they come at the same time. The judge is the
    reward itself, so that the bit and the reward never disagree.
    """

    def __init__(self, judge: RewardFn) -> None:
        self._judge = judge
        self._known: OrderedDict[str, bool] = OrderedDict()
        self._asking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def accept(self, problem: Problem, files: Mapping[str, str]) -> bool:
        """
        Run the harness on a fresh tree.

        Raises:
            VerifierError: It could not be run; that says nothing about the files.
        """
        trajectory = Trajectory(problem_id=problem.id, files=files)
        key = self._judge.verdict_key(problem, trajectory) or ""
        lock = self._asking.setdefault(key, asyncio.Lock())
        async with lock:
            if key not in self._known or not key:
                outcome = await self._judge(problem, trajectory)
                self._known[key] = isinstance(outcome, Reward) and outcome.score01 == 1.0
            self._known.move_to_end(key)
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
            return self._known[key]
