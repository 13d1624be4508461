"""Build, open and close the parts of a run. Counts no steps."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path

import attrs
from attrs import field, frozen

from rlvr.assembly.build_part import build, enter, opened
from rlvr.assembly.compatibility import check_eval_loss, check_model, check_together
from rlvr.assembly.configure import check_dataset
from rlvr.assembly.configured import STARTER, Configured
from rlvr.assembly.problems import (
    check_dataset_is_read,
    problems_to_evaluate,
    train_problems,
    warn_of_unwritable,
)
from rlvr.assembly.teachers import model_of, open_teachers
from rlvr.border.promises import policy_of
from rlvr.config.core import (
    CheckpointOptions,
    EvalOptions,
    ParityOptions,
    SamplerOptions,
    TrainOptions,
    VerifyOptions,
)
from rlvr.curriculum.select import check_choice
from rlvr.parts import (
    Advantage,
    Backend,
    BuildContext,
    Callback,
    Checkpointer,
    Curriculum,
    Loss,
    RewardFn,
    Sampler,
    Task,
    Teacher,
)
from rlvr.progress.status import RunStatus
from rlvr.rollouts.group import GroupSampler
from rlvr.rollouts.rollout import check_room
from rlvr.teachers.requests import check_problems
from rlvr.types import Problem, SamplingParams
from rlvr.verification.runner import VerificationRunner
from rlvr.verification.verdict_cache import open_store
from rlvr.verification.verdict_keys import salt_of

UNTRAINED = (
    "--steps 200 sampler.max_tokens=2 sampler.group_size=32 train.lr=2e-3 grpo.entropy_coef=0.1 "
    "(max_tokens: bytes of a right answer; it does not learn to stop, so pad all to one length)"
)
"""Options with which a small untrained model learns from rewards at all."""


@frozen(kw_only=True)
class Verifier:
    """Task, open reward, and the runner that calls the reward: all that verification needs."""

    task: Task
    reward: RewardFn
    runner: VerificationRunner


@frozen(kw_only=True)
class PolicyContext(Verifier):
    """Also the open backend and the sampler: all that evaluation needs."""

    sampler: Sampler
    backend: Backend
    params: SamplingParams


@frozen(kw_only=True)
class Recipe(PolicyContext):
    """Everything a run is made of, open and ready."""

    eval_sampler: Sampler
    advantage: Advantage
    loss: Loss
    checkpointer: Checkpointer
    problems: tuple[Problem, ...]
    eval_problems: tuple[Problem, ...]
    steps: int
    seed: int
    train: TrainOptions
    eval: EvalOptions
    checkpoint: CheckpointOptions
    parity: ParityOptions
    curriculum: Curriculum | None = None
    teachers: Mapping[str, Teacher] = field(factory=dict)
    max_staleness: int = 0
    verify: VerifyOptions = field(factory=VerifyOptions)

    @property
    def replays(self) -> bool:
        """Whether the run trains on trajectories that the task recorded, instead of samples."""
        return self.task.is_offline and not self.sampler.draws_from_policy

    @property
    def smallest_group(self) -> int:
        """Smallest group that is trained on: 2 where answers of a group are compared, else 1."""
        is_group = self.sampler.draws_from_policy and self.params.group_size > 1
        return 2 if is_group else 1


def build_context(configured: Configured, run_dir: Path | None) -> BuildContext:
    """
    The `BuildContext` that every part gets when it is built.

    Raises:
        UnknownNameError: The data set does not exist.
        PluginError: The task has no starter model and none was named.
    """
    run = configured.run
    verify: VerifyOptions = configured.options.record("verify")
    check_dataset(run, configured.chosen.task)
    return BuildContext(
        model=_model_spec(configured),
        dataset=Path(run.dataset) if run.dataset else None,
        run_dir=run_dir,
        seed=run.seed,
        steps=run.steps,
        workers=verify.workers or os.cpu_count() or 1,
        train=configured.options.record("train"),
        uses_starter_model=configured.run.model == STARTER,
        sampling=sampling_of(configured) if configured.chosen.sampler is not None else None,
    )


def sampling_of(configured: Configured) -> SamplingParams:
    """The sampling settings that the options give."""
    options: SamplerOptions = configured.options.record("sampler")
    return SamplingParams(**attrs.asdict(options))


def _model_spec(configured: Configured) -> str:
    backend = configured.chosen.backend
    if backend is None:
        return ""
    instead = "add --model RUN, gpt2:PATH or hf:PATH_OR_ID"
    if configured.chosen.algorithm is not None:
        instead += (
            f"; or a small untrained model, which needs no file: --model gpt2:new {UNTRAINED}"
        )
    model = model_of(configured.run.model, configured.chosen.task, instead)
    check_model(model, backend)
    return model


@asynccontextmanager
async def open_verifier(
    configured: Configured, context: BuildContext, status: RunStatus
) -> AsyncIterator[Verifier]:
    """Build and open task and reward, with the verdict store."""
    verify: VerifyOptions = configured.options.record("verify")
    chosen = configured.chosen
    async with AsyncExitStack() as stack:
        store = stack.enter_context(closing(open_store(verify.store)))
        readings: list[Path] = []
        noting = attrs.evolve(context, readings=readings)
        task = await opened(stack, configured, chosen.task, noting)
        reward = await opened(stack, configured, chosen.reward, noting)
        check_dataset_is_read(configured.run, task, readings)
        runner = VerificationRunner(
            reward=reward,
            store=store,
            salt=_salt(configured, reward),
            bounds=chosen.reward.bounds,
            workers=context.workers,
            deadline_s=verify.deadline_s,
            max_failures=verify.max_failures,
            status=status,
        )
        stack.callback(runner.tell_failures)
        yield Verifier(task=task, reward=reward, runner=runner)


def _salt(configured: Configured, reward: RewardFn) -> str | None:
    """Text that is part of each key of the verdict store, besides the reward's own key."""
    spec, values = configured.chosen.reward, configured.options.values
    if values["verify.store"] == "off":
        return ""
    version = next((p.version for p in configured.host.plugins if p.name == spec.provider), "")
    own = f"{spec.option_namespace}."
    options = {key: value for key, value in values.items() if key.startswith(own)}
    return salt_of(reward, filter(None, (spec.target, spec.config)), version, options)


@asynccontextmanager
async def open_policy_context(
    configured: Configured, context: BuildContext, status: RunStatus
) -> AsyncIterator[PolicyContext]:
    """Build and open what sampling and judging need."""
    chosen = configured.chosen
    async with AsyncExitStack() as stack:
        verifier = await stack.enter_async_context(open_verifier(configured, context, status))
        yield PolicyContext(
            **attrs.asdict(verifier, recurse=False),
            sampler=await opened(stack, configured, chosen.sampler, context),
            backend=await opened(stack, configured, chosen.backend, context),
            params=sampling_of(configured),
        )


def draws_live(sampler: Sampler, backend: Backend, max_staleness: int) -> bool:
    """Whether rollouts go on while weights change (`Backend.live_policy`)."""
    can = backend.capabilities.partial_rollouts and not sampler.exports_weights
    return max_staleness > 0 and can


@asynccontextmanager
async def open_recipe(
    configured: Configured, context: BuildContext, status: RunStatus
) -> AsyncIterator[Recipe]:
    """Build and open everything a run needs; closed in reverse order, whatever happens."""
    chosen, options, run = configured.chosen, configured.options, configured.run
    train: TrainOptions = options.record("train")
    async with AsyncExitStack() as stack:
        advantage, loss, checkpointer = [
            await opened(stack, configured, spec, context)
            for spec in (chosen.advantage, chosen.loss, chosen.checkpointer)
        ]
        base = await stack.enter_async_context(open_policy_context(configured, context, status))
        task, sampler, backend = base.task, base.sampler, base.backend
        check_together(
            sampler=sampler,
            params=base.params,
            advantage=advantage,
            loss=loss,
            train=train,
            max_staleness=run.max_staleness,
        )
        if sampler.draws_from_policy:
            is_live = draws_live(sampler, backend, run.max_staleness)
            policy = await policy_of(backend, is_live=is_live)
            check_room(policy, base.params)
        teachers = await stack.enter_async_context(
            open_teachers(configured, context, [advantage, loss], backend)
        )
        problems = train_problems(task, sampler, chosen.task.provider)
        if sampler.draws_from_policy:
            warn_of_unwritable(task, problems, policy.tokenizer)
        curriculum: Curriculum | None = None
        if chosen.curriculum is not None:
            curriculum = await opened(stack, configured, chosen.curriculum, context)
        check_choice(task, problems, train.problems, seed=run.seed, curriculum=curriculum)
        eval_problems = problems_to_evaluate(task, sampler, options)
        evaluation: EvalOptions = options.record("eval")
        if evaluation.samples:
            check_eval_loss(task, backend, run.backend)
        for teacher in teachers.values():  # each problem needs a route; evals ask of recordings
            check_problems(teacher, [*problems, *(eval_problems if task.is_offline else ())])
        yield Recipe(
            **attrs.asdict(base, recurse=False),
            **{name: options.record(name) for name in ("train", "checkpoint", "parity", "verify")},
            eval=evaluation,
            eval_sampler=sampler if sampler.draws_from_policy else GroupSampler(),
            advantage=advantage,
            loss=loss,
            checkpointer=checkpointer,
            problems=problems,
            eval_problems=eval_problems,
            steps=run.steps,
            seed=run.seed,
            curriculum=curriculum,
            teachers=teachers,
            max_staleness=run.max_staleness,
        )


async def open_callbacks(
    stack: AsyncExitStack, configured: Configured, context: BuildContext
) -> tuple[Callback, ...]:
    """Build and open the callbacks; they stay open longer than all other parts."""
    built = [build(configured, spec, context) for spec in configured.chosen.callbacks]
    return tuple([await enter(stack, part) for part in built])
