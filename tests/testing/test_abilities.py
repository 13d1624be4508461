"""The kit asks each optional method that a part overrides, as a run does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Self

import attrs
import numpy as np
import pytest

from rlvr import (
    Advantage,
    Backend,
    Callback,
    Capabilities,
    Loss,
    Message,
    Metric,
    Needs,
    PartError,
    Policy,
    Probe,
    Problem,
    RewardFn,
    Task,
    Teacher,
    TeacherCapabilities,
    Tokenizer,
    Trajectory,
)
from rlvr.border.declared import fault_of_declarations
from rlvr.testing import (
    AdvantageContract,
    CallbackContract,
    RewardContract,
    TaskContract,
    ToyReward,
    ToyTask,
)
from rlvr.testing.fakes import CentredAdvantage, ReinforceLoss
from tests.testing.conftest import Broken, Faults

task_breaks, reward_breaks = Faults(), Faults()


class Able(ToyTask):
    """The toy task with every ability, as it should be."""

    discovers_problems = True

    def annotate(self, problem: Problem, trajectory: Trajectory) -> Mapping[str, Any]:
        return {"place": np.arange(len(trajectory.tokens))}

    def probes(self, problem: Problem, *, count: int, seed: int) -> Iterable[Probe]:
        yield Probe(kind="empty", trajectory=Trajectory.from_text(problem.id, ""))
        right = Trajectory.from_text(problem.id, problem.payload.letter)
        yield Probe(kind="right", trajectory=right, is_right=True)
        for letter in "0123456789"[:count]:
            wrong = Trajectory.from_text(problem.id, letter)
            yield Probe(kind="digit", trajectory=wrong, is_mutant=True)

    def prove(self, problem: Problem, probe: Probe) -> bool | None:
        return probe.is_right

    async def discover(
        self, policy: Policy, memory: Mapping[str, Any], *, seed: int, step: int
    ) -> Mapping[str, Any]:
        return {"found": [*memory.get("found", []), f"{seed}-{step}"]}

    def discovered(self, memory: Mapping[str, Any]) -> Sequence[Problem]:
        prompt = (Message(role="user", content="?"),)
        return [Problem(id=name, prompt=prompt) for name in memory.get("found", [])]

    async def measure(self, policy: Policy, *, split: str, seed: int) -> AsyncIterator[Metric]:
        yield Metric(name="toy/one", value=0.5, low=0.1, high=0.9, n=3)


def test_an_able_task_holds_every_promise(broken: Broken) -> None:
    """The kit raises no false alarm."""
    assert broken(TaskContract, make_reward=ToyReward, make_task=Able) == set()


@task_breaks("annotates_each_token")
class AnnotatesTooFew(Able):
    def annotate(self, problem: Problem, trajectory: Trajectory) -> Any:
        return {"place": [1.0]}


@task_breaks("annotates_each_token")
class AnnotatesNothingKnown(Able):
    def annotate(self, problem: Problem, trajectory: Trajectory) -> Any:
        return {"place": np.full(len(trajectory.tokens), np.nan)}


@task_breaks("probes_are_answers_whose_verdict_is_known")
class ProbesInTexts(Able):
    def probes(self, problem: Problem, *, count: int, seed: int) -> Any:
        return ["", "x"]


@task_breaks("probes_are_answers_whose_verdict_is_known")
class ProbesOfOthers(Able):
    def probes(self, problem: Problem, *, count: int, seed: int) -> Any:
        yield Probe(kind="empty", trajectory=Trajectory.from_text("another", ""))


@task_breaks("probes_are_answers_whose_verdict_is_known")
class ProbesByChance(Able):
    def probes(self, problem: Problem, *, count: int, seed: int) -> Any:
        said = Trajectory.from_text(problem.id, str(count))
        yield Probe(kind="count", trajectory=said)


@task_breaks("probes_are_answers_whose_verdict_is_known")
class CallsWrongRight(Able):
    def probes(self, problem: Problem, *, count: int, seed: int) -> Any:
        yield Probe(kind="wrong", trajectory=Trajectory.from_text(problem.id, "?"), is_right=True)


@task_breaks("proves_what_can_be_proven")
class ProvesInWords(Able):
    def prove(self, problem: Problem, probe: Probe) -> Any:
        return "yes"


@task_breaks("proves_what_can_be_proven")
class RefutesWhatIsRight(Able):
    def prove(self, problem: Problem, probe: Probe) -> bool:
        return False


@task_breaks("discovers_by_its_arguments_alone")
class RemembersByCalls(Able):
    def __init__(self) -> None:
        super().__init__()
        self._calls = 0

    async def discover(self, policy: Any, memory: Any, *, seed: int, step: int) -> Any:
        self._calls += 1
        return {"found": [str(self._calls)]}


@task_breaks("discovers_by_its_arguments_alone")
class FindsWhatIsThere(Able):
    def discovered(self, memory: Mapping[str, Any]) -> Sequence[Problem]:
        return list(self.problems("train"))[:1]


@task_breaks("discovers_by_its_arguments_alone")
class FindsTexts(Able):
    def discovered(self, memory: Mapping[str, Any]) -> Any:
        return ["one"]


@task_breaks("measures_figures")
class MeasuresNumbers(Able):
    async def measure(self, policy: Policy, *, split: str, seed: int) -> Any:
        yield 0.5


@task_breaks("measures_figures")
class MeasuresAtOnce(Able):
    async def measure(self, policy: Policy, *, split: str, seed: int) -> Any:  # type: ignore[override]
        return [Metric(name="toy/one", value=0.5, low=0.1, high=0.9, n=3)]


@task_breaks("measures_figures")
class MeasuresTwice(Able):
    async def measure(self, policy: Policy, *, split: str, seed: int) -> Any:
        for _ in range(2):
            yield Metric(name="toy/one", value=0.5, low=0.1, high=0.9, n=3)


@task_breaks("says_why_in_words")
class WarnsInLetters(Able):
    def warnings(self, split: str) -> Iterable[str]:
        return "beware"


class NeedsOpening(Able):
    async def __aenter__(self) -> Self:
        self.rows = "abc"
        return self

    def problems(self, split: str) -> Iterable[Problem]:
        assert self.rows
        return super().problems(split)


@pytest.mark.parametrize(("task", "promise"), task_breaks.cases)
def test_faults_of_tasks_are_found(task: type, promise: str, broken: Broken) -> None:
    """Each planted fault fails the test whose promise it breaks."""
    assert promise in broken(TaskContract, promise, make_reward=ToyReward, make_task=task)


def test_tasks_are_open_when_they_are_asked(broken: Broken) -> None:
    """As in a run."""
    assert broken(TaskContract, make_reward=ToyReward, make_task=NeedsOpening) == set()


class Seeded(ToyReward):
    """Draws its tests from a seed: another seed, another key."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def with_seed(self, seed: int) -> RewardFn | None:
        return type(self)(seed)

    def verdict_key(self, problem: Problem, trajectory: Trajectory) -> str | None:
        key = super().verdict_key(problem, trajectory)
        return None if key is None else f"{self.seed % 16:x}" + key[1:]


@reward_breaks("equal_keys_mean_equal_verdicts")
class Forgets(Seeded):
    """The key does not hold the seed, and the verdict depends on it."""

    def verdict_key(self, problem: Problem, trajectory: Trajectory) -> str | None:
        return ToyReward.verdict_key(self, problem, trajectory)

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Any:
        verdict = await super().__call__(problem, trajectory)
        return attrs.evolve(verdict, components={"seed": float(self.seed)})


@reward_breaks("equal_keys_mean_equal_verdicts")
class ProxyWithTheSameKey(ToyReward):
    def __init__(self, is_proxy: bool = False) -> None:
        self.is_proxy = is_proxy

    def at_step(self, step: int, history: Any) -> RewardFn:
        return ProxyWithTheSameKey(True)

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Any:
        verdict = await super().__call__(problem, trajectory)
        return attrs.evolve(verdict, is_proxy=self.is_proxy)


@reward_breaks("steps_and_seeds_are_functions_of_their_arguments")
class SeedsByCalls(Seeded):
    calls = 0

    def with_seed(self, seed: int) -> RewardFn | None:
        type(self).calls += 1
        return SeedsByCalls(type(self).calls)


@reward_breaks("expects_a_number_of_seconds")
class LastsLong(ToyReward):
    def expected_seconds(self, problem: Problem, trajectory: Trajectory) -> Any:
        return -1


@reward_breaks("expects_a_number_of_seconds")
class LastsForEver(ToyReward):
    def expected_seconds(self, problem: Problem, trajectory: Trajectory) -> Any:
        return "long"


class KeyNeedsATool(ToyReward):
    async def __aenter__(self) -> Self:
        self.version = "7"
        return self

    def verdict_key(self, problem: Problem, trajectory: Trajectory) -> str | None:
        assert self.version
        return super().verdict_key(problem, trajectory)


class OnLetters(RewardContract):
    """What every reward of these tests is asked."""

    problem = next(iter(ToyTask().problems("train")))

    def right(self) -> Any:
        return self.problem, Trajectory.from_text(self.problem.id, "b")

    def wrong(self) -> Any:
        return [(self.problem, Trajectory.from_text(self.problem.id, "x"))]


@pytest.mark.parametrize(("reward", "promise"), reward_breaks.cases)
def test_faults_of_rewards_are_found(reward: type, promise: str, broken: Broken) -> None:
    """Each planted fault fails the test whose promise it breaks."""
    assert promise in broken(OnLetters, promise, make_reward=reward)


def test_right_rewards_pass(broken: Broken) -> None:
    """Another seed with another key; a key that only an open reward can give."""
    assert broken(OnLetters, make_reward=Seeded) == set()
    assert broken(OnLetters, make_reward=KeyNeedsATool) == set()


class NeedsOpeningToHear(Callback):
    async def __aenter__(self) -> Self:
        self.seen: list[int] = []
        return self

    def step_finished(self, run: Any, step: int, metrics: Any) -> None:
        self.seen.append(step)


class OtherNames(NeedsOpeningToHear):
    def step_finished(self, run: Any, number: int, metrics: Any) -> None:
        self.seen.append(number)


def test_callbacks_are_open_and_called_with_keywords(broken: Broken) -> None:
    """As in a run: other names of the arguments are found."""
    assert broken(CallbackContract, make_callback=lambda _: NeedsOpeningToHear()) == set()
    assert "hears_a_whole_run" in broken(CallbackContract, make_callback=lambda _: OtherNames())


class KeepsANumber(CentredAdvantage):
    def keep(self, group: Any) -> Any:
        return 1


def test_faults_of_advantages_are_found(broken: Broken) -> None:
    """A number is neither True nor False."""
    assert "drops_only_groups_that_teach_nothing" in broken(
        AdvantageContract, make_advantage=KeepsANumber
    )


def part(kind: type, **names: Any) -> Any:
    """A part of a kind with the essentials and these names."""
    essentials = {n: lambda self, *_: None for n in kind.__abstractmethods__}
    return type("Mine", (kind,), {**essentials, **names})()


async def later(self: Any, *given: Any) -> None: ...


def plain(self: Any, *given: Any) -> None: ...


DIFFER = [
    (part(Task, discovers_problems=True), "does not define discover, discovered"),
    (
        part(Task, is_offline=True, discovers_problems=True, discover=later, discovered=plain),
        "offline, so its trajectories exist already",
    ),
    (part(Task, discover=later), "does not declare discovers_problems"),
    (part(Task, is_offline="no"), "neither True nor False"),
    (part(Task, curriculum_option="a.b=c"), "does not define curriculum"),
    (part(Task, prove=plain), "does not define probes"),
    (part(Task, annotate=later), "never awaited"),
    (part(RewardFn, has_second_opinion=True), "does not define second_opinion"),
    (part(RewardFn, second_opinion=later), "does not declare has_second_opinion"),
    (part(RewardFn, verdict_key=later), "never awaited"),
    (part(Backend, capabilities=Capabilities(eval_loss=True)), "does not define eval_loss"),
    (part(Backend, eval_loss=later), "does not declare capabilities.eval_loss"),
    (
        part(Backend, eval_loss=later, capabilities=Capabilities(logprob_tolerance=0.1)),
        "does not declare capabilities.eval_loss",
    ),
    (part(Backend, capabilities={"eval_loss"}), "no rlvr.Capabilities"),
    (part(Backend, capabilities=Capabilities(logprob_tolerance=Any)), "float | None was"),
    (part(Backend, capabilities=Capabilities(batch_invariant="no")), "bool was expected"),
    (part(Policy, can_export=True), "does not define export_weights"),
    (part(Policy, export_weights=later), "does not declare can_export"),
    (part(Policy, makes_rollouts=True), "does not define rollout"),
    (part(Policy, rollout=later), "does not declare makes_rollouts"),
    (part(Tokenizer, save=plain), "does not declare can_save"),
    (part(Teacher, capabilities=TeacherCapabilities(has_scores=True)), "not define score"),
    (part(Teacher, capabilities=TeacherCapabilities(reads_data=True)), "not define answer"),
    (part(Teacher, states=later), "does not declare capabilities.has_states"),
    (part(Teacher, capabilities=TeacherCapabilities(max_k=0.5)), "max_k = 0.5"),
    (part(Teacher, capabilities=TeacherCapabilities(temperatures=1.0)), "temperatures = 1.0"),
    (part(Teacher, capabilities=TeacherCapabilities(tokenizer=None)), "str was expected"),
    (part(Loss, needs=Needs(logprobs=0)), "logprobs = 0"),
    (part(Advantage, refill_limit=-1), "below 0"),
    (part(Advantage, refill_limit=2), "does not define keep"),
    (part(Advantage, needs=Needs(annotations={"reference"})), "does not define per_token"),
    (part(Advantage, keep=later), "never awaited"),
    (part(Advantage, adapted=plain), "adapted alone"),
    (part(Advantage, needs=Needs(outputs={"entropy"})), "losses alone"),
]


@pytest.mark.parametrize(("part", "said"), DIFFER, ids=[said for _, said in DIFFER])
def test_declarations_and_methods_are_compared(part: Any, said: str) -> None:
    """One function that the kit and a run use names both sides."""
    assert said in fault_of_declarations(part)


def test_parts_that_agree_are_not_refused() -> None:
    """Abilities that options switch off, and the kit's own parts."""

    class Switched(Backend):
        def __init__(self) -> None:
            self.capabilities = Capabilities()

    options = part(Switched, eval_loss=later)
    assert fault_of_declarations(options) == ""
    for right in (Able(), ToyReward(), CentredAdvantage(), ReinforceLoss(), ToyTask()):
        assert fault_of_declarations(right) == ""


def test_a_run_refuses_what_differs() -> None:
    """At opening, with plugin, part and both sides."""
    from contextlib import AsyncExitStack

    from rlvr.assembly.build_part import enter

    async def opening() -> None:
        async with AsyncExitStack() as stack:
            await enter(stack, part(Task, discover=later))

    with pytest.raises(PartError, match=r"defines discover, and does not declare discovers"):
        asyncio.run(opening())
