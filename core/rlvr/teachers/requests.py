"""Requests for whole distributions by a distillation loss, and checks that teachers can answer.

Shapes: T tokens of a datum, n of them supervised, k tokens a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs
import numpy as np

from rlvr.border.abilities import metrics_of
from rlvr.border.calls import Border
from rlvr.border.promises import numbers_each
from rlvr.errors import BackendError, ConfigError
from rlvr.parts import LearningPart, Teacher
from rlvr.teachers.checks import (
    fault_of_answer,
    fault_of_numbers,
    fault_of_rows,
    fault_of_shape,
    fault_of_states,
    refuse_faulty,
)
from rlvr.types import (
    Datum,
    Distribution,
    DistributionRequest,
    FloatArray,
    Problem,
    TeacherRequest,
    TopK,
)

__all__ = ["teacher_logprobs", "teacher_metrics", "teacher_scores"]

_TOPK = "a TopK for each question, with k likeliest tokens a position"


def introduce(
    parts: Sequence[LearningPart], teachers: Mapping[str, Teacher], options: str = ""
) -> None:
    """
    Show the parts their teachers, once all can answer what will be asked.

    Args:
        parts: Advantage and loss.
        teachers: By annotation; open.
        options: Where the loss's options stand ("distill"), for messages.

    Raises:
        ConfigError: A teacher is missing, or cannot give what a part asks for.
    """
    for part in parts:
        for name, ask in part.needs.distributions.items():
            if name not in teachers:
                raise ConfigError(
                    f"the loss learns from the distributions of {name!r}.",
                    "found: no such teacher in this run",
                    "name one with --teacher MODEL",
                )
            check_ask(teachers[name], ask, options)
        Border(part, part.kind, "meet", promised="nothing").call(part.meet, teachers)


def check_ask(teacher: Teacher, ask: DistributionRequest, options: str = "") -> None:
    """
    Refuse, before anything is sampled, what a teacher will not be able to answer.

    Raises:
        ConfigError: Says what it can give, and what to set.
    """
    able = teacher.capabilities
    if ask.k == 0 and able.has_states:
        _width(teacher)
        return
    where = f" ({options}.*)" if options else ""
    size = teacher.tokenizer.vocab_size
    if not able.has_scores:
        found = "it tells how likely given tokens are, and not which others could have stood there"
        do = "choose another teacher, or a loss that needs sampled tokens alone (opd.mode=pg)"
    elif able.max_k and min(ask.k or size, size) > able.max_k:
        found = f"it gives at most {able.max_k} tokens a position"
        do = f"set the loss's top_k{where} to at most {able.max_k}"
    elif able.temperatures is not None and ask.temperature not in able.temperatures:
        at = ", ".join(f"{t:g}" for t in able.temperatures)
        found = f"it scores at temperature {at} only"
        do = f"set the loss's temperature{where} to {at}"
    else:
        return
    wish = f"the {ask.k} likeliest tokens" if ask.k else "whole distributions"
    asked = f"teacher {teacher.name} was to tell {wish} at temperature {ask.temperature:g}."
    raise ConfigError(asked, f"found: {found}", f"do: {do}")


def _width(teacher: Teacher) -> int:
    """The width C of the states that a teacher's head takes."""
    at = Border(teacher, "teacher", "head", promised="weights (V, C), bias (V,) or None, ...")
    with at:
        weights, bias = tuple(teacher.head.weights.shape), teacher.head.bias
        sizes = weights[:1] if bias is None else tuple(bias.shape)
    is_fit = len(weights) == 2 and sizes == weights[:1]
    at.check("" if is_fit else f"weights {weights} and a bias {sizes}")
    return int(weights[1])


async def answered(
    teacher: Teacher, data: Sequence[Datum], name: str, ask: DistributionRequest | None
) -> list[Datum]:
    """
    The data with a teacher's logprobs (T,) as an annotation, or with its distributions.

    Args:
        teacher: Open.
        data: At least one.
        name: Of the annotation.
        ask: None: logprobs.

    Raises:
        BackendError: The teacher cannot say.
        PartError: Its answer means nothing.
        ConfigError: The data hold pictures, which it does not see.
    """
    _refuse_blind(teacher, data)
    if teacher.capabilities.reads_data:
        at = Border(teacher, "teacher", "answer", promised="the data with what was asked for")
        with at:
            found = await teacher.answer(data, name, ask)
        return refuse_faulty(at, data, found, lambda one, d: fault_of_answer(one, d, name, ask))
    if ask is None:
        numbers = await teacher_logprobs(teacher, data)
        return [
            attrs.evolve(d, annotations={**d.annotations, name: values})
            for d, values in zip(data, numbers, strict=True)
        ]
    told = await ask_distributions(teacher, data, ask)
    return [
        attrs.evolve(d, distributions={**d.distributions, name: one})
        for d, one in zip(data, told, strict=True)
    ]


def _refuse_blind(teacher: Teacher, data: Sequence[Datum]) -> None:
    """Refuse data with pictures for a teacher that cannot see them."""
    shown = sum(bool(datum.pictures) for datum in data)
    if not shown or teacher.image_processor is not None:
        return
    raise ConfigError(
        f"teacher {teacher.name} was to score {shown} trajectories with pictures, which the "
        "student sees.",
        "found: it reads text alone, or its tokens are not the student's",
        "use a vision-language model with the student's tokenizer as the teacher, or a "
        "student that reads text alone",
    )


def with_actual(data: Sequence[Datum], name: str, ask: DistributionRequest) -> list[Datum] | None:
    """
    The data with a teacher's logprobs (T,) of their own tokens, from the distributions they hold.

    None where these do not tell them: states, or another temperature than a datum's. (The logprobs
    of a teacher that `reads_data` are not its `actual`.)
    """
    found = []
    for datum in data:
        told = datum.distributions[name]
        if not isinstance(told, TopK) or ask.temperature != datum.temperature:
            return None
        values = np.zeros(len(datum.tokens), np.float32)
        values[datum.mask] = told.actual
        found.append(attrs.evolve(datum, annotations={**datum.annotations, name: values}))
    return found


async def ask_distributions(
    teacher: Teacher, data: Sequence[Datum], ask: DistributionRequest
) -> list[Distribution]:
    """
    A teacher's next-token distribution at each supervised position, one answer a datum.

    Raises:
        BackendError: The teacher cannot say.
        PartError: Its answer means nothing.
    """
    if ask.k == 0 and teacher.capabilities.has_states:
        at = Border(teacher, "teacher", "states", promised="states (n, C) for each datum")
        with at:
            states = await teacher.states(data)
        width = _width(teacher)
        return refuse_faulty(at, data, states, lambda one, d: fault_of_states(one, d, width))
    size = teacher.tokenizer.vocab_size
    k = min(ask.k or size, size)
    questions = [_question(datum, k, ask.temperature) for datum in data]
    picked = [
        answer.rows(np.flatnonzero(datum.mask) - question.start)
        for answer, datum, question in zip(
            await teacher_scores(teacher, questions), data, questions, strict=True
        )
    ]
    is_partial = teacher.capabilities.is_partial
    at = Border(teacher, "teacher", "score", promised=_TOPK)
    return refuse_faulty(at, data, picked, lambda one, _: fault_of_rows(one, k, size, is_partial))


async def teacher_logprobs(teacher: Teacher, data: Sequence[Datum]) -> list[FloatArray]:
    """
    A teacher's logprobs (T,) of each datum, checked.

    Raises:
        PartError: Names the teacher that raised, or gave something else.
    """
    at = Border(teacher, "teacher", "logprobs", promised="logprobs (T,) for each datum")
    with at:
        found = await teacher.logprobs(data)
    numbers = numbers_each(at, data, found)
    refuse_faulty(at, data, numbers, lambda values, _: fault_of_numbers(values))
    return numbers


async def teacher_scores(teacher: Teacher, questions: Sequence[TeacherRequest]) -> list[TopK]:
    """
    A teacher's likeliest tokens, one `TopK` a question, whose rows and columns are those asked for.

    A row between two that matter may hold anything, so that no value is looked at.

    Raises:
        PartError: Names the teacher that raised, or gave something else.
    """
    at = Border(teacher, "teacher", "score", promised=_TOPK)
    with at:
        found = await teacher.score(questions)
    return refuse_faulty(at, questions, found, fault_of_shape, is_finite=False)


def teacher_metrics(teacher: Teacher, data: Sequence[Datum]) -> dict[str, float]:
    """
    A teacher's metrics of the data of a step, checked.

    Raises:
        PartError: Names the teacher that raised, or gave something else than numbers by text.
    """
    return metrics_of(teacher, data)


def check_problems(teacher: Teacher, problems: Iterable[Problem]) -> None:
    """Let a teacher refuse problems that it is not for; `PartError` where it raises otherwise."""
    at = Border(teacher, "teacher", "check_problems", promised="nothing, or ConfigError")
    at.call(teacher.check_problems, problems)


def _question(datum: Datum, k: int, temperature: float) -> TeacherRequest:
    """From the first supervised token to the last: later tokens change nothing."""
    places = np.flatnonzero(datum.mask)
    if not len(places) or places[0] == 0:
        raise BackendError(
            "a teacher was to say what it thinks of the supervised tokens.",
            f"found: problem {datum.problem_id}: "
            + ("its first token is one of them" if len(places) else "there is none"),
            "a supervised token needs one before it; check the sampler",
        )
    # with pictures all tokens, or one of the pictures may lack its tokens
    end = len(datum.tokens) if datum.pictures else int(places[-1]) + 1
    return TeacherRequest(
        ids=datum.tokens[:end],
        start=int(places[0]),
        k=k,
        temperature=temperature,
        pictures=datum.pictures,
    )
