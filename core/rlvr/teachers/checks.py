"""Checks of teachers' answers: shapes, finite numbers, token ids, sums of probabilities.

Shapes: T tokens of a datum, n of them supervised, k tokens a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlvr.border.calls import shown
from rlvr.errors import BackendError
from rlvr.types import Datum, Distribution, DistributionRequest, FloatArray, HiddenStates, TopK

_SLACK = 1e-3
"""Rounding allowed in what the probabilities of a row sum to."""
_ENTRIES = 1 << 20
"""Numbers of an answer that are checked at a time."""


def refuse_faulty(
    teacher: Any,
    data: Sequence[Datum],
    answers: Any,
    fault: Callable[[Any, Datum], str],
    what: str = "distributions over the next token",
) -> None:
    """
    Refuse answers, one a datum, of which one has a fault.

    Raises:
        BackendError: Names the teacher, what it was asked for, the fault and the problem.
    """
    problem = ""
    if not isinstance(answers, Sequence):
        problem = f"no answers: {shown(answers)}"
    elif len(answers) != len(data):
        problem = f"{len(answers)} answers for {len(data)} trajectories"
    else:
        for answer, datum in zip(answers, data, strict=True):
            if said := fault(answer, datum):
                problem = f"{said} (problem {datum.problem_id})"
                break
    if problem:
        raise BackendError(
            f"teacher {teacher.name} was asked for {what}.",
            f"found: {problem}",
            "run TeacherContract on it; a model in too low a precision can give NaN",
        )


def fault_of_numbers(values: FloatArray, datum: Datum) -> str:
    """The fault of numbers that should be finite, one for each of the policy's tokens; "": none."""
    if np.shape(values) != datum.tokens.shape:
        return f"shape {np.shape(values)} for {len(datum.tokens)} tokens"
    return "" if np.isfinite(values[datum.mask]).all() else "a value that is not finite"


def fault_of_answer(answer: Datum, datum: Datum, name: str, ask: DistributionRequest | None) -> str:
    """The fault of a datum that a teacher gave back; "" if the answer is on it."""
    if answer.problem_id != datum.problem_id or answer.tokens.shape != datum.tokens.shape:
        return "data that are not those it was given"
    if ask is None:
        told = answer.annotations.get(name)
        return "no logprobs" if told is None else fault_of_numbers(told, datum)
    distribution = answer.distributions.get(name)
    return "no distribution" if distribution is None else fault_of(distribution, datum)


def fault_of_states(answer: HiddenStates, datum: Datum) -> str:
    """The fault of states (n, C), finite, one for each of the policy's tokens; "": none."""
    wanted = int(datum.mask.sum())
    if answer.states.ndim != 2 or len(answer.states) != wanted:
        return f"states of shape {answer.states.shape} for {wanted} supervised tokens"
    return "" if np.isfinite(answer.states).all() else "a state that is not finite"


def fault_of_shape(answer: TopK, rows: int, k: int) -> str:
    """The fault of an answer that should have so many rows of k or more; "": none."""
    shape = answer.ids.shape
    if answer.logprobs.shape != shape or len(shape) != 2 or answer.actual.shape != shape[:1]:
        return (
            f"ids {shape}, logprobs {answer.logprobs.shape} and actual {answer.actual.shape}, "
            "which do not belong together"
        )
    if shape[0] != rows:
        return f"{shape[0]} rows for {rows} positions"
    return f"{shape[1]} logprobs at a position, {k} were asked for" if shape[1] < k else ""


def fault_of_rows(answer: TopK, k: int, size: int, is_partial: bool = False) -> str:
    """
    The fault of an answer's rows (n, k or more); "" if there is none.

    `size` is the vocabulary's; `is_partial` says that a row may hold less than was asked for.
    Looks at some rows at a time.
    """
    step = max(1, _ENTRIES // max(answer.ids.shape[1], 1))
    parts = (answer.rows(slice(at, at + step)) for at in range(0, len(answer.ids), step))
    return next((f for f in (_fault_of_few(p, k, size, is_partial) for p in parts) if f), "")


def _fault_of_few(answer: TopK, k: int, size: int, is_partial: bool) -> str:
    ids, logprobs = answer.ids, answer.logprobs
    is_there = ids >= 0
    total = np.exp(np.where(is_there, logprobs, -np.inf), dtype=np.float64).sum(-1)
    ordered = np.sort(ids, axis=-1)
    is_twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    is_short = (is_there.sum(-1) < k) & (total < 1.0 - _SLACK)
    if ids.size and (int(ids.min()) < -1 or int(ids.max()) >= size):
        return f"token ids {ids.min()}..{ids.max()}, the vocabulary has 0..{size - 1}"
    if np.isnan(logprobs).any() or not np.isfinite(answer.actual).all():
        return "a logprob that is not a number"
    if not np.isfinite(logprobs[is_there]).all():
        return "a token with a logprob that is not finite"
    if is_twice.any():
        return f"a token that stands twice in a row ({ordered[:, 1:][is_twice][0]})"
    if is_short.any() and not is_partial:
        return f"{int(is_there[is_short].sum(-1).min())} logprobs at a position, {k} were asked for"
    if (total > 1.0 + _SLACK).any():
        return f"probabilities that sum to {total.max():.4f}"
    return ""


def fault_of(distribution: Distribution, datum: Datum) -> str:
    """The fault of distributions that should have a row for each supervised token; "": none."""
    wanted = int(datum.mask.sum())
    rows = distribution.states if isinstance(distribution, HiddenStates) else distribution.logprobs
    if len(rows) != wanted:
        return f"{len(rows)} rows for {wanted} supervised tokens"
    return "a value that is not a number" if np.isnan(rows).any() else ""
