"""RewardContract passes on a right reward, and finds each planted fault."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest

from rlvr import (
    ConfigError,
    NearMissWarning,
    Outcome,
    PartError,
    Problem,
    Reward,
    RewardFn,
    RewardWrapper,
    Trajectory,
    Unscorable,
    VerifierError,
)
from rlvr.testing import RewardContract, ToyReward, ToyTask
from rlvr.testing.contract import opened
from tests.testing.conftest import Broken, Faults, contract_of

breaks = Faults()

(PROBLEM, OTHER, *_) = ToyTask().problems("train")
CASE = (PROBLEM, Trajectory.from_text(PROBLEM.id, "x"))


@breaks("same_answer_same_reward")
class Random(ToyReward):
    turns: Iterator[int] = itertools.count()

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Outcome:
        verdict = await super().__call__(problem, trajectory)
        return attrs.evolve(verdict, value=verdict.value * (1 - 1e-3 * (next(self.turns) % 2)))


@breaks("values_stay_within_the_declared_bounds")
class Unbounded(ToyReward):
    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Outcome:
        verdict = await super().__call__(problem, trajectory)
        return attrs.evolve(verdict, value=verdict.value - 0.5)


@breaks("hostile_text_is_judged_like_any_other")
class ChokesOnGarbage(ToyReward):
    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Outcome:
        trajectory.completion.encode("ascii")
        return await super().__call__(problem, trajectory)


@breaks("equal_keys_mean_equal_verdicts")
class KeyOfTheBeginning(ToyReward):
    def verdict_key(self, problem: Problem, trajectory: Trajectory) -> str:
        return trajectory.completion[:1].encode().hex().zfill(64)


@breaks("hostile_text_is_judged_like_any_other")
class LikesLength(ToyReward):
    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Outcome:
        is_long = len(trajectory.completion) > 10_000
        return (
            Reward(value=1, score01=1) if is_long else await super().__call__(problem, trajectory)
        )


@breaks("repeating_the_prompt_earns_no_top")
class LikesEcho(ToyReward):
    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Outcome:
        is_echo = trajectory.completion == problem.prompt[0].content
        return (
            Reward(value=1, score01=1) if is_echo else await super().__call__(problem, trajectory)
        )


@breaks("empty_answer_earns_nothing")
class GivesHope(ToyReward):
    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Outcome:
        verdict = await super().__call__(problem, trajectory)
        return verdict if trajectory.completion else attrs.evolve(verdict, value=0.2)


@breaks("wrong_answers_earn_less", "cheats_earn_no_top")
class TakesAnything(ToyReward):
    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Outcome:
        return Reward(value=1, score01=1)


@breaks("right_answer_earns_the_top")
class ReturnsAFloat(ToyReward):
    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Any:
        return 1.0


@breaks("verdict_keys_tell_answers_apart")
class OneKeyForAll(ToyReward):
    def verdict_key(self, problem: Problem, trajectory: Trajectory) -> str | None:
        return super().verdict_key(problem, Trajectory.from_text(problem.id, ""))


@breaks("verdict_keys_tell_answers_apart")
class PlainTextKey(ToyReward):
    def verdict_key(self, problem: Problem, trajectory: Trajectory) -> str | None:
        return trajectory.completion


class LeavesAChild(ToyReward):
    children: list[subprocess.Popen[bytes]] = []  # noqa: RUF012  # shared, so the test can end them

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Outcome:
        self.children.append(
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        )
        return await super().__call__(problem, trajectory)


class ChangesTheEnvironment(ToyReward):
    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Outcome:
        os.environ["RLVR_TEST_LEFT_BEHIND"] = trajectory.completion
        return await super().__call__(problem, trajectory)


@breaks("judges_several_at_once")
class MixesUpCalls(ToyReward):
    """Keeps the answer in itself while it waits."""

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Outcome:
        self._now = trajectory
        await asyncio.sleep(0)
        return await super().__call__(problem, self._now)


class ToolIsMissing(ToyReward):
    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Outcome:
        raise VerifierError("no simulator")


@breaks("right_answer_earns_the_top")
class ZeroWhenToolIsMissing(ToyReward):
    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Outcome:
        return Reward(value=0, score01=0)


class Opens(ToyReward):
    """Owns something: judges only while it is open."""

    is_open = False

    async def __aenter__(self) -> Opens:
        self.is_open = True
        return self

    async def __aexit__(self, *_error: object) -> None:
        self.is_open = False

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Outcome:
        if not self.is_open:
            raise VerifierError("not open")
        return await super().__call__(problem, trajectory)


class LosesItself(Opens):
    async def __aenter__(self) -> Any:
        self.is_open = True


class NeverWaits(Opens):
    def __aexit__(self, *_error: object) -> Any:
        self.is_open = False


class Swallows(Opens):
    async def __aexit__(self, *_error: object) -> Any:
        return True


@pytest.mark.parametrize(
    ("reward", "body", "said"),
    [
        (LosesItself, None, "__aenter__.*\n.*; came: None, which does not derive from"),
        (NeverWaits, None, r"__aexit__.*\n.*it raised TypeError: [^(]*\n"),
        (NeverWaits, "skipped", "^skipped$"),
        (Swallows, "skipped", "^skipped$"),
    ],
)
def test_a_part_is_opened_and_closed_as_in_a_run(
    reward: type[Opens], body: str | None, said: str
) -> None:
    """The fault is told in its words, and hides no outcome of the test."""

    async def use() -> None:
        async with opened(reward()):
            if body is not None:
                pytest.skip(body)

    with pytest.raises((PartError, pytest.skip.Exception), match=said):
        asyncio.run(use())


class Undecided(ToyReward):
    """Has no verdict about what is no letter."""

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Outcome:
        if not trajectory.completion.isalpha():
            return Unscorable(reason="no letter")
        return await super().__call__(problem, trajectory)


class HasASecondJudge(ToyReward):
    has_second_opinion = True

    async def second_opinion(self, problem: Problem, trajectory: Trajectory) -> Any:
        return await ToyReward()(problem, trajectory)


class HasNoOpinion(ToyReward):
    has_second_opinion = True

    def second_opinion(self, problem: Problem, trajectory: Trajectory) -> Any:
        """Neither on right answers nor on wrong ones."""


@breaks("second_opinions_confirm_what_is_right_and_nothing_else")
class RejectsWhatIsRight(ToyReward):
    has_second_opinion = True

    async def second_opinion(self, problem: Problem, trajectory: Trajectory) -> Any:
        return Reward(value=0, score01=0)


@breaks("second_opinions_confirm_what_is_right_and_nothing_else")
class ConfirmsAnything(ToyReward):
    has_second_opinion = True

    async def second_opinion(self, problem: Problem, trajectory: Trajectory) -> Any:
        return Reward(value=1, score01=1)


@breaks("second_opinions_confirm_what_is_right_and_nothing_else")
class ThinksInNumbers(ToyReward):
    has_second_opinion = True

    async def second_opinion(self, problem: Problem, trajectory: Trajectory) -> Any:
        return 1.0


@breaks("judges_several_at_once")
class RacesAtFirst(ToyReward):
    """Whoever comes while the first call still opens its table finds none."""

    is_open: bool | None = None

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Outcome:
        if self.is_open is None:
            self.is_open = False
            await asyncio.sleep(0.01)
            self.is_open = True
        verdict = await super().__call__(problem, trajectory)
        return verdict if self.is_open else Reward(value=0, score01=0)


@breaks("is_a_reward_that_declares_what_it_can")
class HidesItsSecondJudge(ToyReward):
    async def second_opinion(self, problem: Problem, trajectory: Trajectory) -> Any:
        return await ToyReward()(problem, trajectory)


@breaks("is_a_reward_that_declares_what_it_can")
class PromisesASecondJudge(ToyReward):
    has_second_opinion = True


class Stands(RewardWrapper):
    """Before another reward."""


class StandsDeaf(RewardWrapper):
    """Before another reward, whose second judge it denies."""

    def __init__(self, inner: RewardFn) -> None:
        super().__init__(inner)
        self.has_second_opinion = False


@breaks("a_reseeded_reward_keeps_its_second_judge")
class ForgetsWhenReseeded(HasASecondJudge):
    def with_seed(self, seed: int) -> ToyReward:
        return ToyReward()


class OnToys(RewardContract):
    """What every reward of these tests is asked."""

    make_broken_reward = ToolIsMissing

    def right(self) -> tuple[Problem, Trajectory]:
        return PROBLEM, Trajectory.from_text(PROBLEM.id, "b")

    def wrong(self) -> Sequence[tuple[Problem, Trajectory]]:
        return [(OTHER, Trajectory.from_text(OTHER.id, "z"))]

    def cheats(self) -> Sequence[tuple[Problem, Trajectory]]:
        return [(PROBLEM, Trajectory.from_text(PROBLEM.id, "abcdefghijklmnopqrstuvwxyz"))]


@pytest.mark.parametrize(
    "reward",
    [
        *(ToyReward, Opens, Undecided, HasASecondJudge, HasNoOpinion),
        *(partial(Stands, Opens()), partial(Stands, HasASecondJudge())),
    ],
)
def test_a_right_reward_holds_every_promise(reward: Any, broken: Broken) -> None:
    """The kit raises no false alarm, also where a reward must be opened or has no verdict."""
    assert broken(OnToys, make_reward=reward) == set()


@pytest.mark.parametrize(
    ("reward", "promise"),
    [
        *breaks.cases,
        (partial(StandsDeaf, HasASecondJudge()), "is_a_reward_that_declares_what_it_can"),
    ],
)
def test_faults_are_found(reward: Any, promise: str, broken: Broken) -> None:
    """Each planted fault fails the test whose promise it breaks."""
    assert promise in broken(OnToys, promise, make_reward=reward)


def test_a_failure_told_as_zero_is_found(broken: Broken) -> None:
    """A verifier that gives 0 when its tool is missing fails: infrastructure is never a reward."""
    found = broken(OnToys, make_reward=ToyReward, make_broken_reward=ZeroWhenToolIsMissing)

    assert found == {"broken_verifier_raises_and_never_scores"}


class RefusesAnswers(ToyReward):
    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Outcome:
        if not trajectory.completion:
            raise ConfigError("no answer")
        return await super().__call__(problem, trajectory)


def test_an_answer_that_is_refused_is_a_broken_promise() -> None:
    """`plugins check` takes a ConfigError for a refusal of options; of answers there is none."""
    with pytest.raises(AssertionError, match="it raised ConfigError"):
        contract_of(OnToys, make_reward=RefusesAnswers)().test_empty_answer_earns_nothing()


class UsesUp(ToyReward):
    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Outcome:
        is_right = float(trajectory.completion == problem.payload[0])
        problem.payload.append(trajectory.completion)
        return Reward(value=is_right, score01=is_right)


def test_a_problem_that_is_changed_by_judging_is_found(broken: Broken) -> None:
    """All answers of a group are judged by the same problem; the field is named."""

    def right() -> tuple[Problem, Trajectory]:
        problem = Problem(id="a", prompt=(), payload=["b"])
        return problem, Trajectory.from_text("a", "b")

    given: dict[str, Any] = {"make_reward": UsesUp, "right": right, "wrong": tuple, "cheats": tuple}
    assert broken(OnToys, **given) == {"leaves_the_problem_alone"}
    with pytest.raises(AssertionError, match="it changed payload"):
        contract_of(OnToys, **given)().test_leaves_the_problem_alone()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"components": {"a": "b"}}, "no finite number"),
        ({"evidence": {"a": object()}}, "evidence that is no JSON"),
        ({"cost_s": float("inf")}, "cost_s = inf"),
    ],
)
def test_a_verdict_that_a_run_would_refuse_is_none(wrong: dict[str, Any], said: str) -> None:
    """The kit holds each field to what the runner does."""

    class Wrong(ToyReward):
        async def __call__(self, problem: Problem, trajectory: Trajectory) -> Outcome:
            return attrs.evolve(await super().__call__(problem, trajectory), **wrong)

    with pytest.raises(AssertionError, match=said):
        contract_of(OnToys, make_reward=Wrong)().test_right_answer_earns_the_top()


def test_a_child_left_running_is_found() -> None:
    """A process that outlives its verification is named."""
    try:
        with pytest.raises(AssertionError, match="left running the process"):
            contract_of(OnToys, make_reward=LeavesAChild)().test_leaves_nothing_behind()
    finally:
        for child in LeavesAChild.children:
            child.kill()
            child.wait(timeout=60)


def test_a_changed_environment_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A verifier may not leave variables in this process's environment."""
    monkeypatch.setenv("RLVR_TEST_LEFT_BEHIND", "before")

    with pytest.raises(AssertionError):
        contract_of(OnToys, make_reward=ChangesTheEnvironment)().test_leaves_nothing_behind()


def test_each_promise_begins_with_the_environment_of_before() -> None:
    """Else the change of an earlier one, or of a test of one's own, would hide the next one's."""
    contract, before = OnToys(), (dict(os.environ), Path.cwd())
    contract.teardown_method()
    contract.setup_method()
    os.environ.update(RLVR_TEST_NEW="1", HOME="/")
    del os.environ["PATH"]
    os.chdir("/")

    contract.teardown_method()

    assert (dict(os.environ), Path.cwd()) == before


SLIPS = (
    *("verdict_keys", "verdictKeys", "verdict_kye", "with_seeds", "withSeeds", "wiht_seed"),
    *("at_steps", "at_setp", "expected_second", "expectedSecond", "epxected_seconds"),
    *("second_opinions", "secondOpinions", "second_opnion", "has_second_opinions"),
    *("has_second_opinon", "hasSecondOpinions"),
)


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_in_an_optional_name_is_refused(slip: str) -> None:
    """A misspelt ability would be switched off in silence: its class cannot be made."""
    with pytest.raises(TypeError, match="did you mean"):
        type("Slipped", (ToyReward,), {slip: lambda self: None})


def test_a_likeness_of_an_optional_name_fails_the_kit(broken: Broken) -> None:
    """What is only warned of when the class is made is a failure of the kit."""
    with pytest.warns(NearMissWarning, match="expected_seconds"):
        likeness = type("Likely", (ToyReward,), {"expected_secs": lambda self: None})
    with pytest.warns(NearMissWarning, match="second_opinion"):
        other = type("Likely", (ToyReward,), {"second_opinion_of": lambda self: None})

    for reward in (likeness, other):
        assert broken(OnToys, make_reward=reward) == {"is_a_reward_that_declares_what_it_can"}


class HasTheLot(HasASecondJudge):
    """A reward with every ability."""

    made_with: Any = None

    def with_seed(self, seed: int) -> RewardFn:
        other = HasTheLot()
        other.made_with = seed
        return other

    def at_step(self, step: int, history: Any) -> RewardFn:
        other = HasTheLot()
        other.made_with = step
        return other

    def expected_seconds(self, problem: Problem, trajectory: Trajectory) -> float:
        return 7.0


def test_a_wrapper_can_do_all_that_the_inner_reward_can() -> None:
    """Keys, seeds, steps, durations and the second judge come through, and their absence too."""
    case = PROBLEM, Trajectory.from_text(PROBLEM.id, "b")
    whole, plain = Stands(HasTheLot()), Stands(ToyReward())

    assert whole.verdict_key(*case) == ToyReward().verdict_key(*case)
    seeded, stepped = whole.with_seed(3), whole.at_step(2, {})
    assert isinstance(seeded, Stands)
    assert isinstance(seeded.inner, HasTheLot)
    assert isinstance(stepped, Stands)
    assert isinstance(stepped.inner, HasTheLot)
    assert (seeded.inner.made_with, stepped.inner.made_with) == (3, 2)
    assert (whole.expected_seconds(*case), plain.expected_seconds(*case)) == (7.0, 0.0)
    assert (whole.has_second_opinion, plain.has_second_opinion) == (True, False)
    opinion = asyncio.run(whole.second_opinion(*case))
    assert opinion is not None
    assert opinion.score01 == 1.0
    assert asyncio.run(plain.second_opinion(*case)) is None
    assert plain.with_seed(3) is None
    assert plain.at_step(2, {}) is plain


@pytest.mark.parametrize("given", [[CASE, CASE], CASE[1], None])
def test_cases_that_are_no_pairs_are_named(given: Any) -> None:
    """A list of answers, an answer without its problem, nothing: the kit says what it expects."""

    class Case(RewardContract):
        def make_reward(self) -> RewardFn:
            return ToyReward()

        def right(self) -> Any:
            return given

    with pytest.raises(pytest.fail.Exception, match=r"a pair \(Problem, Trajectory\)"):
        Case().test_right_answer_earns_the_top()
