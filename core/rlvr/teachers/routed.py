"""One teacher made of several: each is asked about the problems of its label."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import attrs
import numpy as np

from rlvr.border.abilities import metrics_of
from rlvr.errors import BackendError, ConfigError, RlvrError
from rlvr.parts import Teacher, TeacherCapabilities
from rlvr.teachers.requests import answered, check_problems
from rlvr.teachers.route_spec import Route
from rlvr.types import Datum, DistributionRequest, FloatArray, Problem


class RoutedTeacher(Teacher):
    """
    Several teachers behind one annotation; it `reads_data`.

    Each datum goes to the first route that takes its labels; what several can tell is what each of
    them can. It gives no states of its own: the heads differ.

    Args:
        teachers: Open, by their routes; all of them in the policy's tokens.
    """

    def __init__(self, teachers: Mapping[Route, Teacher]) -> None:
        self._teachers = dict(teachers)
        every = list(self._teachers.values())
        self.name = ",".join(map(str, self._teachers))
        self.tokenizer = every[0].tokenizer
        self.context_length = min(teacher.context_length for teacher in every)
        self.capabilities = _shared(every)
        self.image_processor = next(
            (t.image_processor for t in every if t.image_processor is not None), None
        )

    async def logprobs(self, data: Sequence[Datum]) -> list[FloatArray]:
        """
        Logprobs of each datum by its own teacher.

        Raises:
            BackendError: No route takes a datum, or a teacher cannot score it.
        """
        return [np.asarray(d.annotations["told"]) for d in await self.answer(data, "told", None)]

    async def answer(
        self, data: Sequence[Datum], name: str, ask: DistributionRequest | None
    ) -> list[Datum]:
        """
        Each datum's answer by its own teacher; all teachers work at the same time.

        Raises:
            BackendError: No route takes a datum, or a teacher cannot say; the others are waited
                for.
        """
        if ask is not None and ask.k == 0:  # states would mean another head for each teacher
            ask = attrs.evolve(ask, k=self.tokenizer.vocab_size)
        places: dict[Route, list[int]] = {}
        for place, datum in enumerate(data):
            route = self._route(datum.labels, datum.problem_id, BackendError)
            places.setdefault(route, []).append(place)
        asked = [
            answered(self._teachers[route], [data[i] for i in own], name, ask)
            for route, own in places.items()
        ]
        found: dict[int, Datum] = {}
        told = await asyncio.gather(*asked, return_exceptions=True)
        for own, answer in zip(places.values(), told, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            found |= zip(own, answer, strict=True)
        return [found[place] for place in range(len(data))]

    def check_problems(self, problems: Iterable[Problem]) -> None:
        """
        Refuse problems that no teacher is for, before anything is sampled.

        Raises:
            ConfigError: Names one, and its labels.
        """
        own: dict[Route, list[Problem]] = {route: [] for route in self._teachers}
        for problem in problems:
            own[self._route(problem.labels, problem.id, ConfigError)].append(problem)
        for route, teacher in self._teachers.items():
            check_problems(teacher, own[route])

    def metrics(self, data: Sequence[Datum]) -> Mapping[str, float]:
        """The metrics of all teachers."""
        found: dict[str, float] = {}
        for teacher in self._teachers.values():
            found |= metrics_of(teacher, data)
        return found

    def _route(self, labels: Mapping[str, str], problem_id: str, refusal: type[RlvrError]) -> Route:
        for route in self._teachers:
            if route.takes(labels):
                return route
        said = ", ".join(f"{key}={value}" for key, value in sorted(labels.items())) or "none"
        raise refusal(
            f"problem {problem_id!r} was to be put to one of several teachers: {self.name}",
            f"found: no route takes its labels: {said}",
            "add a route for it, or *=MODEL for the rest",
        )


def _shared(teachers: Sequence[Teacher]) -> TeacherCapabilities:
    """Capabilities that all of the teachers have."""
    able = [teacher.capabilities for teacher in teachers]
    known = [set(one.temperatures) for one in able if one.temperatures is not None]
    names = {one.tokenizer for one in able}
    return TeacherCapabilities(
        has_scores=all(one.has_scores for one in able),
        reads_data=True,
        max_k=min((one.max_k for one in able if one.max_k), default=0),
        temperatures=tuple(sorted(set.intersection(*known))) if known else None,
        tokenizer=names.pop() if len(names) == 1 else "",
        is_partial=any(one.is_partial for one in able),
    )
