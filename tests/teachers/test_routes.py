"""Several teachers behind one name: how they are written, and who is asked what."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from rlvr import (
    BackendError,
    ConfigError,
    Datum,
    DistributionRequest,
    FloatArray,
    Needs,
    Problem,
    Teacher,
    TopK,
)
from rlvr.teachers.route_spec import Route, models_of, routes_of
from rlvr.teachers.routed import RoutedTeacher
from rlvr.testing import TeacherContract, TinyBackend, TinyRevealer, TinyTeacher, random_data
from rlvr.training import stages


@pytest.mark.parametrize(
    "model",
    [
        "",
        "starter",
        "gpt2:new?layers=2&heads=2",
        "hf:/models/a=b/c",
        "hf:org/name",
        "sglang:http://host:30000#NAME",
        "server:http://host:8000/v1?key=a:b#NAME",
        "file:runs/cache",
    ],
)
def test_one_models_spec_is_no_route(model: str) -> None:
    """Signs of a route in a path or an address are part of it."""
    assert routes_of(model) == ()
    assert models_of(model) == ((model,) if model else ())


def test_routes_are_read() -> None:
    """By the label `task` or another one, blanks apart, the rest last."""
    text = "*=starter, math=gpt2:new?layers=2&heads=2,category:code/rtl=sglang:http://h:1#N"
    assert routes_of(text) == (
        Route(key="task", value="math", model="gpt2:new?layers=2&heads=2"),
        Route(key="category", value="code/rtl", model="sglang:http://h:1#N"),
        Route(key="task", value="*", model="starter"),
    )
    assert [r.value for r in routes_of("kind:a=starter, *=starter")] == ["a", "*"]
    assert models_of("a=hf:X,b=hf:X,c=hf:Y") == ("hf:X", "hf:Y")
    assert ",".join(map(str, routes_of(text))).startswith("math=gpt2:new?layers=2&heads=2,")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("math=", "no model after the ="),
        ("math=mymodel", "no model after the ="),
        ("=hf:X", "no label's value before the ="),
        ("math=hf:X,=hf:Y", "no label's value"),
        ("math=hf:X,math=hf:Y", "task=math twice"),
        ("*=hf:X,kind:*=hf:Y", "several routes for the rest"),
        ("math=hf:X,code=", "no model after the = in 'code='"),
    ],
)
def test_bad_routes_say_what_to_write(text: str, said: str) -> None:
    """What was given, what is wrong in it, and the form."""
    with pytest.raises(ConfigError, match="VALUE=MODEL,VALUE=MODEL") as caught:
        routes_of(text)
    assert said in str(caught.value)
    assert text in str(caught.value)


def labelled(data: Sequence[Datum], *tasks: str) -> list[Datum]:
    return [
        attrs.evolve(d, labels={"task": tasks[i % len(tasks)]} if tasks else {})
        for i, d in enumerate(data)
    ]


def routed(**teachers: Any) -> RoutedTeacher:
    names = {name.replace("rest", "*"): teacher for name, teacher in teachers.items()}
    return RoutedTeacher({Route(key="task", value=n, model="m:x"): t for n, t in names.items()})


def test_each_datum_is_put_to_the_teacher_of_its_label() -> None:
    """Logprobs and likeliest tokens, in the order of the data."""
    one, two = TinyTeacher(TinyBackend(seed=1)), TinyTeacher(TinyBackend(seed=2))
    data = labelled(random_data(count=5), "a", "b", "c")
    whose = [one, two, two, one, two]

    teacher = routed(a=one, rest=two)
    assert teacher.capabilities.reads_data
    found = asyncio.run(teacher.answer(data, "teacher", None))
    for datum, after, own in zip(data, found, whose, strict=True):
        (wanted,) = asyncio.run(own.logprobs([datum]))
        assert after.annotations["teacher"].tolist() == wanted.tolist()

    needs = Needs(distributions={"teacher": DistributionRequest(k=3)})
    for datum, after, own in zip(
        data,
        asyncio.run(stages.ask_teachers({"teacher": teacher}, needs, data)),
        whose,
        strict=True,
    ):
        (alone,) = asyncio.run(stages.ask_teachers({"teacher": own}, needs, [datum]))
        mine: Any = after.distributions["teacher"]
        wanted_: Any = alone.distributions["teacher"]
        assert mine.ids.tolist() == wanted_.ids.tolist()
        assert mine.actual.tolist() == wanted_.actual.tolist()


def test_whole_distributions_come_as_tokens() -> None:
    """States of several models belong to several heads: nobody gets them."""
    pytest.importorskip("torch")
    teacher = routed(a=TinyRevealer(), b=TinyRevealer())
    assert not teacher.capabilities.has_states
    (found,) = asyncio.run(
        teacher.answer(labelled(random_data(count=1), "b"), "t", DistributionRequest(k=0))
    )
    told = found.distributions["t"]
    assert isinstance(told, TopK)
    assert told.is_whole


def test_they_can_together_what_each_of_them_can() -> None:
    """The smallest k, the shortest context, the temperatures of all; logprobs only if one has."""

    class Silent(Teacher):
        name, context_length, tokenizer = "s", 9, TinyBackend().tokenizer

        async def logprobs(self, data: Sequence[Datum]) -> list[FloatArray]:
            raise AssertionError

    small = TinyTeacher(max_k=5, temperatures=(1.0, 2.0))
    other = TinyTeacher(max_k=9, temperatures=(2.0, 3.0))
    able = routed(a=small, b=TinyTeacher(), c=other).capabilities
    assert able.has_scores
    assert (able.max_k, able.temperatures) == (5, (2.0,))
    assert able.tokenizer
    assert not routed(a=TinyTeacher(), b=Silent()).capabilities.has_scores
    assert routed(a=TinyTeacher(), b=Silent()).context_length == 9


def test_a_problem_without_a_route_is_refused_early_and_late() -> None:
    """Before the run for the problems that are known, with its labels; else when it is met."""
    teacher: Any = routed(a=TinyTeacher())
    problems = [Problem(id="p", prompt=(), labels={"task": t}) for t in ("a", "b")]
    for each in (teacher, TinyTeacher()):
        each.check_problems(problems[:1])
    with pytest.raises(ConfigError, match=r"'p'(.|\n)*task=b(.|\n)*\*=MODEL"):
        teacher.check_problems(problems)
    with pytest.raises(BackendError, match=r"takes its labels: none"):
        asyncio.run(teacher.answer(random_data(), "t", None))


def test_when_one_fails_the_others_are_waited_for() -> None:
    """No request is left behind, and the error is the failing teacher's."""
    done = []

    class Slow(TinyTeacher):
        async def logprobs(self, data: Sequence[Datum]) -> list[FloatArray]:
            await asyncio.sleep(0.01)
            done.append(len(data))
            return await super().logprobs(data)

    class Broken(TinyTeacher):
        async def logprobs(self, data: Sequence[Datum]) -> list[FloatArray]:
            raise BackendError("the server died")

    data = labelled(random_data(), "a", "b")
    with pytest.raises(BackendError, match="the server died"):
        asyncio.run(routed(a=Broken(), b=Slow()).answer(data, "t", None))
    assert done == [2]


class TestRoutedTeacher(TeacherContract):
    """With a route for the rest it is a teacher like any other."""

    def make_teacher(self) -> Any:
        return routed(a=TinyTeacher(TinyBackend(seed=1)), rest=TinyTeacher(TinyBackend(seed=2)))
