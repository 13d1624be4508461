"""TeacherContract passes on a right teacher, and finds each planted fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
import pytest

from rlvr.testing import TeacherContract, TinyBackend, TinyTeacher
from rlvr.testing.contract import Contract
from rlvr.types import Datum, FloatArray

Broken = Callable[[type[Contract]], set[str]]


class Tiny(TinyTeacher):
    """The fake teacher with one thing wrong; it reads few tokens, which the test is quick at."""

    context_length = 64

    def __init__(self) -> None:
        super().__init__(TinyBackend(seed=7))

    async def logprobs(self, data: Sequence[Datum]) -> list[FloatArray]:
        found = await super().logprobs([self.seen(d) for d in data])
        return [self.told(d, row) for d, row in zip(data, found, strict=True)]

    def seen(self, datum: Datum) -> Datum:
        return datum

    def told(self, datum: Datum, row: FloatArray) -> FloatArray:
        return row


class ScoresThePrompt(Tiny):
    def told(self, datum: Datum, row: FloatArray) -> FloatArray:
        return row - ~datum.mask


class GivesProbabilities(Tiny):
    def told(self, datum: Datum, row: FloatArray) -> FloatArray:
        return np.exp(row) * datum.mask


class TakesBaseTwo(Tiny):
    def told(self, datum: Datum, row: FloatArray) -> FloatArray:
        return (row / np.log(2)).astype(np.float32)


class OffByOne(Tiny):
    """Gives the row of the token after, as a service's prompt logprobs misread would."""

    def told(self, datum: Datum, row: FloatArray) -> FloatArray:
        return np.where(datum.mask, np.roll(row, -1) - 0.01, np.float32(0))


class IgnoresTemperature(Tiny):
    def seen(self, datum: Datum) -> Datum:
        return attrs.evolve(datum, temperature=1.0)


class ScalesLogprobs(Tiny):
    """Divides by the temperature without a new normaliser."""

    def seen(self, datum: Datum) -> Datum:
        return attrs.evolve(datum, temperature=1.0)

    def told(self, datum: Datum, row: FloatArray) -> FloatArray:
        return (row / datum.temperature).astype(np.float32)


class RepeatsTheStudent(Tiny):
    def told(self, datum: Datum, row: FloatArray) -> FloatArray:
        return datum.logprobs


class PadsToTheLongest(Tiny):
    async def logprobs(self, data: Sequence[Datum]) -> list[FloatArray]:
        found = await super().logprobs(data)
        longest = max((len(row) for row in found), default=0)
        return [np.pad(row, (0, longest - len(row))) for row in found]


class SortsByLength(Tiny):
    async def logprobs(self, data: Sequence[Datum]) -> list[FloatArray]:
        return sorted(await super().logprobs(data), key=len)


class CutsWhatIsTooLong(Tiny):
    async def logprobs(self, data: Sequence[Datum]) -> list[FloatArray]:
        return [np.zeros(len(d.tokens), np.float32) for d in data if len(d.tokens) > 64] or (
            await super().logprobs(data)
        )


SHAPE = "one_logprob_for_each_token_of_the_policy"
SUM = "logprobs_are_those_of_a_distribution"
BEFORE = "what_comes_before_a_token_decides"


def contract_of(teacher: Callable[[], Any]) -> type[TeacherContract]:
    class Of(TeacherContract):
        def make_teacher(self) -> Any:
            return teacher()

    return Of


def test_a_right_teacher_holds_every_promise(broken: Broken) -> None:
    """Nothing is found where nothing is wrong."""
    assert broken(contract_of(TinyTeacher)) == set()


@pytest.mark.parametrize(
    ("teacher", "promise"),
    [
        (ScoresThePrompt, SHAPE),
        (GivesProbabilities, SHAPE),
        (PadsToTheLongest, SHAPE),
        (TakesBaseTwo, SUM),
        (OffByOne, BEFORE),
        (ScalesLogprobs, SUM),
        (IgnoresTemperature, "scores_at_the_temperature_of_the_datum"),
        (RepeatsTheStudent, "only_tokens_mask_and_temperature_count"),
        (SortsByLength, "company_and_order_do_not_matter"),
        (CutsWhatIsTooLong, "what_is_too_long_is_refused"),
    ],
)
def test_each_planted_fault_is_found(
    broken: Broken, teacher: Callable[[], Any], promise: str
) -> None:
    """The promise that it breaks is among those that fail."""
    assert promise in broken(contract_of(teacher))


def test_one_temperature_is_enough(broken: Broken) -> None:
    """A service that scores at temperature 1 alone says so, and is held to all the rest."""

    class AtOne(contract_of(IgnoresTemperature)):  # type: ignore[misc]
        temperatures = (1.0,)

    assert broken(AtOne) == set()
