"""Promises of a teacher that gives more than the logprobs of given tokens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any, ClassVar

import attrs
import numpy as np
import pytest

from rlvr.border.declared import overrides
from rlvr.errors import BackendError, UnsupportedError
from rlvr.parts import Teacher, TeacherCapabilities
from rlvr.teachers.checks import fault_of_answer, fault_of_rows
from rlvr.testing.backend_losses import head_logits, log_softmax
from rlvr.testing.contract import close, on_open, same
from rlvr.types import Datum, DistributionRequest, TeacherRequest, TopK

LARGEST = 2000
"""Ids of a vocabulary that a distribution is summed over."""


class ScoringPromises:
    """A part of `TeacherContract`: the capabilities are true, declared and undeclared ones."""

    tolerance_nats: ClassVar[float]
    is_padded: ClassVar[bool]
    temperatures: ClassVar[tuple[float, ...]]
    tops: ClassVar[tuple[int, ...]]

    _data: Callable[[Teacher], list[Datum]]

    @on_open("make_teacher")
    async def test_it_can_what_it_declares_and_nothing_else(self, teacher: Teacher) -> None:
        """An undeclared ability raises `UnsupportedError`: a run would never ask for it."""
        able, data = teacher.capabilities, self._data(teacher)
        assert isinstance(able, TeacherCapabilities), f"capabilities are {able!r:.80}"
        unasked: list[tuple[str, Callable[[], Awaitable[Any]]]] = []
        if able.reads_data:
            assert overrides(teacher, "answer"), "reads_data, so it has `answer`"
        else:
            unasked.append(("reads_data", lambda: teacher.answer(data, "told", None)))
            if not able.has_scores:
                questions = self._questions(teacher)
                unasked.append(("has_scores", lambda: teacher.score(questions)))
        if not able.has_states:
            unasked.append(("has_states", lambda: teacher.states(data)))
        for name, asked in unasked:
            with pytest.raises(UnsupportedError):
                pytest.fail(f"it answers without {name}: {await asked()!r:.80}")

    @on_open("make_teacher")
    async def test_whole_data_come_back_with_what_was_asked_for(self, teacher: Teacher) -> None:
        """Answers keep the order; their logprobs equal `logprobs`, and rows are distributions."""
        able, data = teacher.capabilities, self._data(teacher)
        if not able.reads_data:
            pytest.skip("it is asked by tokens")
        wanted = await teacher.logprobs(data)
        found = await teacher.answer(data, "told", None)
        for datum, answer, values in zip(data, found, wanted, strict=True):
            fault = fault_of_answer(answer, datum, "told", None)
            assert not fault, f"it gave {fault}"
            told = answer.annotations["told"][datum.mask]
            close("answer and logprobs", told, values[datum.mask], self.tolerance_nats)
        if able.has_scores:
            k, size = self._tops(teacher)[-1], teacher.tokenizer.vocab_size
            ask = DistributionRequest(k=k, temperature=self.temperatures[0])
            for datum, answer in zip(data, await teacher.answer(data, "t", ask), strict=True):
                fault = fault_of_answer(answer, datum, "t", ask)
                assert not fault, f"it gave {fault}"
                rows = answer.distributions["t"]
                assert isinstance(rows, TopK), f"a distribution is {rows!r:.80}, no TopK"
                fault = fault_of_rows(rows, k, size, able.is_partial)
                assert not fault, f"it gave {fault}"

    @on_open("make_teacher")
    async def test_likeliest_tokens_are_rows_of_a_distribution(self, teacher: Teacher) -> None:
        """One row a position from `start` on, each id once, sums of at most 1, nothing missing."""
        scoring, size = _scoring(teacher), teacher.tokenizer.vocab_size
        questions = self._questions(teacher)
        for question, answer in zip(questions, await scoring.score(questions), strict=True):
            rows = len(question.ids) - question.start
            same("shapes of ids and logprobs", answer.ids.shape, answer.logprobs.shape)
            same("rows from `start` on", answer.ids.shape[0], rows)
            same("shape of `actual`", answer.actual.shape, (rows,))
            is_partial = scoring.capabilities.is_partial
            fault = fault_of_rows(answer, question.k, size, is_partial)
            assert not fault, f"it gave {fault}"
            most = answer.logprobs.max()
            assert most <= 1e-6, f"a logprob is {most:g}, above 0"

    @on_open("make_teacher")
    async def test_the_token_that_stands_there_has_its_logprob(self, teacher: Teacher) -> None:
        """`actual` equals `logprobs`, and so does that token's entry in the row."""
        scoring, data = _scoring(teacher), self._data(teacher)
        wanted = await teacher.logprobs(data)
        size, most = teacher.tokenizer.vocab_size, scoring.capabilities.max_k
        k = self._tops(scoring)[-1] if size > LARGEST or most else size
        for datum, values in zip(data, wanted, strict=True):
            start = int(np.argmax(datum.mask))
            (answer,) = await scoring.score(
                [TeacherRequest(ids=datum.tokens, start=start, k=k, temperature=datum.temperature)]
            )
            mask = datum.mask[start:]
            says = "`actual` and logprobs"
            close(says, answer.actual[mask], values[start:][mask], self.tolerance_nats)
            own = answer.ids == datum.tokens[start:, None]
            told = np.broadcast_to(answer.actual[:, None], own.shape)[own]
            says = "the entry of the token that stands there, and `actual`"
            close(says, answer.logprobs[own], told, self.tolerance_nats)

    @on_open("make_teacher")
    async def test_a_larger_k_gives_the_same_and_more(self, teacher: Teacher) -> None:
        """Rows hold the likeliest tokens, in any order: no token left out is likelier."""
        scoring = _scoring(teacher)
        question = self._questions(teacher)[-1]
        answers = [
            (await scoring.score([attrs.evolve(question, k=k)]))[0] for k in self._tops(scoring)
        ]
        for k, (fewer, more) in zip(self._tops(scoring), pairwise(answers), strict=False):
            for few, many in zip(_rows(fewer), _rows(more), strict=True):
                lost = sorted(set(few) - set(many))
                assert not lost, f"ids that a larger k does not give: {lost[:8]}"
                told, again = ([row[i] for i in few] for row in (few, many))
                close("logprobs with a larger k", again, told, self.tolerance_nats)
                least = sorted(few.values())[-k]  # a service may add the token that stands there
                others = [value for i, value in many.items() if i not in few]
                beyond = max(others, default=-np.inf) - least
                says = f"with k={k} a token is left out that is likelier by {beyond:.3g} nats"
                assert beyond <= self.tolerance_nats, says

    @on_open("make_teacher")
    async def test_all_tokens_together_are_the_whole_distribution(self, teacher: Teacher) -> None:
        """With k the vocabulary the probabilities sum to 1."""
        scoring, size = _scoring(teacher), teacher.tokenizer.vocab_size
        if size > LARGEST or 0 < scoring.capabilities.max_k < size:
            pytest.skip("it does not tell whole distributions, or of too many tokens")
        question = attrs.evolve(self._questions(teacher)[-1], k=size)
        (answer,) = await scoring.score([question])
        totals = np.exp(answer.logprobs.astype(float)).sum(-1)
        says = f"probabilities of all tokens sum to {totals.min():.4g} to {totals.max():.4g}"
        assert totals.max() <= 1.002, f"{says}, more than 1"
        assert totals.min() >= (0.5 if self.is_padded else 0.998), f"{says}, less than 1"
        same("is_whole, where k is the vocabulary", answer.is_whole, not self.is_padded)

    @on_open("make_teacher")
    async def test_likeliest_tokens_are_those_of_the_temperature(self, teacher: Teacher) -> None:
        """A colder question gets sharper rows; temperatures may be mixed."""
        scoring = _scoring(teacher)
        if len(self.temperatures) < 2:
            pytest.skip(f"it scores at temperature {self.temperatures[0]} only")
        question = attrs.evolve(self._questions(teacher)[-1], k=self._tops(scoring)[-1])
        questions = [attrs.evolve(question, temperature=t) for t in self.temperatures]
        together = await scoring.score(questions)
        cold, warm = (together[i] for i in np.argsort(self.temperatures)[[0, -1]])
        says = "the likeliest token is not likelier where the temperature is lower"
        assert (cold.logprobs.max(-1) > warm.logprobs.max(-1)).all(), says
        for one, wanted in zip(questions, together, strict=True):
            (alone,) = await scoring.score([one])
            says = "`actual` alone and beside another temperature"
            close(says, alone.actual, wanted.actual, self.tolerance_nats)

    @on_open("make_teacher")
    async def test_company_of_other_questions_does_not_matter(self, teacher: Teacher) -> None:
        """Each alone gets what it gets among longer and shorter ones, in any order."""
        scoring, questions = _scoring(teacher), self._questions(teacher)
        together = await scoring.score(questions)
        turned = (await scoring.score(questions[::-1]))[::-1]
        for question, wanted, again in zip(questions, together, turned, strict=True):
            (alone,) = await scoring.score([question])
            for other in (alone, again):
                for one, two in zip(_rows(wanted), _rows(other), strict=True):
                    ids = sorted(one.keys() & two.keys())
                    told, among = ([row[i] for i in ids] for row in (one, two))
                    close("logprobs alone, among others and in another order", told, among, 1e-3)
        same("answer to no question", list(await scoring.score([])), [])

    @on_open("make_teacher")
    async def test_a_question_that_is_too_long_is_refused(self, teacher: Teacher) -> None:
        """More tokens than it reads are a `BackendError`."""
        ids = [1] * (teacher.context_length + 1)
        question = TeacherRequest(
            ids=ids, start=len(ids) - 1, k=1, temperature=self.temperatures[0]
        )
        with pytest.raises(BackendError):
            await _scoring(teacher).score([question])

    @on_open("make_teacher")
    async def test_states_and_head_are_the_whole_distribution(self, teacher: Teacher) -> None:
        """Softmax of the head on a state gives the likeliest tokens, at any temperature."""
        if not teacher.capabilities.has_states:
            pytest.skip("this teacher gives no states")
        data, head = self._data(teacher), teacher.head
        assert head is not None, "it has_states, and its head is None"
        for datum, found in zip(data, await teacher.states(data), strict=True):
            wide = int(datum.mask.sum()), head.weights.shape[1]
            same("shape of the states", tuple(found.states.shape), wide)
            for temperature in self.temperatures:
                states = head.weights.new_tensor(found.states.tolist())
                rows = log_softmax(head_logits(head, states) / temperature).cpu().numpy()
                (own,) = await teacher.logprobs([attrs.evolve(datum, temperature=temperature)])
                told = rows[np.arange(len(rows)), datum.tokens[datum.mask]]
                most = max(self.tolerance_nats, 1e-4)
                close("logprobs by states and head", told, own[datum.mask], most)
                if not teacher.capabilities.has_scores:
                    continue
                start = int(np.argmax(datum.mask))
                (answer,) = await teacher.score(
                    [TeacherRequest(ids=datum.tokens, start=start, k=3, temperature=temperature)]
                )
                few = answer.rows(np.flatnonzero(datum.mask) - start)
                wanted = np.take_along_axis(rows, few.ids.astype(int), axis=-1)
                close("likeliest tokens by states and head", wanted, few.logprobs, most)

    # --- helpers --------------------------------------------------------------------------------

    def _tops(self, teacher: Teacher) -> list[int]:
        able, size = teacher.capabilities, teacher.tokenizer.vocab_size
        return [k for k in self.tops if k <= size and (not able.max_k or k <= able.max_k)]

    def _questions(self, teacher: Teacher) -> list[TeacherRequest]:
        """Questions about the data: from the second token, from the middle, the last only."""
        starts, k = (1, 3, 5), self._tops(teacher)[-1]
        return [
            TeacherRequest(
                ids=datum.tokens,
                start=min(start, len(datum.tokens) - 1),
                k=k,
                temperature=self.temperatures[0],
            )
            for start, datum in zip(starts, self._data(teacher), strict=True)
        ]


def _scoring(teacher: Teacher) -> Teacher:
    if not teacher.capabilities.has_scores or teacher.capabilities.reads_data:
        pytest.skip("it tells logprobs of given tokens only, or is asked by data")
    return teacher


def _rows(answer: TopK) -> list[dict[int, float]]:
    return [
        {int(i): float(lp) for i, lp in zip(ids, row, strict=True) if i >= 0}
        for ids, row in zip(answer.ids, answer.logprobs, strict=True)
    ]
