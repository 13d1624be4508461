"""Whole distributions from the service: what a teacher tells a distilling loss."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from server_process import Running

from rlvr import BackendError, BuildContext, Datum, TeacherRequest, TopK, fingerprint
from rlvr.testing import opened
from rlvr_tinker.backend import TinkerBackend
from rlvr_tinker.config import TinkerConfig
from rlvr_tinker.scoring import likeliest
from rlvr_tinker.teacher import TinkerTeacher

from .conftest import Faults

pytestmark = pytest.mark.timeout(600)

VOCAB = 257
IDS = [5, 6, 7, 40, 9, 200, 31]


@asynccontextmanager
async def a_teacher() -> Any:
    async with TinkerTeacher(TinkerConfig(timeout_s=20.0), BuildContext(model="tinker:")) as found:
        yield found


def asked(*questions: TeacherRequest) -> list[TopK]:
    async def run() -> list[TopK]:
        async with a_teacher() as teacher:
            found: list[TopK] = await teacher.score(questions)
            return found

    return asyncio.run(run())


def table(ids: list[int], place: int, tokens: Sequence[int]) -> np.ndarray:
    """Logprobs of tokens at a place by the other way there is: each is scored for itself."""
    data = []
    for token in tokens:
        mask = np.arange(place + 1) == place
        zeros = np.zeros(place + 1)
        told = [*ids[:place], token]
        data.append(Datum(tokens=told, mask=mask, logprobs=zeros, advantages=zeros, weights=zeros))

    async def run() -> list[np.ndarray]:
        async with a_teacher() as teacher:
            found: list[np.ndarray] = await teacher.logprobs(data)
            return found

    return np.array([values[-1] for values in asyncio.run(run())])


@pytest.mark.thorough
def test_the_likeliest_are_those_of_the_whole_distribution(server: Running) -> None:
    """Ids, their order and logprobs, and that of the token that stands there: row by row."""
    (found,) = asked(TeacherRequest(ids=IDS, start=4, k=5))

    assert found.ids.shape == found.logprobs.shape == (3, 5)
    assert not found.is_whole
    for row, place in enumerate((4, 5, 6)):
        # of one row against all tokens, of the others against some
        others = range(VOCAB) if row == 0 else range(row, VOCAB, 16)
        tokens = sorted({*others, *found.ids[row].tolist(), IDS[place]})
        wanted = table(IDS, place, tokens)
        best = np.argsort(-wanted)[:5]
        assert found.ids[row].tolist() == [tokens[i] for i in best]
        assert np.abs(found.logprobs[row] - wanted[best]).max() < 1e-5
        assert abs(found.actual[row] - wanted[tokens.index(IDS[place])]) < 1e-5


def test_the_whole_vocabulary_leaves_nothing_over(server: Running) -> None:
    """And more than the vocabulary cannot be asked for: it is the vocabulary then."""
    for k in (VOCAB, VOCAB + 50):
        (found,) = asked(TeacherRequest(ids=IDS, start=1, k=k))
        assert found.is_whole
        assert found.ids.shape == (6, VOCAB)
        assert sorted(found.ids[0].tolist()) == list(range(VOCAB))
        assert np.allclose(np.exp(found.logprobs).sum(axis=1), 1.0, atol=1e-5)


def test_company_does_not_matter(server: Running) -> None:
    """Many questions at the same time get what each gets alone."""
    questions = [TeacherRequest(ids=IDS[:n], start=1 + n % 2, k=3) for n in range(3, 8)]

    for question, wanted in zip(questions, asked(*questions), strict=True):
        (alone,) = asked(question)
        assert alone.ids.tolist() == wanted.ids.tolist()
        assert np.abs(alone.logprobs - wanted.logprobs).max() < 1e-5
        assert len(wanted.actual) == len(question.ids) - question.start


def test_a_teacher_says_what_it_can(server: Running) -> None:
    """Temperature 1 alone, no states, and whose tokens it means."""

    async def run() -> None:
        async with a_teacher() as teacher:
            able = teacher.capabilities
            assert able.has_scores
            assert able.temperatures == (1.0,)
            assert not able.has_states
            assert able.tokenizer == fingerprint(teacher.tokenizer)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"temperature": 2.0}, "temperature 2"),
        ({"start": 0}, "from position 0"),
        ({"start": 7}, "from position 7"),
        ({"k": 0}, "k=0"),
        ({"ids": [1] * 64, "start": 60}, "takes 63"),
        ({"ids": [1, 9999, 1], "start": 1}, "1..9999"),
    ],
)
def test_questions_that_cannot_be_asked(server: Running, change: dict[str, Any], word: str) -> None:
    """Nothing of a batch is sent where one of it is wrong; which one is said."""
    good = TeacherRequest(ids=IDS, start=4, k=5)

    with pytest.raises(BackendError, match="question 1 of 2") as error:
        asked(good, TeacherRequest(**{"ids": IDS, "start": 4, "k": 5, **change}))

    assert word in str(error.value)


def test_a_lost_session_is_asked_again(server: Running, faults: Faults) -> None:
    """The same answer from another session."""
    question = TeacherRequest(ids=IDS, start=4, k=5)
    (wanted,) = asked(question)

    async def run() -> TopK:
        async with a_teacher() as teacher:
            await teacher.score([question])
            faults.set({"on": "asample", "do": "status", "status": 404})
            (found,) = await teacher.score([question])
            return found  # type: ignore[no-any-return]

    assert asyncio.run(run()).ids.tolist() == wanted.ids.tolist()


class Answer:
    """What another server might say."""

    def __init__(self, actual: Any = None, table: Any = None) -> None:
        self.prompt_logprobs_np, self.topk_prompt_logprobs_np = actual, table


class Client:
    """A sampling client of a server that says what it is given, one answer a request."""

    def __init__(self, *answers: Any) -> None:
        self._answers: Iterator[Any] = iter(answers)

    def sample(self, *_: Any, **__: Any) -> Future[Any]:
        answer, future = next(self._answers), Future[Any]()
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        return future


class Table:
    """The SDK's."""

    def __init__(self, ids: Any, logprobs: Any) -> None:
        self.token_ids, self.logprobs = np.array(ids), np.array(logprobs, np.float32)


def of_another(*answers: Any, vocab_size: int = 4) -> TopK:
    async def wait(request: Future[Any], _doing: str) -> Any:
        return request.result()

    question = TeacherRequest(ids=[1, 2, 3], start=1, k=2)
    return asyncio.run(likeliest(Client(*answers), question, vocab_size, wait))


LOGPROBS = np.array([np.nan, -0.5, -0.25], np.float32)
ROWS = Table([[0, 0], [2, 1], [3, 0]], [[-99999, -99999], [-0.5, -2], [-0.25, -99999]])


def test_empty_places_and_rows_that_pad_the_model_are_none() -> None:
    """The SDK's sentinel, and ids that the tokenizer does not have: -1 and -inf."""
    found = of_another(Answer(LOGPROBS, ROWS), vocab_size=3)

    assert found.ids.tolist() == [[2, 1], [-1, -1]]
    assert found.logprobs.tolist() == [[-0.5, -2.0], [-np.inf, -np.inf]]
    assert found.actual.tolist() == [-0.5, -0.25]
    assert not found.is_whole


def test_a_server_that_scores_whole_prompts_only() -> None:
    """It does not know how to leave the beginning out, and is asked for all of it."""
    older = RuntimeError("the server returned more; it may predate this feature")

    found = of_another(older, Answer(LOGPROBS, ROWS))

    assert found.ids.tolist() == [[2, 1], [3, -1]]


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (Answer(LOGPROBS, None), "topk_prompt_logprobs were asked"),
        (Answer(None, ROWS), "topk_prompt_logprobs were asked"),
        (Answer(LOGPROBS, Table([[1], [2], [3]], [[-1]] * 3)), "a table of 3 x 1"),
        (Answer(LOGPROBS[1:], ROWS), "2 logprobs"),
    ],
)
def test_a_server_that_does_not_tell(answer: Any, word: str) -> None:
    """What was asked, what came, and that this server is no such teacher."""
    with pytest.raises(BackendError, match=word):
        of_another(answer)


def test_choices_that_cannot_be_sent(
    make_backend: Callable[..., TinkerBackend], faults: Faults
) -> None:
    """No prompt, no token, too long, foreign: refused here, as data are."""

    async def run() -> None:
        async with opened(make_backend()) as backend:
            policy = await backend.policy()
            faults.set()
            for prompt, choices, word in (
                ([], [[1]], "at least one token"),
                ([1], [[2], []], "without tokens"),
                ([1] * 60, [[2], [3] * 9], "69 tokens"),
                ([1], [[9999]], "9999"),
            ):
                with pytest.raises(BackendError, match=word):
                    await policy.choices(prompt, choices)

    asyncio.run(run())
    assert faults.requests("asample") == 0
