"""Check the results of optional methods of parts, in a run and in the contract kit.

Each function raises `PartError`, which names the part, where the part raised or gave something
else than its first line says.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import numpy as np

from rlvr.border.calls import Border, is_finite, shown
from rlvr.border.kinds import fault_of_part
from rlvr.border.promises import fault_of_problem
from rlvr.parts import Advantage, LearningPart, Policy, RewardFn, Task, Teacher
from rlvr.types import Datum, Metric, PassRate, Probe, Problem, ScoredGroup, Trajectory

_FLOATS = (float, np.floating)


def annotated(task: Task, problem: Problem, trajectory: Trajectory) -> Mapping[str, Any]:
    """The task's annotations of each token of a trajectory: numbers (T,) by name."""
    promised = "numbers (T,) by name, one a token"
    at = Border(task, "task", "annotate", promised=promised, problem=problem.id)
    with at:
        found: Any = task.annotate(problem, trajectory)
        if not isinstance(found, Mapping):
            at.check(shown(found))
        shapes = {name: np.asarray(v, np.float32).shape for name, v in found.items()}
    for name, shape in shapes.items():
        wrong = shape != trajectory.tokens.shape
        at.check(f"{name!r} of shape {shape} for {len(trajectory.tokens)} tokens" if wrong else "")
        at.check("" if isinstance(name, str) else f"{shown(name)} as a name")
    return dict(found)


def probes_of(task: Task, problem: Problem, *, count: int, seed: int) -> list[Probe]:
    """Answers to this problem whose verdict is known."""
    promised = "probes: answers to this problem"
    at = Border(task, "task", "probes", promised=promised, problem=problem.id)
    with at:
        found: list[Any] = list(task.probes(problem, count=count, seed=seed))
    for probe in found:
        at.check("" if isinstance(probe, Probe) else shown(probe))
        is_own = getattr(probe.trajectory, "problem_id", None) == problem.id
        at.check("" if is_own else f"a probe with {shown(probe.trajectory)} as its trajectory")
        at.check("" if isinstance(probe.kind, str) and probe.kind else "a probe without a kind")
    return found


def proven(task: Task, problem: Problem, probe: Probe) -> bool | None:
    """Whether a probe is right after all; None if the task does not know."""
    at = Border(task, "task", "prove", promised="True, False or None", problem=problem.id)
    found: Any = at.call(task.prove, problem, probe)
    at.check("" if found is None or isinstance(found, bool | np.bool_) else shown(found))
    return None if found is None else bool(found)


async def figures_of(task: Task, policy: Policy, split: str, seed: int) -> AsyncGenerator[Metric]:
    """The task's further figures of an evaluation, each when it is measured; names are unique."""
    at = Border(task, "task", "measure", promised="figures, each with a name of its own")
    seen: set[str] = set()
    with at:
        figures: Any = task.measure(policy, split=split, seed=seed)
        if inspect.iscoroutine(figures):
            figures.close()
        at.check("" if hasattr(figures, "__anext__") else f"{shown(figures)}: no async generator")
        async with aclosing(figures):
            async for figure in figures:
                is_named = isinstance(getattr(figure, "name", None), str) and figure.name
                at.check("" if isinstance(figure, Metric) and is_named else shown(figure))
                at.check(f"two called {figure.name!r}" if figure.name in seen else "")
                seen.add(figure.name)
                yield figure


async def memory_of(
    task: Task, policy: Policy, memory: Mapping[str, Any], *, seed: int, step: int
) -> dict[str, Any]:
    """A task's memory after it looked for problems, as a checkpoint would give it back."""
    at = Border(task, "task", "discover", promised="a dict of JSON values, for checkpoints")
    with at:
        found: Any = await task.discover(
            policy, json.loads(json.dumps(memory)), seed=seed, step=step
        )
    at.check("" if isinstance(found, dict) else shown(found))
    try:
        copy = json.loads(json.dumps(found, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise at.broken(f"a memory that is no JSON: {error}") from error
    at.check(_fault_of_keys(found))
    return dict(copy)


def _fault_of_keys(value: object) -> str:
    """The first key in a JSON value that is no text: it would come back as one."""
    if not isinstance(value, dict | list | tuple):
        return ""
    wrong = [key for key in value if not isinstance(key, str)] if isinstance(value, dict) else []
    inner = value.values() if isinstance(value, dict) else value
    if wrong:
        return f"{shown(wrong[0])} as a key"
    return next(filter(None, map(_fault_of_keys, inner)), "")


def discovered_by(task: Task, memory: Mapping[str, Any]) -> tuple[Problem, ...]:
    """The problems that a task's memory holds."""
    at = Border(task, "task", "discovered", promised="problems with ids of their own")
    with at:
        found = tuple(task.discovered(memory))
    for problem in found:
        at.check(fault_of_problem(problem, task))
    return found


def key_of(reward: RewardFn, problem: Problem, trajectory: Trajectory) -> str | None:
    """The key under which a verdict is stored; None: it is not stored."""
    at = Border(reward, "reward", "verdict_key", promised="a text or None", problem=problem.id)
    key = at.call(reward.verdict_key, problem, trajectory)
    at.check("" if key is None or isinstance(key, str) else shown(key))
    return key


def seconds_of(reward: RewardFn, problem: Problem, trajectory: Trajectory) -> float:
    """About how long a verification takes: a finite number of seconds from 0."""
    promised = "seconds as a number, not below 0"
    at = Border(reward, "reward", "expected_seconds", promised=promised, problem=problem.id)
    found = at.call(reward.expected_seconds, problem, trajectory)
    at.check("" if is_finite(found) and found >= 0 else shown(found))
    return float(found)


def reward_at(reward: RewardFn, step: int, history: Mapping[str, PassRate]) -> RewardFn:
    """The reward of a training step (0-based)."""
    at = Border(reward, "reward", "at_step", promised="a RewardFn")
    found = at.call(reward.at_step, step, history)
    at.check(fault_of_part(found, "reward"))
    return found


def reseeded(reward: RewardFn, seed: int) -> RewardFn | None:
    """The same reward with tests of another seed; None if nothing is drawn at random."""
    at = Border(reward, "reward", "with_seed", promised="a RewardFn or None")
    found = at.call(reward.with_seed, seed)
    at.check("" if found is None else fault_of_part(found, "reward"))
    return found


def is_kept(advantage: Advantage, group: ScoredGroup) -> bool:
    """Whether a group is trained on."""
    promised = "True or False"
    at = Border(advantage, "advantage", "keep", promised=promised, problem=group.problem.id)
    found: Any = at.call(advantage.keep, group)
    at.check("" if isinstance(found, bool | np.bool_) else shown(found))
    return bool(found)


def numbers_of(part: Any, kind: str, method: str, found: object) -> dict[str, float]:
    """A part's metrics, or memory: a mapping of texts to numbers, as Python's own numbers."""
    at = Border(part, kind, method, promised="a mapping of texts to numbers")
    if not isinstance(found, Mapping):
        at.check(shown(found))
        return {}
    for name, value in found.items():
        is_fit = isinstance(name, str) and (is_finite(value) or isinstance(value, _FLOATS))
        at.check("" if is_fit else f"{shown(value)} as {shown(name)}")
    return {name: float(value) for name, value in found.items()}


def metrics_of(part: Advantage | Teacher, data: Sequence[Datum]) -> dict[str, float]:
    """Metrics of the data of a step."""
    at = Border(part, part.kind, "metrics", promised="a mapping of texts to numbers")
    return numbers_of(part, part.kind, "metrics", at.call(part.metrics, data))


def adapted_by(
    part: LearningPart, memory: Mapping[str, float], metrics: Mapping[str, float]
) -> dict[str, float]:
    """The new memory of an advantage or a loss after a step."""
    at = Border(part, part.kind, "adapted", promised="a mapping of texts to numbers")
    found = at.call(part.adapted, memory, metrics)
    numbers = numbers_of(part, part.kind, "adapted", found)
    return {name: found[name] if isinstance(found[name], int) else n for name, n in numbers.items()}


def warnings_of(part: LearningPart | Task, of: Mapping[str, float] | str) -> list[str]:
    """Warnings about a step's metrics, or about a task's split."""
    at = Border(part, part.kind, "warnings", promised="sentences")
    with at:
        told: Any = part.warnings
        found: Any = told(of)
        found = found if isinstance(found, str | Mapping) else list(found)
    at.check(fault_of_texts(found))
    return list(found)


def fault_of_texts(found: object) -> str:
    """The fault of a list of warnings; "" for none. A lone text would be read by letters."""
    if isinstance(found, str):
        return f"one text, {shown(found)}, where a list of them was promised"
    texts: list[Any] = found if isinstance(found, list) else [found]
    wrong = [text for text in texts if not isinstance(text, str) or not text.strip()]
    return shown(wrong[0]) if wrong else ""
