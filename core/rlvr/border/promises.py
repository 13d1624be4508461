"""Check the results of parts: problems, groups, advantages, metrics (rewards: `verification`).

Each function raises `PartError`, which names the part, where the part raised or gave something
else than the function's docstring says.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np

from rlvr.border.calls import Border, is_finite, label, shown
from rlvr.border.declared import check_declarations
from rlvr.border.kinds import fault_of_part
from rlvr.log import get
from rlvr.parts import Advantage, Backend, Checkpointer, Episode, Part, Policy, Sampler, Task
from rlvr.types import (
    Checkpoint,
    Completion,
    Datum,
    FloatArray,
    Message,
    Problem,
    SamplingParams,
    ScoredGroup,
    Trajectory,
)

log = get(__name__)


def problems_of(task: Task, split: str) -> list[Problem]:
    """The problems of a split: ids are texts, each once; prompts are messages."""
    at = Border(task, "task", "problems", promised="problems with ids of their own")
    problems = at.call(lambda: list(task.problems(split)))
    seen: set[str] = set()
    for number, problem in enumerate(problems, start=1):
        fault = fault_of_problem(problem)
        if not fault and problem.id in seen:
            fault = f"two problems with the id {problem.id!r}"
        at.check(f"{fault} (number {number} of split {split!r})" if fault else "")
        seen.add(problem.id)
    return problems


def fault_of_problem(problem: object) -> str:
    """The fault of a problem; "" if it has none."""
    if not isinstance(problem, Problem):
        return shown(problem)
    if not isinstance(problem.id, str) or not problem.id:
        return f"a problem with {shown(problem.id)} as id"
    of, texts = f"problem {problem.id!r} with", [problem.id]
    messages: tuple[object, ...] = problem.prompt
    for message in messages:
        if not isinstance(message, Message) or not isinstance(message.content, str):
            return f"{of} {shown(message)} in its prompt, which is no Message"
        if not isinstance(message.role, str) or not message.role:
            return f"{of} {shown(message.role)} as a role in its prompt"
        texts += [message.role, message.content]
    labels = [text for pair in problem.labels.items() for text in pair]
    if not all(isinstance(text, str) for text in labels):
        return f"{of} labels that are no texts: {shown(problem.labels)}"
    for text in (*texts, *labels):
        if not _is_unicode(text):
            return f"{of} half a character: {shown(text)}"
    return ""


def _is_unicode(text: str) -> bool:
    """Whether a text can be written as UTF-8: a lone surrogate cannot."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def reference_of(task: Task, problem: Problem) -> Trajectory | None:
    """The ground truth of this problem, None where there is none."""
    at = Border(task, "task", "reference", promised="a Trajectory or None", problem=problem.id)
    found = at.call(task.reference, problem)
    at.check(_fault_of_trajectory(found, problem) if found is not None else "")
    return found


def episode_of(task: Task, problem: Problem) -> Episode:
    """A fresh episode of a problem."""
    at = Border(task, "task", "episode", promised="an Episode", problem=problem.id)
    episode = at.call(task.episode, problem)
    at.check(fault_of_part(episode, "episode"))
    check_declarations(episode, "episode")
    return episode


async def trajectories_of(
    sampler: Sampler, policy: Policy, task: Task, problem: Problem, params: SamplingParams
) -> AsyncGenerator[Trajectory]:
    """All trajectories of this problem, each as it ends."""
    size = params.group_size if sampler.draws_from_policy else 0
    promised = f"{size} trajectories" if size else "trajectories"
    at = Border(sampler, "sampler", "sample", promised=promised, problem=problem.id)
    with at:
        found: object = sampler.sample(policy, task, problem, params)
    if not isinstance(found, AsyncGenerator):
        if inspect.iscoroutine(found):
            found.close()
        raise at.broken(f"{shown(found)}, which is no async generator (`yield` them)")
    places: set[int] = set()
    count = 0
    async with aclosing(found) as stream:
        while True:
            with at:
                trajectory = await anext(stream, None)
            if trajectory is None:
                break
            at.check(_fault_of_trajectory(trajectory, problem))
            count += 1
            if size and trajectory.index in places:
                at.check(f"two trajectories with index {trajectory.index}")
            places.add(trajectory.index)
            yield trajectory
    at.check(f"{count} of them" if size and count != size else "")


def _fault_of_trajectory(trajectory: object, problem: Problem) -> str:
    if not isinstance(trajectory, Trajectory):
        return f"{shown(trajectory)} for problem {problem.id!r}"
    if trajectory.problem_id != problem.id:
        return f"a trajectory of {trajectory.problem_id!r} for problem {problem.id!r}"
    if not np.isfinite(trajectory.logprobs).all():
        return f"a logprob that is not finite for problem {problem.id!r}"
    return ""


def fault_of_completion(found: object) -> str:
    """The fault of an object that should be a Completion; "" if it is one."""
    return "" if isinstance(found, Completion) else shown(found)


async def drawer_of(sampler: Sampler, policy: Policy) -> Policy:
    """The policy that draws a sampler's trajectories: this one, or another with its weights."""
    at = Border(sampler, "sampler", "drawn_by", promised="a Policy")
    with at:
        found = await sampler.drawn_by(policy)
    at.check(fault_of_part(found, "policy"))
    return found


def reason_of(part: Part, method: str, *given: Any) -> str:
    """A reason in words, "" where there is none: of a problem, or of a sampler."""
    at = Border(part, part.kind, method, promised="a text")
    found: Any = at.call(getattr(part, method), *given)
    at.check("" if isinstance(found, str) else shown(found))
    return str(found)


def unsupported_by(task: Task) -> dict[str, str]:
    """The rows of a data set that yield no problem, with the reasons."""
    at = Border(task, "task", "unsupported", promised="a mapping of texts to texts")
    found: Any = at.call(task.unsupported)
    at.check("" if isinstance(found, Mapping) else shown(found))
    for pair in found.items():
        at.check("" if all(isinstance(text, str) for text in pair) else shown(pair))
    return dict(found)


async def policy_of(backend: Any, *, is_live: bool = False) -> Policy:
    """A sampling handle of a backend's weights; `is_live` asks for one that follows them."""
    method = "live_policy" if is_live else "policy"
    at = Border(backend, "backend", method, promised="a Policy")
    with at:
        policy: Policy = await getattr(backend, method)()
    at.check(fault_of_part(policy, "policy"))
    check_declarations(policy, "policy")
    return policy


def credited(
    advantage: Advantage, groups: Sequence[ScoredGroup]
) -> Sequence[Sequence[float | None]]:
    """Finite advantages or None, (P, G), ragged, aligned with the groups' trajectories."""
    promised = "a finite number or None for each trajectory"
    at = Border(advantage, "advantage", "__call__", promised=promised)
    found = at.call(advantage, groups)
    with at:  # what came may be no sequence at all
        rows = [list(row) for row in found]
    shape, wanted = [len(row) for row in rows], [len(g.trajectories) for g in groups]
    at.check("" if shape == wanted else f"rows of {shape} for groups of {wanted}")
    if rows and all(value is None for row in rows for value in row):
        log.warning("nothing_to_train_on", why=f"{label(advantage, 'advantage')} gave None only")
    for row, group in zip(rows, groups, strict=True):
        for value in row:
            if value is not None and not is_finite(value):
                at.check(f"{shown(value)} for problem {group.problem.id!r}")
    return rows


def check_any_credit(advantage: Advantage, steps: int) -> None:
    """Refuse, at the end of a run, an advantage that left out every trajectory of every step."""
    at = Border(advantage, "advantage", "__call__", promised="credit for some trajectories")
    at.check(f"None for every trajectory of {steps} steps: nothing was trained")


async def logprobs_of(backend: Backend, data: Sequence[Datum], which: str) -> list[FloatArray]:
    """Numbers (T,) of each datum's tokens by one of a backend's models."""
    at = Border(backend, "backend", "logprobs", promised=f"{which} numbers (T,) for each datum")
    with at:
        found: object = await backend.logprobs(data, which)
    return _numbers(at, data, found)


async def score_of(policy: Policy, data: Sequence[Datum]) -> list[FloatArray] | None:
    """Logprobs (T,) by the weights that sample; None: the policy cannot say."""
    at = Border(policy, "policy", "score", promised="numbers (T,) for each datum, or None")
    with at:
        found: object = await policy.score(data)
    return None if found is None else _numbers(at, data, found)


def _numbers(at: Border, data: Sequence[Datum], found: object) -> list[FloatArray]:
    """Numbers (T,) that fit the data; the first misfit is named."""
    numbers: list[Any] = list(found) if isinstance(found, Sequence) else [found]
    is_whole = isinstance(found, Sequence) and len(numbers) == len(data)
    at.check("" if is_whole else f"{shown(found)} for {len(data)} data")
    with at:
        rows = [np.asarray(values, np.float32) for values in numbers]
    for values, datum in zip(rows, data, strict=True):
        if values.shape != datum.tokens.shape:
            at.check(
                f"shape {values.shape} for {len(datum.tokens)} tokens "
                f"(problem {datum.problem_id!r})"
            )
    return rows


def checkpoints_of(checkpointer: Checkpointer) -> list[Checkpoint]:
    """
    The checkpoints that a checkpointer keeps, oldest first.

    Raises:
        PartError: One is no checkpoint, or the checkpointer raised.
    """
    at = Border(checkpointer, "checkpointer", "list", promised="checkpoints, oldest first")
    with at:
        found = list(checkpointer.list())
    for checkpoint in found:
        at.check(_fault_of_checkpoint(checkpoint))
    steps = [checkpoint.step for checkpoint in found]
    at.check("" if steps == sorted(steps) else f"checkpoints of the steps {steps}")
    return found


def check_saved(checkpointer: object, checkpoint: object, step: int) -> None:
    """
    Reject the result of a checkpointer's `save` unless it is a checkpoint of that step.

    Raises:
        PartError: Names the checkpointer.
    """
    at = Border(checkpointer, "checkpointer", "save", promised=f"the Checkpoint of step {step}")
    at.check(_fault_of_checkpoint(checkpoint))
    if isinstance(checkpoint, Checkpoint) and checkpoint.step != step:
        at.check(f"the Checkpoint of step {checkpoint.step}")


def _fault_of_checkpoint(found: object) -> str:
    if not isinstance(found, Checkpoint):
        return shown(found)
    step: object = found.step
    path: object = found.path
    if not isinstance(step, int) or step < 0:
        return f"a Checkpoint of step {shown(step)}"
    if not isinstance(path, Path):
        return f"a Checkpoint with {shown(path)} as path"
    return "" if path.exists() else f"a Checkpoint at {path}, where nothing is"
