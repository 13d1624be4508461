"""Wiring: from resolved options to open parts, and their closing. No step counter lives here."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from attrs import field, frozen

from rlvr.abilities import Continuing
from rlvr.builtin.group_sampler import GroupSampler, check_room
from rlvr.config.core import (
    CheckpointOptions,
    EvalOptions,
    ParityOptions,
    SamplerOptions,
    TrainOptions,
    VerifyOptions,
)
from rlvr.errors import ConfigError, UnknownNameError, explain
from rlvr.log import get
from rlvr.parts import (
    Advantage,
    Backend,
    BuildContext,
    Cacheable,
    Checkpointer,
    Curriculum,
    Loss,
    RewardFn,
    Sampler,
    Task,
    Teacher,
)
from rlvr.run.appraisal import check_can_appraise, is_recorded
from rlvr.run.board import Board
from rlvr.run.building import build, enter
from rlvr.run.choice import check_choice
from rlvr.run.configure import Configured
from rlvr.run.contradictions import check_together
from rlvr.run.problems import posed, train_problems
from rlvr.run.promises import policy_of, problems_of
from rlvr.run.scoring import Scorer
from rlvr.run.store import VerdictStore, open_store
from rlvr.run.teachers import check_routes, model_of, open_teachers
from rlvr.run.verdict_keys import salt_of
from rlvr.types import Problem, SamplingParams

log = get(__name__)


@frozen(kw_only=True)
class Judge:
    """What scoring needs: a task, an open reward and the scorer around it."""

    task: Task
    reward: RewardFn
    scorer: Scorer


@frozen(kw_only=True)
class Student:
    """What evaluation needs besides a judge: an open backend and a sampler."""

    judge: Judge
    sampler: Sampler
    backend: Backend
    params: SamplingParams


@frozen(kw_only=True)
class Recipe:
    """Everything a run is made of, open and ready."""

    student: Student
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
        """Whether what is trained on exists already, as the task recorded it."""
        return is_recorded(self.student.judge.task) and not self.student.sampler.draws_from_policy

    @property
    def smallest_group(self) -> int:
        """Groups that failures made smaller are not trained on: one answer compares with none."""
        is_group = self.student.sampler.draws_from_policy and self.student.params.group_size > 1
        return 2 if is_group else 1


def build_context(configured: Configured, run_dir: Path | None) -> BuildContext:
    """
    What every part may know when it is built.

    Raises:
        UnknownNameError: The data set does not exist.
        PluginError: The task has no starter model and none was named.
    """
    run = configured.run
    verify: VerifyOptions = configured.options.record("verify")
    dataset = Path(run.dataset) if run.dataset else None
    missing = dataset if dataset is not None and not dataset.exists() else None
    if missing is not None and configured.chosen.task.reads_several:
        missing = next((Path(p) for p in run.dataset.split(",") if not Path(p).exists()), None)
    if missing is not None:
        raise UnknownNameError(
            explain(
                f"the data set {missing} was asked for.",
                "found: no such file or folder",
                "check the path given with --dataset",
            )
        )
    return BuildContext(
        model=_model_spec(configured) if configured.chosen.backend is not None else "",
        dataset=dataset,
        run_dir=run_dir,
        seed=run.seed,
        steps=run.steps,
        workers=verify.workers or os.cpu_count() or 1,
        train=configured.options.record("train"),
        uses_starter_model=configured.uses_starter,
        sampling=_sampling(configured) if configured.chosen.sampler is not None else None,
    )


def _sampling(configured: Configured) -> SamplingParams:
    options: SamplerOptions = configured.options.record("sampler")
    return SamplingParams(
        max_tokens=options.max_tokens,
        temperature=options.temperature,
        top_p=options.top_p,
        top_k=options.top_k,
        stop=options.stop,
        group_size=options.group_size,
    )


def _model_spec(configured: Configured) -> str:
    task, backend = configured.chosen.task, configured.chosen.backend
    model = model_of(configured.run.model, task)
    scheme = model.partition(":")[0]
    if backend is not None and backend.models and scheme not in backend.models:
        raise ConfigError(
            explain(
                f"model '{model}' was asked for.",
                f"backend {backend.name} takes: {', '.join(f'{s}:...' for s in backend.models)}",
                "choose another --model or --backend",
            )
        )
    return model


@asynccontextmanager
async def open_judge(
    configured: Configured, context: BuildContext, board: Board
) -> AsyncIterator[Judge]:
    """Build and open task and reward, with the verdict store."""
    verify: VerifyOptions = configured.options.record("verify")
    async with AsyncExitStack() as stack:
        store: VerdictStore = open_store(verify.store)
        stack.callback(store.close)
        task = await enter(stack, build(configured, configured.chosen.task, context))
        reward = await enter(stack, build(configured, configured.chosen.reward, context))
        scorer = Scorer(
            reward=reward,
            store=store,
            salt=_salt(configured, reward),
            bounds=configured.chosen.reward.bounds,
            workers=context.workers,
            deadline_s=verify.deadline_s,
            max_failures=verify.max_failures,
            board=board,
        )
        yield Judge(task=task, reward=reward, scorer=scorer)


def _salt(configured: Configured, reward: object) -> str | None:
    """What enters each key of the verdict store besides the reward's own."""
    spec, values = configured.chosen.reward, configured.options.values
    if not isinstance(reward, Cacheable) or values["verify.store"] == "off":
        return ""
    version = next((p.version for p in configured.host.plugins if p.name == spec.provider), "")
    own = f"{spec.option_namespace}."
    options = {key: value for key, value in values.items() if key.startswith(own)}
    return salt_of(reward, filter(None, (spec.target, spec.config)), version, options)


@asynccontextmanager
async def open_student(
    configured: Configured, context: BuildContext, board: Board
) -> AsyncIterator[Student]:
    """Build and open what sampling and judging need."""
    chosen = configured.chosen
    async with AsyncExitStack() as stack:
        judge = await stack.enter_async_context(open_judge(configured, context, board))
        sampler = await enter(stack, build(configured, _there(chosen.sampler), context))
        backend = await enter(stack, build(configured, _there(chosen.backend), context))
        params = _sampling(configured)
        yield Student(judge=judge, sampler=sampler, backend=backend, params=params)


@asynccontextmanager
async def open_recipe(
    configured: Configured, context: BuildContext, board: Board
) -> AsyncIterator[Recipe]:
    """Build and open everything a run needs; closed in reverse order, whatever happens."""
    chosen, options = configured.chosen, configured.options
    evaluation: EvalOptions = options.record("eval")
    async with AsyncExitStack() as stack:
        advantage = build(configured, _there(chosen.advantage), context)
        loss = build(configured, _there(chosen.loss), context)
        checkpointer = build(configured, _there(chosen.checkpointer), context)
        student = await stack.enter_async_context(open_student(configured, context, board))
        check_together(
            sampler=student.sampler,
            params=student.params,
            advantage=advantage,
            loss=loss,
            train=options.record("train"),
            max_staleness=configured.run.max_staleness,
        )
        if student.sampler.draws_from_policy:
            backend = student.backend
            if configured.run.max_staleness > 0 and isinstance(backend, Continuing):
                check_room(await policy_of(backend, is_live=True), student.params)
            else:
                check_room(await policy_of(backend), student.params)
        teachers = await stack.enter_async_context(
            open_teachers(configured, context, [advantage, loss], student.backend)
        )
        problems = train_problems(student.judge.task, student.sampler, chosen.task.provider)
        check_routes(teachers, problems)
        wanted = chosen.curriculum
        curriculum = build(configured, wanted, context) if wanted is not None else None
        check_choice(
            student.judge.task,
            problems,
            options.record("train").problems,
            seed=configured.run.seed,
            curriculum=curriculum,
        )
        eval_problems: tuple[Problem, ...] = ()
        if evaluation.samples:
            eval_problems = tuple(problems_of(student.judge.task, evaluation.split))
            eval_problems = posed(student.judge.task, student.sampler, eval_problems)
            eval_problems = eval_problems[: evaluation.problems or None]
            if not eval_problems:
                log.warning("nothing_to_evaluate", split=evaluation.split)
            check_can_appraise(student.judge.task, student.backend, configured.run.backend)
            if is_recorded(student.judge.task):  # appraised with the teachers, too
                check_routes(teachers, eval_problems)
        yield Recipe(
            student=student,
            eval_sampler=student.sampler if student.sampler.draws_from_policy else GroupSampler(),
            advantage=advantage,
            loss=loss,
            checkpointer=checkpointer,
            problems=problems,
            eval_problems=eval_problems,
            steps=configured.run.steps,
            seed=configured.run.seed,
            train=options.record("train"),
            eval=evaluation,
            checkpoint=options.record("checkpoint"),
            parity=options.record("parity"),
            curriculum=curriculum,
            teachers=teachers,
            max_staleness=configured.run.max_staleness,
            verify=options.record("verify"),
        )


def _there(spec: Any) -> Any:
    if spec is None:
        raise ConfigError("this command was configured without a part that it needs")
    return spec
