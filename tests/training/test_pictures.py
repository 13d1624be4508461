"""Pictures of a trajectory on their way through the line: carried, never looked into."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from rlvr import (
    ConfigError,
    Datum,
    DistributionRequest,
    Image,
    ImageProcessor,
    Segment,
    TeacherRequest,
    TopK,
    Trajectory,
)
from rlvr.teachers.requests import answered
from rlvr.teachers.route_spec import routes_of
from rlvr.teachers.routed import RoutedTeacher
from rlvr.testing import TinyTeacher, random_data
from rlvr.training.minibatches import updates
from rlvr.training.stages import datum_of


@attrs.frozen
class Place(Image):
    """Where a picture is; opening it would be an error."""

    path: str

    def open(self) -> Any:
        raise AssertionError("opened")


class Seer(TinyTeacher):
    """A teacher that says it sees, and notes which pictures it was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.image_processor = ImageProcessor(lambda: None)
        self.shown: list[tuple[Any, ...]] = []

    async def score(self, questions: Sequence[TeacherRequest]) -> list[TopK]:
        """As ever."""
        self.shown += [question.pictures for question in questions]
        return await super().score(questions)


def pictured(count: int = 4) -> list[Datum]:
    """Data of which every second has a picture."""
    data = random_data(seed=3)[:count]
    return [
        attrs.evolve(datum, pictures=(Place(f"{i}.png"),) if i % 2 else ())
        for i, datum in enumerate(data)
    ]


def test_a_trajectorys_pictures_are_its_datums() -> None:
    """Through collating, weighting and minibatches, pickled or not, in order."""
    pictures = (Place("a.png"), Place("b.png"))
    segments = [
        Segment(author="prompt", tokens=[1, 2]),
        Segment(author="policy", tokens=[3], logprobs=[0.0]),
    ]
    trajectory = Trajectory(problem_id="p", segments=segments, pictures=pictures)
    datum = datum_of(pickle.loads(pickle.dumps(trajectory)), 1.0)
    ((part,),) = updates(
        [datum], passes=1, minibatches=1, aggregation="token", max_tokens=4, seed=0
    )

    assert part.pictures == pictures
    assert attrs.evolve(trajectory, pictures=()) != trajectory


@pytest.mark.parametrize("ask", [None, DistributionRequest(k=2)])
def test_a_teacher_that_reads_text_alone_is_refused(ask: DistributionRequest | None) -> None:
    """Tokens of pictures would mean nothing to it; without pictures it is asked as ever."""
    teacher, data = TinyTeacher(), pictured()
    with pytest.raises(ConfigError, match="2 trajectories with pictures") as error:
        asyncio.run(answered(teacher, data, "teacher", ask))
    assert "reads text alone" in str(error.value)
    asyncio.run(answered(teacher, [d for d in data if not d.pictures], "teacher", ask))


def test_a_teacher_that_sees_is_shown_them() -> None:
    """With each question those of its datum; among several teachers each its own."""
    data, seer = pictured(), Seer()
    asyncio.run(answered(seer, data, "teacher", DistributionRequest(k=2)))
    assert seer.shown == [datum.pictures for datum in data]

    labelled = [attrs.evolve(d, labels={"task": "sees" if d.pictures else "reads"}) for d in data]
    routes = routes_of("sees=a:1,reads=b:2")
    seer, blind = Seer(), TinyTeacher()
    routed = RoutedTeacher(dict(zip(routes, [seer, blind], strict=True)))
    asyncio.run(answered(routed, labelled, "teacher", DistributionRequest(k=2)))
    assert seer.shown == [datum.pictures for datum in data if datum.pictures]
    wrong = [attrs.evolve(d, labels={"task": "reads"}) for d in labelled]
    with pytest.raises(ConfigError, match="reads text alone"):
        asyncio.run(answered(routed, wrong, "teacher", DistributionRequest(k=2)))
