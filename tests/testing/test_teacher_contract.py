"""TeacherContract passes on a right teacher, and finds each planted fault."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import ClassVar

import attrs
import numpy as np
import pytest

from rlvr import (
    Datum,
    DistributionRequest,
    FloatArray,
    HiddenStates,
    NearMissWarning,
    Teacher,
    TeacherCapabilities,
    TeacherRequest,
    TopK,
)
from rlvr.suggest import LONG
from rlvr.teachers.requests import answered
from rlvr.testing import TeacherContract, TinyBackend, TinyRevealer, TinyTeacher
from tests.testing.conftest import Broken, Faults

breaks = Faults()
ROWS = "likeliest_tokens_are_rows_of_a_distribution"
ACTUAL = "the_token_that_stands_there_has_its_logprob"
STATES = "states_and_head_are_the_whole_distribution"
SHAPE = "one_logprob_for_each_token_of_the_policy"
SUM = "logprobs_are_those_of_a_distribution"
BEFORE = "what_comes_before_a_token_decides"
CAN = "it_can_what_it_declares_and_nothing_else"
WHOLE = "whole_data_come_back_with_what_was_asked_for"


class Tiny(TinyTeacher):
    """The fake teacher with one thing wrong; it reads few tokens, which the test is quick at."""

    context_length = 64
    declares: ClassVar[dict[str, bool]] = {}

    def __init__(self) -> None:
        super().__init__(TinyBackend(seed=7))
        self.capabilities = attrs.evolve(self.capabilities, **self.declares)

    async def logprobs(self, data: Sequence[Datum]) -> list[FloatArray]:
        found = await super().logprobs([self.seen(d) for d in data])
        return [self.told(d, row) for d, row in zip(data, found, strict=True)]

    def seen(self, datum: Datum) -> Datum:
        return datum

    def told(self, datum: Datum, row: FloatArray) -> FloatArray:
        return row


@breaks(SHAPE)
class ScoresThePrompt(Tiny):
    def told(self, datum: Datum, row: FloatArray) -> FloatArray:
        return row - ~datum.mask


@breaks(SHAPE)
class GivesProbabilities(Tiny):
    def told(self, datum: Datum, row: FloatArray) -> FloatArray:
        return np.exp(row) * datum.mask


@breaks(SUM)
class TakesBaseTwo(Tiny):
    def told(self, datum: Datum, row: FloatArray) -> FloatArray:
        return (row / np.log(2)).astype(np.float32)


@breaks(BEFORE)
class OffByOne(Tiny):
    """Gives the row of the token after, as a service's prompt logprobs misread would."""

    def told(self, datum: Datum, row: FloatArray) -> FloatArray:
        return np.where(datum.mask, np.roll(row, -1) - 0.01, np.float32(0))


@breaks(BEFORE)
class Forgetful(Tiny):
    """Knows how likely each token is, and not after which."""

    def told(self, datum: Datum, row: FloatArray) -> FloatArray:
        shares = np.arange(1, self.tokenizer.vocab_size + 1)
        every = np.log(shares / shares.sum()).astype(np.float32)
        return np.where(datum.mask, every[datum.tokens], np.float32(0))


@breaks("scores_at_the_temperature_of_the_datum")
class IgnoresTemperature(Tiny):
    def seen(self, datum: Datum) -> Datum:
        return attrs.evolve(datum, temperature=1.0)


@breaks(SUM)
class ScalesLogprobs(Tiny):
    """Divides by the temperature without a new normaliser."""

    def seen(self, datum: Datum) -> Datum:
        return attrs.evolve(datum, temperature=1.0)

    def told(self, datum: Datum, row: FloatArray) -> FloatArray:
        return (row / datum.temperature).astype(np.float32)


@breaks("only_tokens_mask_and_temperature_count")
class RepeatsTheStudent(Tiny):
    def told(self, datum: Datum, row: FloatArray) -> FloatArray:
        return datum.logprobs


@breaks(SHAPE)
class PadsToTheLongest(Tiny):
    async def logprobs(self, data: Sequence[Datum]) -> list[FloatArray]:
        found = await super().logprobs(data)
        longest = max((len(row) for row in found), default=0)
        return [np.pad(row, (0, longest - len(row))) for row in found]


@breaks("company_and_order_do_not_matter")
class SortsByLength(Tiny):
    async def logprobs(self, data: Sequence[Datum]) -> list[FloatArray]:
        return sorted(await super().logprobs(data), key=len)


@breaks("what_is_too_long_is_refused")
class CutsWhatIsTooLong(Tiny):
    async def logprobs(self, data: Sequence[Datum]) -> list[FloatArray]:
        return [np.zeros(len(d.tokens), np.float32) for d in data if len(d.tokens) > 64] or (
            await super().logprobs(data)
        )


class Answers(Tiny):
    """Spoils its likeliest tokens."""

    async def score(self, questions: Sequence[TeacherRequest]) -> list[TopK]:
        found = await super().score(questions)
        return [self.said(q, answer) for q, answer in zip(questions, found, strict=True)]

    def said(self, question: TeacherRequest, answer: TopK) -> TopK:
        return answer


@breaks(ROWS)
class SaysATokenTwice(Answers):
    def said(self, question: TeacherRequest, answer: TopK) -> TopK:
        ids = np.array(answer.ids)
        ids[:, -1] = ids[:, 0]
        return attrs.evolve(answer, ids=ids)


@breaks(ACTUAL)
class RowsOfThePositionAfter(Answers):
    def said(self, question: TeacherRequest, answer: TopK) -> TopK:
        return answer.rows(np.roll(np.arange(len(answer.ids)), -1))


@breaks("a_larger_k_gives_the_same_and_more")
class TellsTheLeastLikely(Answers):
    async def score(self, questions: Sequence[TeacherRequest]) -> list[TopK]:
        whole = await Tiny().score([attrs.evolve(q, k=53) for q in questions])
        places = [
            np.argsort(a.logprobs, axis=-1)[:, : q.k] for a, q in zip(whole, questions, strict=True)
        ]
        return [
            attrs.evolve(
                a,
                ids=np.take_along_axis(a.ids, at, -1),
                logprobs=np.take_along_axis(a.logprobs, at, -1),
                is_whole=q.k == 53,
            )
            for a, at, q in zip(whole, places, questions, strict=True)
        ]


@breaks("likeliest_tokens_are_those_of_the_temperature")
class KnowsOneTemperature(Answers):
    async def score(self, questions: Sequence[TeacherRequest]) -> list[TopK]:
        return await super().score([attrs.evolve(q, temperature=1.0) for q in questions])


@breaks("a_larger_k_gives_the_same_and_more")
class SumsOverTheLikeliest(Answers):
    """Normalised over what it tells, as if nothing were left."""

    def said(self, question: TeacherRequest, answer: TopK) -> TopK:
        total = np.log(np.exp(answer.logprobs).sum(-1, keepdims=True))
        return attrs.evolve(answer, logprobs=answer.logprobs - total)


@breaks(ROWS)
class TellsFewer(Answers):
    async def score(self, questions: Sequence[TeacherRequest]) -> list[TopK]:
        return await super().score([attrs.evolve(q, k=min(q.k, 5)) for q in questions])


@breaks("all_tokens_together_are_the_whole_distribution")
class NeverWhole(Answers):
    def said(self, question: TeacherRequest, answer: TopK) -> TopK:
        return attrs.evolve(answer, is_whole=False)


@breaks("company_of_other_questions_does_not_matter")
class SortsQuestions(Answers):
    async def score(self, questions: Sequence[TeacherRequest]) -> list[TopK]:
        return await super().score(sorted(questions, key=lambda q: len(q.ids)))


@breaks("a_question_that_is_too_long_is_refused")
class AnswersAnyLength(Answers):
    async def score(self, questions: Sequence[TeacherRequest]) -> list[TopK]:
        return await super().score([attrs.evolve(q, ids=q.ids[:60]) for q in questions])


@breaks(STATES)
class StatesOfTheTokenItself(TinyRevealer):
    async def states(self, data: Sequence[Datum]) -> list[HiddenStates]:
        return await super().states([attrs.evolve(d, tokens=np.roll(d.tokens, -1)) for d in data])


@breaks(STATES)
class HeadOfAnother(TinyRevealer):
    def __init__(self) -> None:
        super().__init__()
        self.head = TinyRevealer(TinyBackend(seed=8)).head


@breaks(CAN)
class DeclaresNothing(Tiny):
    """It tells likely tokens, and a run would never ask."""

    def __init__(self) -> None:
        super().__init__()
        self.capabilities = TeacherCapabilities()


@breaks(STATES)
class DeclaresStates(Tiny):
    declares: ClassVar[dict[str, bool]] = {"has_states": True}


@breaks(CAN)
class HidesItsStates(TinyRevealer):
    def __init__(self) -> None:
        super().__init__()
        self.capabilities = attrs.evolve(self.capabilities, has_states=False)


@breaks(CAN)
class DeclaresThatItReads(Tiny):
    declares: ClassVar[dict[str, bool]] = {"reads_data": True}


class Reads(DeclaresThatItReads):
    """Answers whole data with what it tells of tokens."""

    async def answer(
        self, data: Sequence[Datum], name: str, ask: DistributionRequest | None
    ) -> list[Datum]:
        return await answered(TinyTeacher(TinyBackend(seed=7)), data, name, ask)


@breaks(CAN)
class ReadsAndDeclaresNothing(Reads):
    declares: ClassVar[dict[str, bool]] = {"reads_data": False}


@breaks(WHOLE)
class TurnsTheDataRound(Reads):
    async def answer(
        self, data: Sequence[Datum], name: str, ask: DistributionRequest | None
    ) -> list[Datum]:
        return (await super().answer(data, name, ask))[::-1]


@breaks(WHOLE)
class TellsOtherLogprobs(Reads):
    async def answer(
        self, data: Sequence[Datum], name: str, ask: DistributionRequest | None
    ) -> list[Datum]:
        other = TinyTeacher(TinyBackend(seed=8))
        return await answered(other, data, name, ask)


@breaks(WHOLE)
class AnswersWithoutDistributions(Reads):
    async def answer(
        self, data: Sequence[Datum], name: str, ask: DistributionRequest | None
    ) -> list[Datum]:
        return await super().answer(data, name, None)


@pytest.mark.parametrize("teacher", [TinyTeacher, TinyRevealer, Reads])
def test_a_right_teacher_holds_every_promise(teacher: type, broken: Broken) -> None:
    """Nothing is found where nothing is wrong."""
    assert broken(TeacherContract, make_teacher=teacher) == set()


@pytest.mark.parametrize(("teacher", "promise"), breaks.cases)
def test_each_planted_fault_is_found(teacher: type, promise: str, broken: Broken) -> None:
    """The promise that it breaks is among those that fail."""
    assert promise in broken(TeacherContract, promise, make_teacher=teacher)


def test_one_temperature_is_enough(broken: Broken) -> None:
    """A service that scores at temperature 1 alone says so, and is held to all the rest."""
    alone = {"make_teacher": IgnoresTemperature, "temperatures": (1.0,)}
    assert broken(TeacherContract, **alone) == set()


OPTIONAL = (
    "capabilities",
    "head",
    "image_processor",
    "check_problems",
    "metrics",
    "score",
    "states",
    "answer",
)


def slips(name: str) -> set[str]:
    """A letter less, one more, two exchanged, and the same in camelCase."""
    head, *rest = name.split("_")
    camel = head + "".join(part.title() for part in rest)
    swapped = name[0] + name[2] + name[1] + name[3:]
    return {name[:-2] + name[-1], name + "s", swapped, camel} - {name}


def test_every_optional_name_of_a_teacher_is_tried() -> None:
    """The list above is all that a teacher may define besides its essentials."""
    essentials = {"kind", "not_a_part_method", "name", "tokenizer", "context_length", "logprobs"}
    known = {n for n in (*vars(Teacher), *Teacher.__annotations__) if not n.startswith("_")}
    assert known - essentials == set(OPTIONAL)


@pytest.mark.parametrize("name", OPTIONAL)
def test_misspelt_abilities_are_caught(broken: Broken, name: str) -> None:
    """In a class when it is made; set on the object, by the kit."""
    for slip in slips(name):
        with pytest.raises((TypeError, NearMissWarning), match=f"did you mean {name}"):
            type("Slip", (Tiny,), {slip: None})

        class SetLate(Tiny):
            late: ClassVar[str] = slip

            def __init__(self) -> None:
                super().__init__()
                vars(self).pop(name, None)  # else both are there, and the other name is meant
                is_method = inspect.isfunction(getattr(Teacher, name))
                setattr(self, self.late, (lambda: None) if is_method else 1)

        is_long = len(name) >= LONG
        assert ("says_who_it_is" in broken(TeacherContract, make_teacher=SetLate)) is is_long, slip


@pytest.mark.parametrize("name", [f.name for f in attrs.fields(TeacherCapabilities)])
def test_misspelt_capabilities_are_refused(name: str) -> None:
    """By the record itself."""
    for slip in slips(name):
        with pytest.raises(TypeError, match=slip):
            TeacherCapabilities(**{slip: True})


def test_a_stranger_is_no_teacher(broken: Broken) -> None:
    """A class that only looks like one fails."""

    class Stranger:
        name, context_length, tokenizer = "s", 9, TinyBackend().tokenizer

    assert "says_who_it_is" in broken(TeacherContract, make_teacher=Stranger)
