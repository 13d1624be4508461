"""Whole distributions: asked for, picked, checked, and refused early where nobody can give them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import pytest

from rlvr import (
    BackendError,
    ConfigError,
    Datum,
    DistributionRequest,
    FloatArray,
    HiddenStates,
    Needs,
    PartError,
    Teacher,
    TeacherCapabilities,
    TeacherRequest,
    TopK,
    check_data,
)
from rlvr.teachers.checks import fault_of_rows
from rlvr.teachers.requests import introduce
from rlvr.testing import TinyBackend, TinyRevealer, TinyTeacher, random_data
from rlvr.testing.fakes import CentredAdvantage, ReinforceLoss
from rlvr.training import stages


class Wish(ReinforceLoss):
    """A loss, as far as it is asked."""

    def __init__(self, k: int, temperature: float = 1.0, needs: Sequence[str] = ()) -> None:
        ask = DistributionRequest(k=k, temperature=temperature)
        self.needs = Needs(annotations=needs, distributions={"teacher": ask})
        self.met: list[Mapping[str, Any]] = []

    def meet(self, teachers: Mapping[str, Any]) -> None:
        self.met.append(teachers)


def consulted(teacher: Any, wish: Wish, data: list[Datum]) -> list[Datum]:
    return asyncio.run(stages.ask_teachers({"teacher": teacher}, wish.needs, data))


def table(teacher: TinyTeacher, datum: Datum, temperature: float) -> np.ndarray:
    """All logprobs (n, V) at the supervised tokens, from the table itself."""
    previous = np.append(0, datum.tokens[:-1])[datum.mask]
    rows = teacher._backend.table[previous] / temperature
    return np.asarray(rows - np.log(np.exp(rows).sum(-1, keepdims=True)))


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_rows_are_those_of_the_supervised_tokens(temperature: float) -> None:
    """One row a token of the policy, in order, with the k likeliest at the loss's temperature."""
    teacher, data = TinyTeacher(), random_data(seed=3)

    for before, after in zip(data, consulted(teacher, Wish(4, temperature), data), strict=True):
        wanted, found = table(teacher, before, temperature), after.distributions["teacher"]
        assert isinstance(found, TopK)
        assert found.ids.shape == (int(before.mask.sum()), 4)
        for row, ids, logprobs in zip(wanted, found.ids, found.logprobs, strict=True):
            assert set(ids) == set(np.argsort(-row)[:4])
            assert logprobs == pytest.approx(row[ids], abs=1e-6)
        own = wanted[np.arange(len(wanted)), before.tokens[before.mask]]
        assert found.actual == pytest.approx(own, abs=1e-6)
        assert not found.is_whole
        assert before.annotations.keys() == after.annotations.keys()


def test_a_whole_distribution_is_states_or_all_tokens() -> None:
    """Asked for k = 0: states of a teacher that gives them, of another one all tokens."""
    pytest.importorskip("torch")
    data = random_data()
    (revealed, *_), (told, *_) = (
        [d.distributions["teacher"] for d in consulted(t, Wish(0), data)]
        for t in (TinyRevealer(), TinyTeacher())
    )
    assert isinstance(revealed, HiddenStates)
    assert isinstance(told, TopK)
    assert told.is_whole
    assert told.ids.shape[1] == TinyTeacher().tokenizer.vocab_size
    assert np.exp(told.logprobs).sum(-1) == pytest.approx(1.0)


def test_more_tokens_than_there_are_means_all_of_them() -> None:
    """top_k beyond the vocabulary is no error."""
    (found, *_) = consulted(TinyTeacher(), Wish(10_000), random_data())
    assert found.distributions["teacher"].is_whole  # type: ignore[union-attr]


class Counted(TinyTeacher):
    """Counts the times that it is asked for logprobs alone."""

    asked = 0

    async def logprobs(self, data: Sequence[Datum]) -> Any:
        self.asked += 1
        return await super().logprobs(data)


@pytest.mark.parametrize(("heat", "asked"), [(1.0, 0), (2.0, 1)])
def test_a_loss_may_want_both(heat: float, asked: int) -> None:
    """Logprobs and distributions of one teacher: one answer, unless they differ in temperature."""
    teacher = Counted()
    data = [attrs.evolve(datum, temperature=1.0) for datum in random_data()]
    wanted = asyncio.run(TinyTeacher().logprobs(data))

    found = consulted(teacher, Wish(2, heat, needs=["teacher"]), data)

    assert teacher.asked == asked
    for datum, values in zip(found, wanted, strict=True):
        assert datum.annotations["teacher"] == pytest.approx(values, abs=1e-6)
        assert datum.distributions["teacher"].ids.shape[1] == 2  # type: ignore[union-attr]
    assert consulted(TinyTeacher(), Wish(2), []) == []


class Faulty(TinyTeacher):
    """Spoils what it answers."""

    def __init__(self, spoil: Any) -> None:
        super().__init__(TinyBackend(seed=7))
        self.spoil = spoil

    async def score(self, questions: Sequence[TeacherRequest]) -> list[TopK]:
        found: list[TopK] = self.spoil(await super().score(questions))
        return found


def change(**changes: Any) -> Any:
    """Spoil the last answer: each change is a function of the old value."""

    def spoil(answers: list[TopK]) -> list[TopK]:
        last = answers[-1]
        new = {name: of(np.array(getattr(last, name))) for name, of in changes.items()}
        return [*answers[:-1], attrs.evolve(last, **new)]

    return spoil


def put(value: float) -> Any:
    def of(old: np.ndarray) -> np.ndarray:
        old[-1, 0] = value
        return old

    return of


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda answers: answers[1:], "3 answers for 4 data"),
        (change(actual=lambda x: x[1:]), "do not belong together"),
        (lambda answers: [a.rows(slice(1, None)) for a in answers], "rows for"),
        (change(ids=lambda x: x[:, :2], logprobs=lambda x: x[:, :2]), "2 logprobs .* 3 were asked"),
        (change(ids=put(-1), logprobs=put(-np.inf)), "2 logprobs at a position, 3 were asked"),
        (change(ids=put(99)), r"token ids .*99, the vocabulary has 0\.\.52"),
        (change(ids=put(-2)), r"token ids -2"),
        (change(ids=lambda x: x * 0 + 5), r"stands twice in a row \(5\)"),
        (change(logprobs=put(np.nan)), "not finite"),
        (change(actual=lambda x: x * np.nan), "not finite"),
        (change(logprobs=put(-np.inf)), "not finite"),
        (change(logprobs=put(0.1)), "probabilities that sum to 1.1"),
    ],
)
def test_a_distribution_that_is_none_is_refused(spoil: Any, said: str) -> None:
    """The teacher, the fault and the problem are named, before anything is trained."""
    with pytest.raises((PartError, BackendError), match=said) as caught:
        consulted(Faulty(spoil), Wish(3), random_data(seed=5))
    assert re.match("teacher (tiny was asked|.*Faulty did not keep)", str(caught.value))


def test_rounding_and_short_rows_that_miss_nothing_are_no_fault() -> None:
    """A server's sums may be a little over 1; where all mass is told there is no more to tell."""
    over = TopK(ids=[[0, 1]], logprobs=np.log([[0.5, 0.5009]]), actual=[-0.7])
    all_told = TopK(ids=[[3, -1]], logprobs=[[0.0, -np.inf]], actual=[0.0])
    short = TopK(ids=[[3, -1]], logprobs=[[-1.0, -np.inf]], actual=[-1.0])

    assert fault_of_rows(over, 2, 9) == ""
    assert fault_of_rows(all_told, 2, 9) == ""
    assert fault_of_rows(short, 2, 9) == "1 logprobs at a position, 2 were asked for"
    assert fault_of_rows(short, 2, 9, is_partial=True) == ""
    assert fault_of_rows(short.rows([]), 2, 9) == ""


def test_faults_are_found_in_any_block_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are looked at a few at a time, all of them."""
    monkeypatch.setattr("rlvr.teachers.checks._ENTRIES", 4)
    logprobs = np.full((9, 2), np.log(0.5))
    whole = TopK(ids=np.tile([0, 1], (9, 1)), logprobs=logprobs, actual=logprobs[:, 0])
    assert fault_of_rows(whole, 2, 2) == ""
    for row in range(9):
        spoilt = logprobs.copy()
        spoilt[row, 1] = np.nan
        assert fault_of_rows(attrs.evolve(whole, logprobs=spoilt), 2, 2)


def test_a_supervised_first_token_is_refused() -> None:
    """Nothing comes before it."""
    datum = random_data()[0]
    first = attrs.evolve(datum, mask=np.ones(len(datum.tokens), bool))
    with pytest.raises(BackendError, match="its first token is one of them"):
        consulted(TinyTeacher(), Wish(3), [first])


def test_rows_must_be_as_many_as_the_tokens_they_are_for() -> None:
    """Of data that a part changed on the way, before a backend sees them."""
    data = consulted(TinyTeacher(), Wish(3), random_data())
    check_data(data)
    more = np.array(data[0].mask)
    more[np.flatnonzero(~more)[-1]] = True
    with pytest.raises(BackendError, match=r"distribution 'teacher' has \d+ rows for \d+ superv"):
        check_data([attrs.evolve(data[0], mask=more)])


class Listening(TinyTeacher):
    """Keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.questions: list[TeacherRequest] = []

    async def score(self, questions: Sequence[TeacherRequest]) -> list[TopK]:
        self.questions += questions
        return await super().score(questions)


def test_what_comes_after_the_last_supervised_token_is_not_sent() -> None:
    """It changes no answer, and a server is paid by the token."""
    short = random_data()[0]
    end = int(np.flatnonzero(short.mask)[-1]) + 1
    arrays = ("tokens", "mask", "logprobs", "advantages", "weights")
    long = attrs.evolve(
        short,
        **{
            name: np.append(getattr(short, name)[:end], [1 * (name == "tokens")] * 5)
            for name in arrays
        },
    )
    teacher = Listening()

    (found,) = consulted(teacher, Wish(4), [long])

    assert teacher.questions[0].ids.tolist() == short.tokens[:end].tolist()
    (wanted,) = consulted(TinyTeacher(), Wish(4), [short])
    assert found.distributions["teacher"] == wanted.distributions["teacher"]


class Silent(Teacher):
    """Tells logprobs of given tokens only."""

    name, context_length, tokenizer = "silent", 64, TinyBackend().tokenizer

    async def logprobs(self, data: Sequence[Datum]) -> list[FloatArray]:
        raise AssertionError


@pytest.mark.parametrize(
    ("teacher", "wish", "said"),
    [
        (Silent(), Wish(3), r"how likely given tokens are(.|\n)*opd\.mode=pg"),
        (TinyTeacher(max_k=20), Wish(64), r"at most 20 tokens(.|\n)*distill\.\*\) to at most 20"),
        (TinyTeacher(max_k=20), Wish(0), r"whole distributions(.|\n)*at most 20"),
        (
            TinyTeacher(temperatures=(1.0,)),
            Wish(3, 2.0),
            r"at temperature 2\.(.|\n)*at temperature 1 only(.|\n)*temperature .*to 1",
        ),
    ],
)
def test_what_a_teacher_cannot_give_is_refused_before_the_run(
    teacher: Any, wish: Wish, said: str
) -> None:
    """What was wished, what it can, and what to set."""
    with pytest.raises(ConfigError, match=said):
        introduce([wish], {"teacher": teacher}, "distill")
    assert wish.met == []


def test_all_tokens_of_a_small_vocabulary_are_no_more_than_it_has() -> None:
    """A top_k beyond the vocabulary asks for the vocabulary: a teacher that gives that will do."""
    size = TinyTeacher().tokenizer.vocab_size
    wish = Wish(size + 50)
    introduce([wish], {"teacher": TinyTeacher(max_k=size)})
    assert len(wish.met) == 1
    with pytest.raises(ConfigError, match=f"at most {size - 1} tokens"):
        introduce([wish], {"teacher": TinyTeacher(max_k=size - 1)})


def test_a_loss_meets_its_teachers_once() -> None:
    """When all can answer; parts that do not distil are left alone."""
    pytest.importorskip("torch")
    wish, teachers = Wish(0, 2.0), {"teacher": TinyRevealer()}
    introduce([CentredAdvantage(), wish], teachers)
    assert wish.met == [teachers]
    with pytest.raises(ConfigError, match="no such teacher"):
        introduce([Wish(3)], {})


class Reader(TinyTeacher):
    """Answers with whole data, and leaves a note."""

    def __init__(self) -> None:
        super().__init__()
        self.capabilities = TeacherCapabilities(has_scores=True, reads_data=True)

    async def answer(
        self, data: Sequence[Datum], name: str, ask: DistributionRequest | None
    ) -> list[Datum]:
        return [
            attrs.evolve(
                d,
                annotations={**d.annotations, "note": d.mask * 2.0}
                | ({name: d.logprobs - 1.0} if ask is None else {}),
                distributions={}
                if ask is None
                else {name: HiddenStates(states=np.zeros((int(d.mask.sum()), ask.k)))},
            )
            for d in data
        ]


def test_a_teacher_that_is_given_whole_data_is_asked_for_nothing_else() -> None:
    """Its notes stay; what it owes is checked like anybody's."""
    data = random_data()
    (found, *_) = consulted(Reader(), Wish(3, needs=["teacher"]), data)
    assert found.annotations["teacher"].tolist() == (data[0].logprobs - 1.0).tolist()
    assert found.annotations["note"].tolist() == (data[0].mask * 2.0).tolist()
    assert found.distributions["teacher"].states.shape[1] == 3  # type: ignore[union-attr]

    class Turned(Reader):
        async def answer(self, data: Any, name: Any, ask: Any) -> list[Datum]:
            return (await super().answer(data, name, ask))[::-1]

    class Mute(Reader):
        async def answer(self, data: Any, name: Any, ask: Any) -> list[Datum]:
            return list(data)

    with pytest.raises(PartError, match="not those it was given"):
        consulted(Turned(), Wish(3), data)
    with pytest.raises(PartError, match="came: None"):
        consulted(Mute(), Wish(3), data)
    with pytest.raises(PartError, match="None as logprobs"):
        consulted(Mute(), Wish(3, needs=["teacher"]), data)
