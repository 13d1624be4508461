"""A small plugin as a stranger would write it. mypy --strict must accept it as it stands.

It uses rlvr's public modules only, and assigns each part to its Protocol: should the public types
change in a way that breaks such a plugin, the type checker fails here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from attrs import frozen

from rlvr import (
    Advice,
    AlgorithmSpec,
    BuildContext,
    Check,
    CheckResult,
    CommandSpec,
    Curriculum,
    CurriculumSpec,
    Episode,
    ExitCode,
    Message,
    Outcome,
    PassRate,
    Problem,
    Reward,
    RewardFn,
    RewardSpec,
    RunInfo,
    Task,
    TaskSpec,
    Trajectory,
    Unscorable,
    by_stages,
    hookimpl,
    option,
)

RLVR_API = 1


@frozen(kw_only=True)
class SumConfig:
    """Options of the sums."""

    largest: int = option(9, "Largest number that is added")


class SumEpisode(Episode):
    """One question, one answer."""

    def __init__(self, problem: Problem) -> None:
        self._messages: Sequence[Message] | None = problem.prompt

    def prompt(self) -> Sequence[Message] | None:
        """Give the question once."""
        return self._messages

    async def take(self, completion: str) -> None:
        """End with the first answer."""
        self._messages = None


class SumTask(Task):
    """Sums of two numbers."""

    def __init__(self, config: SumConfig, context: BuildContext) -> None:
        self._largest = config.largest
        self._seed = context.seed

    def problems(self, split: str) -> Iterable[Problem]:
        """All sums; the test split has those with equal numbers."""
        for a in range(self._largest + 1):
            for b in range(self._largest + 1):
                own = "test" if a == b else "train"
                if split in ("all", own):
                    question = Message(role="user", content=f"{a}+{b}=")
                    yield Problem(
                        id=f"{a}+{b}",
                        prompt=(question,),
                        split=own,
                        payload=a + b,
                        digest=f"{a}+{b}",
                    )

    def episode(self, problem: Problem) -> Episode:
        """A fresh attempt."""
        return SumEpisode(problem)

    def reference(self, problem: Problem) -> Trajectory | None:
        """The right number."""
        return Trajectory.from_text(problem.id, str(problem.payload))


class SumReward(RewardFn):
    """1 for the right number, 0 for another one."""

    def __init__(self, config: SumConfig | None, context: BuildContext) -> None:
        self._workers = context.workers

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Outcome:
        """Compare numbers; an empty answer has no verdict."""
        if not trajectory.completion:
            return Unscorable(reason="empty answer")
        is_right = trajectory.completion.strip() == str(problem.payload)
        return Reward(value=float(is_right), score01=float(is_right))


@frozen(kw_only=True)
class SmallFirstConfig:
    """Options of the order of the sums."""

    ramp_steps: int = option(20, "Steps until all sums take part", unit="steps")


class SmallFirst(Curriculum):
    """Small sums first."""

    def __init__(self, config: SmallFirstConfig, context: BuildContext) -> None:
        self._ramp_steps = config.ramp_steps

    def choose(
        self,
        problems: Sequence[Problem],
        count: int,
        *,
        seed: int,
        step: int,
        history: Mapping[str, PassRate],
    ) -> Sequence[Problem]:
        """One stage for each ten."""
        stages = {problem.id: problem.payload // 10 for problem in problems}
        return by_stages(
            problems, count, stages=stages, ramp_steps=self._ramp_steps, seed=seed, step=step
        )


TASK: type[Task] = SumTask
CURRICULUM: type[Curriculum] = SmallFirst
REWARD: type[RewardFn] = SumReward


@hookimpl
def rlvr_tasks() -> Iterable[TaskSpec]:
    """One task."""
    yield TaskSpec(
        name="sums", target=f"{__name__}:SumTask", config=f"{__name__}:SumConfig", reward="sums"
    )


@hookimpl
def rlvr_rewards() -> Iterable[RewardSpec]:
    """One reward."""
    yield RewardSpec(name="sums", target=f"{__name__}:SumReward")


@hookimpl
def rlvr_curricula() -> Iterable[CurriculumSpec]:
    """One curriculum."""
    yield CurriculumSpec(
        name="small-first",
        target=f"{__name__}:SmallFirst",
        config=f"{__name__}:SmallFirstConfig",
        namespace="curriculum",
    )


@hookimpl
def rlvr_algorithms() -> Iterable[AlgorithmSpec]:
    """An algorithm made of parts that others offer."""
    return [
        AlgorithmSpec(
            name="patient",
            sampler="group",
            advantage="group",
            loss="grpo",
            values={"train.lr": 1e-6},
        )
    ]


@hookimpl
def rlvr_checks() -> Iterable[Check]:
    """One check."""
    yield Check(name="arithmetic", target=f"{__name__}:arithmetic")


def arithmetic() -> CheckResult:
    """Addition works here."""
    return CheckResult(ok=1 + 1 == 2, found="1 + 1 = 2")


@hookimpl
def rlvr_commands() -> Iterable[CommandSpec]:
    """One command."""
    yield CommandSpec(name="add", target=f"{__name__}:add")


def add(argv: list[str]) -> int:
    """Print the sum of the words."""
    print(sum(int(word) for word in argv))
    return ExitCode.DONE


@hookimpl
def rlvr_step_finished(run: RunInfo, step: int, metrics: Mapping[str, float]) -> None:
    """Listen to the run."""
    print(run.id, step, metrics.get("reward/mean"))


@hookimpl
def rlvr_explain_error(error: BaseException) -> Advice | None:
    """Know one error."""
    if isinstance(error, ZeroDivisionError):
        return Advice(message="nothing can be divided by zero", exit_code=ExitCode.BUG)
    return None
