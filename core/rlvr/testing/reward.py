"""The promises of a reward, as tests to inherit."""

from __future__ import annotations

import asyncio
import inspect
import math
import pickle
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from rlvr.border.abilities import reseeded, seconds_of
from rlvr.border.calls import shown
from rlvr.errors import VerifierError
from rlvr.parts import RewardFn
from rlvr.testing.contract import (
    Contract,
    check_declarations,
    check_part,
    differing,
    judged,
    not_given,
    on_open,
    opened,
    same,
)
from rlvr.testing.process import nothing_changed
from rlvr.testing.reward_keys import Case, KeyPromises, verdict_in
from rlvr.types import Outcome, Problem, Reward, Trajectory, Unscorable

INFINITE = "x" * 1_000_000
HOSTILE = ("\x00\x1b[2J\x00", "../../../../etc/passwd", "\ufffd\u202e\U0001f600", INFINITE)


class RewardContract(KeyPromises, Contract):
    """
    Tests of a reward's promises. Define `make_reward` and `right`, better also the others.

    Attributes:
        bounds: Lowest and highest value, as the spec declares them; infinite: any.
    """

    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def make_reward(self) -> RewardFn:
        """A new reward, as its spec's target builds it."""
        raise not_given(self, "make_reward")

    def right(self) -> Case:
        """A problem and an answer that is right."""
        raise not_given(self, "right")

    def wrong(self) -> Sequence[Case]:
        """Problems and answers that look like answers and are wrong."""
        return ()

    def cheats(self) -> Sequence[Case]:
        """Answers that attack this verifier: forged results, overwritten tests, early exits."""
        return ()

    def make_broken_reward(self) -> RewardFn | None:
        """The reward with its tool missing, crashing or too slow; None where it has no tool."""
        return None

    # --- promises -------------------------------------------------------------------------------

    def test_is_a_reward_that_declares_what_it_can(self) -> None:
        """It derives from `RewardFn`, misspells no name, and declares its second opinion."""
        reward = self.make_reward()
        check_part(reward, RewardFn)
        check_declarations(reward)

    def test_right_answer_earns_the_top(self) -> None:
        """The right answer scores 1 and has the highest value, where a finite one was declared."""
        (outcome,) = self._judge(self.right())
        assert isinstance(outcome, Reward), f"the right answer is judged {outcome!r:.80}"
        assert outcome.score01 == 1.0, f"the right answer has score01 = {outcome.score01:g}"
        if math.isfinite(self.bounds[1]):
            wrong = f"the right answer has value = {outcome.value:g}, not {self.bounds[1]:g}"
            assert outcome.value == pytest.approx(self.bounds[1]), wrong

    def test_wrong_answers_earn_less(self) -> None:
        """No wrong answer scores 1 or has the top value."""
        self._assert_not_right(*self.wrong())

    def test_empty_answer_earns_nothing(self) -> None:
        """The empty answer has the lowest value."""
        problem, _ = self.right()
        (outcome,) = self._judge((problem, Trajectory.from_text(problem.id, "")))
        if isinstance(outcome, Reward):
            says = "the empty answer has"
            assert outcome.score01 == 0.0, f"{says} score01 = {outcome.score01:g}, not 0"
            wrong = f"{says} value = {outcome.value:g}, not {self.bounds[0]:g}, the lowest"
            assert outcome.value == pytest.approx(self.bounds[0]), wrong

    def test_repeating_the_prompt_earns_no_top(self) -> None:
        """The prompt, repeated as the answer, is not right."""
        problem, _ = self.right()
        echo = "\n".join(message.content for message in problem.prompt)
        self._assert_not_right((problem, Trajectory.from_text(problem.id, echo)))

    def test_hostile_text_is_judged_like_any_other(self) -> None:
        """NUL bytes, escapes, paths and a megabyte of text get an outcome, never the top."""
        problem, _ = self.right()
        texts = (Trajectory.from_text(problem.id, text) for text in HOSTILE)
        self._assert_not_right(*((problem, text) for text in texts))

    def test_cheats_earn_no_top(self) -> None:
        """None of the attacks listed in `cheats` is taken for a right answer."""
        self._assert_not_right(*self.cheats())

    def test_same_answer_same_reward(self) -> None:
        """Judged twice, by one verifier and by a new one, an answer gets the same verdict."""
        cases = [self.right(), *self.wrong()]
        twice = self._judge(*(case for case in cases for _ in range(2)))
        anew = self._judge(*cases)
        for case, first, second, third in zip(cases, twice[::2], twice[1::2], anew, strict=True):
            verdicts = [verdict_in(outcome) for outcome in (first, second, third)]
            said = f"verdicts of an answer to {case[0].id!r}: {', then '.join(map(str, verdicts))}"
            assert verdicts[0] == verdicts[1] == verdicts[2], said

    def test_leaves_the_problem_alone(self) -> None:
        """Judging an answer does not change the problem: others are judged by it too."""
        problem, answer = self.right()
        before = pickle.loads(pickle.dumps(problem))
        is_comparable = before == problem
        self._judge((problem, answer))
        assert not is_comparable or before == problem, f"it changed {differing(before, problem)}"

    @on_open("make_reward")
    async def test_judges_several_at_once(self, reward: RewardFn) -> None:
        """Verdicts reached at the same time are those reached one by one."""
        cases = [self.right(), *self.wrong()]
        together = await asyncio.gather(*(judged(reward, *case) for case in cases * 2))
        async with opened(self.make_reward()) as other:
            alone = [verdict_in(await judged(other, *case)) for case in cases]
        same("verdicts reached at once", [verdict_in(one) for one in together], alone * 2)

    def test_values_stay_within_the_declared_bounds(self) -> None:
        """Every value lies between the bounds, and outcomes pickle."""
        low, high = self.bounds
        for outcome in self._judge(self.right(), *self.wrong(), *self.cheats()):
            same("outcome after pickling", pickle.loads(pickle.dumps(outcome)), outcome)
            if isinstance(outcome, Reward):
                says = f"value = {outcome.value:g} is outside the declared bounds {low:g}, {high:g}"
                assert low <= outcome.value <= high, says

    def test_broken_verifier_raises_and_never_scores(self) -> None:
        """A verifier that cannot run says so with `VerifierError`; it gives no number."""
        broken = self.make_broken_reward()
        if broken is None:
            pytest.skip("no make_broken_reward: this verifier has no tool that could fail")

        async def judge() -> Outcome:
            async with opened(broken) as reward:
                outcome: Outcome = await judged(reward, *self.right())
                return outcome

        with pytest.raises(VerifierError):
            asyncio.run(judge())

    @on_open("make_reward")
    async def test_expects_a_number_of_seconds(self, reward: RewardFn) -> None:
        """About how long a verification takes: finite, and not below 0."""
        for case in [self.right(), *self.wrong()]:
            seconds = seconds_of(reward, *case)
            assert seconds >= 0, f"expected seconds are {seconds}"

    @on_open("make_reward")
    async def test_second_opinions_confirm_what_is_right_and_nothing_else(
        self, reward: RewardFn
    ) -> None:
        """The second judge never rejects the right answer, and never confirms a wrong one."""
        if not reward.has_second_opinion:
            pytest.skip("this reward has no second opinion")
        right, wrong = self.right(), [*self.wrong(), *self.cheats()]
        said = []
        for case in (right, right, *wrong):
            opinion: Any = reward.second_opinion(*case)
            said.append(await opinion if inspect.isawaitable(opinion) else opinion)
        for opinion in said:
            assert opinion is None or isinstance(opinion, Reward), (
                f"second_opinion gives Reward or None, or raises VerifierError; got {opinion!r}"
            )
        for opinion in said[:2]:
            is_confirmed = opinion is None or opinion.score01 == 1.0
            assert is_confirmed, f"the second judge rejects the right answer: {opinion!r:.200}"
        for case, opinion in zip(wrong, said[2:], strict=True):
            says = f"confirms the wrong answer {case[1].completion[:80]!r} to {case[0].id!r}"
            is_rejected = opinion is None or opinion.score01 < 1.0
            assert is_rejected, f"the second judge {says}"

    @on_open("make_reward")
    async def test_a_reseeded_reward_keeps_its_second_judge(self, reward: RewardFn) -> None:
        """With another seed the reward has a second judge if and only if it has one without."""
        seeded = reseeded(reward, 1)
        if seeded is not None:
            has = [one.has_second_opinion for one in (seeded, reward)]
            same("has_second_opinion with another seed", *has)

    def test_leaves_nothing_behind(self) -> None:
        """After closing, no child process lives, and what the process shares is as before."""
        with nothing_changed():
            self._judge(self.right(), *self.wrong())

    # --- helpers --------------------------------------------------------------------------------

    def _judge(self, *cases: Case) -> list[Outcome]:
        """Outcomes of one new verifier for the cases, one after the other."""
        for one in cases:
            match one:
                case [Problem(), Trajectory()]:
                    continue
            pytest.fail(
                "right() gives a pair (Problem, Trajectory), and wrong() and cheats() give lists "
                f"of such pairs; came: {shown(one)}"
            )

        async def judge() -> list[Outcome]:
            async with opened(self.make_reward()) as reward:
                return [await judged(reward, *case) for case in cases]

        outcomes = asyncio.run(judge()) if cases else []
        for outcome in outcomes:
            assert isinstance(outcome, Reward | Unscorable), (
                f"a reward returns Reward or Unscorable, or raises VerifierError; got {outcome!r}"
            )
        return outcomes

    def _assert_not_right(self, *cases: Case) -> None:
        for case, outcome in zip(cases, self._judge(*cases), strict=True):
            if isinstance(outcome, Reward):
                of = f"the answer {case[1].completion[:80]!r} to {case[0].id!r} is judged"
                assert outcome.score01 < 1.0, f"{of} right (score01 = 1)"
                wrong = f"{of} value = {outcome.value:g}, the top of its bounds, and is not right"
                assert outcome.value < self.bounds[1], wrong
