"""Checks of teachers' answers: shapes, finite numbers, token ids, sums of probabilities.

Shapes: T tokens of a datum, n of them supervised, k tokens a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlvr.border.calls import Border, shown
from rlvr.border.promises import one_each
from rlvr.errors import BackendError
from rlvr.types import Datum, DistributionRequest, FloatArray, HiddenStates, TeacherRequest, TopK

_SLACK = 1e-3
"""Rounding allowed in what the probabilities of a row sum to."""
_ENTRIES = 1 << 20
"""Numbers of an answer that are checked at a time."""


def refuse_faulty(
    at: Border,
    data: Sequence[Any],
    answers: object,
    fault: Callable[[Any, Any], str],
    *,
    is_finite: bool = True,
) -> list[Any]:
    """
    The answers, one a datum or question, of which none has a fault.

    `is_finite` asks for finite values as well.

    Raises:
        PartError: Names the teacher, what it promised, the fault and the problem.
        BackendError: A value is not finite, which the teacher's weights may be the reason of.
    """
    found = one_each(at, data, answers)
    for answer, datum in zip(found, data, strict=True):
        of = f" (problem {datum.problem_id!r})" if isinstance(datum, Datum) else ""
        if is_finite and _holds_nan(answer):
            raise BackendError(
                f"teacher {at.part.name} was asked for {at.promised}.",
                f"found: a value that is not finite{of}",
                "look at its weights: a model in too low a precision can give NaN",
            )
        if said := fault(answer, datum):
            at.check(f"{said}{of}")
    return list(found)


def _holds_nan(answer: object) -> bool:
    """Whether an answer holds a number that is not finite; -inf stands for no token in a TopK."""
    match answer:
        case Datum():
            return any(
                map(_holds_nan, (*answer.annotations.values(), *answer.distributions.values()))
            )
        case TopK():
            return bool(np.isnan(answer.logprobs).any()) or _holds_nan(answer.actual)
        case HiddenStates():
            return _holds_nan(answer.states)
        case np.ndarray():
            return answer.dtype.kind == "f" and not np.isfinite(answer).all()
    return False


def fault_of_numbers(values: FloatArray) -> str:
    """The fault of numbers that should be logprobs; "": none."""
    return "a logprob above 0" if (values > _SLACK).any() else ""


def fault_of_answer(answer: Any, datum: Datum, name: str, ask: DistributionRequest | None) -> str:
    """The fault of a datum that a teacher gave back; "" if the answer is on it."""
    if not isinstance(answer, Datum):
        return shown(answer)
    same = ("problem_id", "tokens", "mask", "logprobs", "advantages", "weights", "temperature")
    if not all(np.array_equal(getattr(answer, n), getattr(datum, n)) for n in same):
        return "data that are not those it was given"
    if ask is not None:
        return fault_of(answer.distributions.get(name), datum)
    told: object = answer.annotations.get(name)
    if not isinstance(told, np.ndarray) or told.dtype.kind not in "fiu":
        return f"{shown(told)} as logprobs"
    if told.shape != datum.tokens.shape:
        return f"shape {told.shape} for {len(datum.tokens)} tokens"
    return fault_of_numbers(told)


def fault_of_states(answer: Any, datum: Datum, width: int | None = None) -> str:
    """The fault of states (n, C = width), finite, one for each of the policy's tokens; "": none."""
    wanted = int(datum.mask.sum())
    if not isinstance(answer, HiddenStates):
        return shown(answer)
    if answer.states.ndim != 2 or len(answer.states) != wanted:
        return f"states of shape {answer.states.shape} for {wanted} supervised tokens"
    if width not in (None, answer.states.shape[1]):
        return f"states of {answer.states.shape[1]} numbers for a head that takes {width}"
    return "" if np.isfinite(answer.states).all() else "a state that is not finite"


def fault_of_shape(answer: Any, question: TeacherRequest) -> str:
    """The fault of an answer that should have a row of k or more for each position; "": none."""
    if not isinstance(answer, TopK):
        return shown(answer)
    rows, k = len(question.ids) - question.start, question.k
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


def fault_of(distribution: Any, datum: Datum) -> str:
    """The fault of distributions that should have a row for each supervised token; "": none."""
    if not isinstance(distribution, TopK):
        return fault_of_states(distribution, datum)
    n = int(datum.mask.sum())
    asked = TeacherRequest(ids=np.zeros(n + 1), start=1, k=0)
    if fault := fault_of_shape(distribution, asked):
        return fault
    return "a value that is not a number" if np.isnan(distribution.logprobs).any() else ""
