"""Check the results of parts: problems, groups, advantages, metrics (rewards: `verification`).

Each function raises `PartError`, which names the part, where the part raised or gave something
else than the function's docstring says.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np

from rlvr.border.calls import Border, is_finite, label, shown
from rlvr.border.declared import check_declarations, overrides
from rlvr.border.drawn import fault_of_messages, fault_of_texts_by_name, fault_of_trajectory
from rlvr.border.kinds import fault_of_part
from rlvr.log import get
from rlvr.parts import (
    Advantage,
    Backend,
    Checkpointer,
    Episode,
    Part,
    Policy,
    Sampler,
    Task,
)
from rlvr.types import (
    Checkpoint,
    Datum,
    FloatArray,
    Problem,
    SamplingParams,
    ScoredGroup,
    Trajectory,
)

log = get(__name__)


def problems_of(task: Task, split: str) -> list[Problem]:
    """The problems of a split: ids are texts, each once; prompts are messages."""
    at = Border(
        task,
        "task",
        "problems",
        promised="problems, each with its own id and messages as its prompt",
    )
    given = at.call(lambda: task.problems(split))
    at.check("None: is a `yield` missing?" if given is None else "")
    problems = at.call(lambda: list(given))
    seen: set[str] = set()
    for number, problem in enumerate(problems, start=1):
        fault = fault_of_problem(problem, task)
        if not fault and problem.id in seen:
            fault = f"two problems with the id {problem.id!r}"
        at.check(f"{fault} (number {number} of split {split!r})" if fault else "")
        seen.add(problem.id)
    return problems


def fault_of_problem(problem: object, task: Task) -> str:
    """The fault of a problem of a task; "" if it has none."""
    if not isinstance(problem, Problem):
        return shown(problem)
    if not isinstance(problem.id, str) or not problem.id:
        return f"a problem with {shown(problem.id)} as id"
    of, texts = f"problem {problem.id!r} with", [problem.id]
    if fault := fault_of_messages(problem.prompt):
        return f"{of} {fault} in its prompt"
    if not problem.prompt and not (task.is_offline or overrides(task, "episode")):
        return f"{of} an empty prompt, and no episode of the task's own"
    texts += [text for message in problem.prompt for text in (message.role, message.content)]
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
    at.check(fault_of_trajectory(found, problem) if found is not None else "")
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
            at.check(fault_of_trajectory(trajectory, problem))
            count += 1
            if size and trajectory.index in places:
                at.check(f"two trajectories with index {trajectory.index}")
            places.add(trajectory.index)
            yield trajectory
    at.check(f"{count} of them" if size and count != size else "")


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
    at.check(fault_of_texts_by_name(found))
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
    return numbers_each(at, data, found)


async def score_of(policy: Policy, data: Sequence[Datum]) -> list[FloatArray] | None:
    """Logprobs (T,) by the weights that sample; None: the policy cannot say."""
    at = Border(policy, "policy", "score", promised="numbers (T,) for each datum, or None")
    with at:
        found: object = await policy.score(data)
    return None if found is None else numbers_each(at, data, found)


def one_each(at: Border, data: Sequence[Any], found: object) -> Sequence[Any]:
    """What a part gave, if it is a sequence with one answer a datum."""
    if not isinstance(found, Sequence) or isinstance(found, str | bytes):
        raise at.broken(f"{shown(found)} for {len(data)} data")
    at.check(f"{len(found)} answers for {len(data)} data" if len(found) != len(data) else "")
    return found


def numbers_each(at: Border, data: Sequence[Datum], found: object) -> list[FloatArray]:
    """Numbers (T,) that fit the data; the first misfit is named."""
    rows: list[FloatArray] = []
    for values, datum in zip(one_each(at, data, found), data, strict=True):
        with at:
            raw = np.asarray(values)
        fault = f"shape {raw.shape} for {len(datum.tokens)} tokens"
        fault = "" if raw.shape == datum.tokens.shape else fault
        fault = fault if raw.dtype.kind in "fiu" else f"{shown(values)}, which are no numbers"
        at.check(f"{fault} (problem {datum.problem_id!r})" if fault else "")
        rows.append(raw.astype(np.float32))
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
    return "" if os.path.lexists(path) else f"a Checkpoint at {path}, where nothing is"
