"""The promises of a teacher, as tests to inherit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import attrs
import numpy as np
import pytest

from rlvr.errors import BackendError
from rlvr.parts import Teacher
from rlvr.testing.contract import Contract, check_part, close, not_given, on_open, same
from rlvr.testing.teacher_scoring import LARGEST, ScoringPromises
from rlvr.types import Datum


class TeacherContract(ScoringPromises, Contract):
    """
    Tests of a teacher's promises. Define `make_teacher`.

    Attributes:
        tolerance_nats: Largest allowed difference of one token's logprob between two requests.
        temperatures: Those it can score at; most tests use the first.
        tops: Numbers of likeliest tokens that are asked for of a teacher that `has_scores`, the
            smallest first; beyond what it gives (`capabilities.max_k`) they are left out.
        is_padded: Whether its model has rows that no token has: they take a part of the
            probability, up to half of it.
    """

    tolerance_nats: ClassVar[float] = 1e-4
    tops: ClassVar[tuple[int, ...]] = (1, 3, 8)
    is_padded: ClassVar[bool] = False
    temperatures: ClassVar[tuple[float, ...]] = (1.0, 0.7)

    def make_teacher(self) -> Teacher:
        """A new teacher, as its spec's target builds it."""
        raise not_given(self, "make_teacher")

    # --- promises -------------------------------------------------------------------------------

    @on_open("make_teacher")
    async def test_says_who_it_is(self, teacher: Teacher) -> None:
        """A name for messages, a tokenizer, and how many tokens it reads."""
        check_part(teacher, Teacher)
        name, length = teacher.name, teacher.context_length
        assert isinstance(name, str), f"its name is {name!r}, no text"
        assert name, "its name is empty"
        assert length > 1, f"its context_length is {length}: it reads two tokens at least"
        size = teacher.tokenizer.vocab_size
        assert size > 1, f"the vocab_size of its tokenizer is {size}"

    @on_open("make_teacher")
    async def test_one_logprob_for_each_token_of_the_policy(self, teacher: Teacher) -> None:
        """Shape (T,), finite and at most 0 at the policy's tokens, exactly 0 elsewhere."""
        data = self._data(teacher)
        found = await teacher.logprobs(data)
        same("number of answers", len(found), len(data))
        for datum, values in zip(data, found, strict=True):
            same("shape of a datum's logprobs", values.shape, datum.tokens.shape)
            assert np.isfinite(values).all(), f"logprobs are not finite: {values}"
            assert (values[datum.mask] <= 1e-6).all(), f"a logprob is above 0: {values}"
            assert values[datum.mask].any(), "all logprobs of the policy's tokens are 0"
            assert not values[~datum.mask].any(), f"logprobs outside the mask are not 0: {values}"

    @on_open("make_teacher")
    async def test_logprobs_are_those_of_a_distribution(self, teacher: Teacher) -> None:
        """Over all tokens that may come next the probabilities sum to 1, at each temperature."""
        size = teacher.tokenizer.vocab_size
        if size > LARGEST:
            pytest.skip(f"its vocabulary has {size} ids, more than {LARGEST}")
        first = self._data(teacher)[0]
        mask = np.zeros(4, bool)
        mask[-1] = True
        for temperature in self.temperatures:
            data = [
                _datum([*first.tokens[:3].tolist(), token], mask, temperature)
                for token in range(size)
            ]
            found = await teacher.logprobs(data)
            total = sum(float(np.exp(values[-1])) for values in found)
            says = f"probabilities of all next tokens sum to {total:.4g} at {temperature:g}"
            assert total <= 1.002, f"{says}, more than 1: are these natural logs of a softmax?"
            assert total >= (0.5 if self.is_padded else 0.998), f"{says}, less than 1"

    @on_open("make_teacher")
    async def test_what_comes_before_a_token_decides(self, teacher: Teacher) -> None:
        """A token's logprob changes with the tokens before it, and not with those after it."""
        datum = self._data(teacher)[-1]
        other = (datum.tokens + 1) % teacher.tokenizer.vocab_size
        last = len(datum.tokens) - 1
        after = np.where(np.arange(last + 1) == last, other, datum.tokens)
        before = np.where(np.arange(last + 1) == last - 1, other, datum.tokens)
        (plain,), (changed_after,), (changed_before,) = [
            await teacher.logprobs([attrs.evolve(datum, tokens=tokens)])
            for tokens in (datum.tokens, after, before)
        ]
        says = "logprobs before a token that was changed"
        close(says, changed_after[:-1], plain[:-1], self.tolerance_nats)
        moved = abs(changed_before[-1] - plain[-1])
        says = f"a token's logprob moves by {moved:.3g} nats if the token before it is another"
        assert moved > self.tolerance_nats, f"{says}: are the logprobs shifted by one place?"

    @on_open("make_teacher")
    async def test_company_and_order_do_not_matter(self, teacher: Teacher) -> None:
        """Each datum alone gets what it gets among longer and shorter ones, in any order."""
        data = self._data(teacher)
        together = await teacher.logprobs(data)
        turned = await teacher.logprobs(data[::-1])
        for datum, wanted, again in zip(data, together, turned[::-1], strict=True):
            (alone,) = await teacher.logprobs([datum])
            close("logprobs alone and among others", alone, wanted, self.tolerance_nats)
            close("logprobs in another order", again, wanted, self.tolerance_nats)

    @on_open("make_teacher")
    async def test_only_tokens_mask_and_temperature_count(self, teacher: Teacher) -> None:
        """The policy's own logprobs and the advantages change no answer."""
        data = self._data(teacher)
        wanted = await teacher.logprobs(data)
        others = [
            attrs.evolve(d, logprobs=d.logprobs - d.mask, advantages=3.0 * d.mask) for d in data
        ]
        for values, other in zip(wanted, await teacher.logprobs(others), strict=True):
            says = "logprobs where the policy's own and advantages are others"
            close(says, values, other, self.tolerance_nats)

    @on_open("make_teacher")
    async def test_scores_at_the_temperature_of_the_datum(self, teacher: Teacher) -> None:
        """A colder datum is scored by a sharper distribution; temperatures may be mixed."""
        if len(self.temperatures) < 2:
            pytest.skip(f"it scores at temperature {self.temperatures[0]} only")
        datum = self._data(teacher)[-1]
        data = [attrs.evolve(datum, temperature=t) for t in self.temperatures]
        together = await teacher.logprobs(data)
        says = f"logprobs are the same at temperatures {self.temperatures[:2]}"
        assert np.abs(together[0] - together[1]).max() > self.tolerance_nats, says
        for one, wanted in zip(data, together, strict=True):
            (alone,) = await teacher.logprobs([one])
            close(
                "logprobs alone and beside another temperature", alone, wanted, self.tolerance_nats
            )

    @on_open("make_teacher")
    async def test_nothing_to_score_is_no_error(self, teacher: Teacher) -> None:
        """A step without data gives an empty list."""
        same("answer to no data", list(await teacher.logprobs([])), [])

    @on_open("make_teacher")
    async def test_what_is_too_long_is_refused(self, teacher: Teacher) -> None:
        """More tokens than it reads are a `BackendError`."""
        length = teacher.context_length + 1
        mask = np.arange(length) == length - 1
        with pytest.raises(BackendError):
            await teacher.logprobs([_datum([1] * length, mask, self.temperatures[0])])

    # --- helpers --------------------------------------------------------------------------------

    def _data(self, teacher: Teacher) -> list[Datum]:
        """Ragged data, one of two turns."""
        size = teacher.tokenizer.vocab_size
        rng = np.random.default_rng(3)
        masks = [[0, 0, 0, 1], [0, 1, 1, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 1]]
        return [
            _datum(rng.integers(1, size, len(mask)), np.array(mask, bool), self.temperatures[0])
            for mask in masks
        ]


def _datum(tokens: Sequence[int] | np.ndarray, mask: np.ndarray, temperature: float) -> Datum:
    return Datum(
        tokens=tokens,
        mask=mask,
        logprobs=-1.0 * mask,
        advantages=mask,
        weights=mask / mask.sum(),
        temperature=temperature,
    )
