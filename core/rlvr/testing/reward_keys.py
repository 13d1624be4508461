"""A part of `RewardContract`: promises about the keys under which verdicts are stored."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rlvr.border.abilities import key_of, reseeded, reward_at
from rlvr.parts import RewardFn
from rlvr.testing.contract import judged, on_open, opened, same
from rlvr.types import Outcome, PassRate, Problem, Reward, Trajectory

Case = tuple[Problem, Trajectory]


class KeyPromises:
    """A stored verdict is the one that the reward would give, in every process."""

    make_reward: Callable[[], RewardFn]
    right: Callable[[], Case]
    wrong: Callable[[], Sequence[Case]]

    def repeatable(self) -> Any:
        """The key of the right answer's verdict."""

        async def key() -> str | None:
            async with opened(self.make_reward()) as reward:
                return key_of(reward, *self.right())

        found = asyncio.run(key())
        return found and [found]

    @on_open("make_reward")
    async def test_verdict_keys_tell_answers_apart(self, reward: RewardFn) -> None:
        """Keys are sha256 in hexadecimal, the same from a new verifier, different by answer."""
        case = self.right()
        key = key_of(reward, *case)
        async with opened(self.make_reward()) as other:
            same("key of one answer by another verifier", key_of(other, *case), key)
        if key is None:
            pytest.skip("the right answer's verdict is not kept (verdict_key gave None)")
        assert re.fullmatch("[0-9a-f]{64}", key), f"a key is {key!r:.80}, no sha256 in hexadecimal"
        empty = key_of(reward, case[0], Trajectory.from_text(case[0].id, ""))
        assert empty != key, "the empty answer has the key of the right one"

    @on_open("make_reward")
    async def test_equal_keys_mean_equal_verdicts(self, reward: RewardFn) -> None:
        """Equal keys have equal verdicts, for all answers, seeds and steps."""
        told: dict[str, tuple[object, str]] = {}
        right = self.right()
        for who, variant in [("the reward", reward), *_variants(reward)]:
            for case in [right, *self.wrong()]:
                if (key := key_of(variant, *case)) is not None:
                    verdict = verdict_in(await judged(variant, *case))
                    other, of = told.setdefault(key, (verdict, f"{who} on {case[0].id}"))
                    says = f"{who} on {case[0].id} has the key of {of}, and the verdict"
                    same(says, verdict, other)
        own = key_of(reward, *right)
        for near in _near(right):
            if own and key_of(reward, *near) == own:  # judged then alone: verifiers may be slow
                verdict = verdict_in(await judged(reward, *near))
                says = f"the answer {near[1].completion[:40]!r} has the key of the right one, "
                says += f"{right[1].completion[:40]!r}: take all into the key that a verdict reads"
                assert verdict == told[own][0], says

    @on_open("make_reward")
    async def test_steps_and_seeds_are_functions_of_their_arguments(self, reward: RewardFn) -> None:
        """The same seed, or step, gives the same verdict and the same key again."""
        case = self.right()
        for (who, one), (_, again) in zip(_variants(reward), _variants(reward), strict=True):
            same(f"key of {who}, made twice", key_of(again, *case), key_of(one, *case))
            first, second = [verdict_in(await judged(variant, *case)) for variant in (one, again)]
            same(f"verdict of {who}, made twice", second, first)


def _near(case: Case) -> list[Case]:
    """The same problem with answers that differ little from this one."""
    problem, answer = case
    text = answer.completion
    last = "b" if text.endswith("a") else "a"
    texts = {text[:1], text[:-1], text[:-1] + last, last + text[1:], text + last, text.swapcase()}
    return [(problem, Trajectory.from_text(problem.id, one)) for one in sorted(texts - {text})]


def _variants(reward: RewardFn) -> list[tuple[str, RewardFn]]:
    """Other rewards that this one gives for other seeds and for steps."""
    history = {"problem": PassRate(rate=0.5, count=1, step=0)}
    others = [(f"with_seed({seed})", reseeded(reward, seed)) for seed in (1, 2)]
    for step, known in ((0, {}), (1000, history)):
        others.append((f"at_step({step})", reward_at(reward, step, known)))
    return [(who, one) for who, one in others if one is not None and one is not reward]


def verdict_in(outcome: Outcome) -> object:
    """The parts of an outcome that must repeat: not its time, nor whether it came from a store."""
    if isinstance(outcome, Reward):
        numbers = outcome.value, outcome.score01, dict(outcome.components), outcome.tests_passed
        return *numbers, outcome.is_proxy
    return type(outcome)
