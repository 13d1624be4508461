"""Requests for whole distributions by a distillation loss, and checks that teachers can answer.

Shapes: T tokens of a datum, n of them supervised, k tokens a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from rlvr.border.calls import Border
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
from rlvr.types import Datum, Distribution, DistributionRequest, TeacherRequest, TopK


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
        part.meet(teachers)


def check_ask(teacher: Teacher, ask: DistributionRequest, options: str = "") -> None:
    """
    Refuse, before anything is sampled, what a teacher will not be able to answer.

    Raises:
        ConfigError: Says what it can give, and what to set.
    """
    able = teacher.capabilities
    if ask.k == 0 and able.has_states:
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
        BackendError: The teacher cannot say, or its answer means nothing.
        ConfigError: The data hold pictures, which it does not see.
    """
    _refuse_blind(teacher, data)
    if teacher.capabilities.reads_data:
        with Border(teacher, "teacher", "answer", promised="the data with what was asked for"):
            found = await teacher.answer(data, name, ask)
        refuse_faulty(teacher, data, found, lambda answer, d: fault_of_answer(answer, d, name, ask))
        return list(found)
    if ask is None:
        with Border(teacher, "teacher", "logprobs", promised="logprobs (T,) for each datum"):
            numbers = await teacher.logprobs(data)
        what = "the logprobs of what the policy wrote"
        refuse_faulty(teacher, data, numbers, fault_of_numbers, what)
        return [
            attrs.evolve(d, annotations={**d.annotations, name: np.asarray(values, np.float32)})
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
        BackendError: The teacher cannot say, or its answer means nothing.
    """
    if ask.k == 0 and teacher.capabilities.has_states:
        states = await teacher.states(data)
        refuse_faulty(teacher, data, states, fault_of_states)
        return list(states)
    size = teacher.tokenizer.vocab_size
    k = min(ask.k or size, size)
    questions = [_question(datum, k, ask.temperature) for datum in data]
    answers = await teacher.score(questions)
    wanted = {id(d): len(q.ids) - q.start for d, q in zip(data, questions, strict=True)}
    refuse_faulty(teacher, data, answers, lambda told, d: fault_of_shape(told, wanted[id(d)], k))
    picked = [
        answer.rows(np.flatnonzero(datum.mask) - question.start)
        for answer, datum, question in zip(answers, data, questions, strict=True)
    ]
    is_partial = teacher.capabilities.is_partial
    refuse_faulty(teacher, data, picked, lambda told, _: fault_of_rows(told, k, size, is_partial))
    return list(picked)


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
