"""Teachers: chosen by their models, opened, checked, asked, and closed."""

from __future__ import annotations

import asyncio
import functools
import operator
import re
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np
import pytest
import structlog

from rlvr import (
    BackendError,
    BuildContext,
    ConfigError,
    Datum,
    FloatArray,
    Needs,
    PartError,
    PluginError,
    SamplingParams,
    TaskSpec,
    TeacherSpec,
)
from rlvr.assembly import build_part
from rlvr.assembly.recipe import UNTRAINED
from rlvr.assembly.teachers import check_fit, model_of, open_teachers, teacher_for, teachers_wanted
from rlvr.cli.plugins_new import command_of
from rlvr.testing import ScriptedPolicy, TinyBackend, TinyTeacher, random_data
from rlvr.testing.fakes import ReinforceLoss
from rlvr.training import stages


@attrs.frozen
class Host:
    """Offers these teachers."""

    specs: tuple[TeacherSpec, ...]

    def teachers(self) -> tuple[TeacherSpec, ...]:
        return self.specs


def spec(name: str, *models: str) -> TeacherSpec:
    return TeacherSpec(name=name, target="m:x", models=models, provider=name)


class Part(ReinforceLoss):
    """An advantage or a loss, as far as it is asked."""

    def __init__(self, needs: Sequence[str] = (), teachers: Mapping[str, str] | None = None):
        self.needs = Needs(annotations=needs, teachers=teachers or {})


def test_the_scheme_chooses() -> None:
    """The only plugin that takes the scheme; nobody or several are told with what to do."""
    host: Any = Host((spec("one", "far"), spec("two", "near", "both"), spec("three", "both")))

    assert teacher_for("near:x", host).name == "two"
    with pytest.raises(PluginError, match=r"2 plugins take it: two, three(.|\n)*RLVR_DISABLE"):
        teacher_for("both:x", host)
    with pytest.raises(PluginError, match=r"teachers can be: both:\.\.\., far:\.\.\., near"):
        teacher_for("nobody:x", host)
    with pytest.raises(PluginError, match=r"pip install .*rlvr-torch"):
        teacher_for("gpt2:x", host)


def test_starter_is_the_tasks_model() -> None:
    """As for --model; a task without one says so."""
    task = TaskSpec(name="t", target="m:x", starter="rlvr.builtin.toy:starter")

    assert model_of("starter", task).startswith("gpt2:new?")
    assert model_of("far:x", task) == "far:x"
    with pytest.raises(ConfigError, match=r"ships no starter(.|\n)* name a run, .*TaskSpec"):
        model_of("starter", attrs.evolve(task, starter=None))
    assert command_of("x", "task").partition("gpt2:new ")[2].endswith(UNTRAINED.partition(" (")[0])


def test_parts_may_share_a_teacher_but_not_a_name() -> None:
    """Two parts that mean the same are one wish; two models by one name are an error."""
    both = [
        Part(teachers={"teacher": "a:1"}),
        Part(),
        Part(teachers={"teacher": "a:1", "b": "c:2"}),
    ]

    assert teachers_wanted(both) == {"teacher": "a:1", "b": "c:2"}
    with pytest.raises(PluginError, match="a name of its own"):
        teachers_wanted([*both, Part(teachers={"b": "c:3"})])
    with pytest.raises(PluginError, match="'reference'"):
        teachers_wanted([Part(teachers={"reference": "a:1"})])


def fit(teacher: TinyTeacher, max_tokens: int = 8) -> list[dict[str, Any]]:
    """What was warned of."""
    policy = ScriptedPolicy(["x"], tokenizer=TinyBackend().tokenizer, context_length=64)
    context = BuildContext(sampling=SamplingParams(max_tokens=max_tokens))
    configured: Any = SimpleNamespace(host=Host(()))
    with structlog.testing.capture_logs() as logs:
        check_fit(configured, teacher, policy, context)
    return logs


def test_a_teacher_must_have_room_for_answers() -> None:
    """One that cannot read a whole answer is refused, one that reads less than the policy said."""
    teacher: Any = TinyTeacher()
    assert fit(teacher) == []
    teacher.context_length = 63
    assert [line["event"] for line in fit(teacher, 62)] == ["teacher_context_shorter"]
    with pytest.raises(ConfigError, match=r"set sampler\.max_tokens below 63"):
        fit(teacher, 63)


def opened(monkeypatch: Any, given: str, heat: float, needs: Sequence[str]) -> list[str]:
    """Names of the teachers of a run that samples at this temperature; all score at 1 only."""
    monkeypatch.setattr(
        build_part,
        "load_object",
        lambda *_: lambda _, context: TinyTeacher(name=context.model, temperatures=(1.0,)),
    )
    configured: Any = SimpleNamespace(
        chosen=SimpleNamespace(task=TaskSpec(name="t", target="m:x"), loss=None),
        host=Host((spec("near", "near"),)),
    )
    context = BuildContext(sampling=SamplingParams(max_tokens=8, temperature=heat))
    parts = [Part(needs, {"teacher": given})]

    async def names() -> list[str]:
        backend: Any = TinyBackend()
        async with open_teachers(configured, context, parts, backend) as teachers:
            return [teacher.name for teacher in teachers.values()]

    return asyncio.run(names())


@pytest.mark.parametrize("given", ["near:x", "a=near:x,*=near:y"])
def test_a_teacher_that_scores_at_one_temperature_is_refused_at_the_start(
    monkeypatch: Any, given: str
) -> None:
    """
    Its logprobs are wanted at the temperature of what is sampled; each of several teachers counts.

    Where only its distributions are asked for, the loss's temperature decides (`check_ask`).
    """
    assert opened(monkeypatch, given, 1.0, ["teacher"]) == [given]
    assert opened(monkeypatch, given, 0.7, []) == [given]
    with pytest.raises(
        ConfigError, match=r"temperature 0\.7\.(.|\n)*at temperature 1 only(.|\n)*temperature to 1"
    ):
        opened(monkeypatch, given, 0.7, ["teacher"])


def ask(teachers: Mapping[str, Any], parts: Sequence[Part], data: list[Datum]) -> list[Datum]:
    needs = functools.reduce(operator.or_, [part.needs for part in parts])
    return asyncio.run(stages.ask_teachers(teachers, needs, data))


def test_only_what_is_needed_is_asked() -> None:
    """A part's `needs` decide; the student's own numbers stay as they are."""
    teacher, data = TinyTeacher(), random_data(needs={"reference"})
    wanted = asyncio.run(teacher.logprobs(data))

    asked = ask({"teacher": teacher, "other": None}, [Part(["teacher"]), Part()], data)

    assert [set(d.annotations) for d in asked] == [{"reference", "teacher"}] * len(data)
    for before, after, values in zip(data, asked, wanted, strict=True):
        assert after.annotations["teacher"].tolist() == values.tolist()
        assert after.annotations["reference"] is before.annotations["reference"]
    assert ask({"teacher": teacher}, [Part(["teacher"])], []) == []
    assert ask({"teacher": teacher}, [Part(["reference"])], data) == data


class Faulty(TinyTeacher):
    """Spoils what the teacher says."""

    def __init__(self, spoil: Any) -> None:
        super().__init__()
        self.spoil = spoil

    async def logprobs(self, data: Sequence[Datum]) -> list[FloatArray]:
        found: list[FloatArray] = self.spoil(await super().logprobs(data))
        return found


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda rows: rows[1:], "3 answers for 4"),
        (lambda rows: [*rows[:-1], rows[-1][1:]], "shape"),
        (lambda rows: [*rows[:-1], rows[-1] * np.nan], "not finite .problem 'problem-3'"),
        (lambda rows: [*rows[:-1], np.where(rows[-1] < 0, -np.inf, 0)], "not finite"),
    ],
)
def test_nonsense_is_not_learnt_from(spoil: Any, said: str) -> None:
    """The teacher and the problem are named, before anything is trained."""
    with pytest.raises((PartError, BackendError), match=said) as caught:
        ask({"teacher": Faulty(spoil)}, [Part(["teacher"])], random_data())
    assert re.match("teacher (tiny was asked|.*Faulty did not keep)", str(caught.value))
