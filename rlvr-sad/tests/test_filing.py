"""A teacher's answers in files: what is kept of them, and what comes back."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest
from byte_tokenizer import ByteTokenizer
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from replay_fixture import Policy, chat

from rlvr import (
    BackendError,
    BuildContext,
    ConfigError,
    Datum,
    FloatArray,
    Message,
    SamplingParams,
    Segment,
    Teacher,
    TeacherCapabilities,
    TeacherRequest,
    TopK,
    Trajectory,
    UnknownNameError,
    fingerprint,
    sample_groups,
)
from rlvr_sad.config import SadConfig
from rlvr_sad.replay.sampler import ReplayConfig, ReplaySampler
from rlvr_sad.task import SadTask
from rlvr_sad.teacher_cache import teacher
from rlvr_sad.teacher_cache.answers import (
    ANSWERS,
    Answers,
    answer_of,
    entropies,
    entropy_of,
    rounded_down,
    row_type,
    rows_of,
)
from rlvr_sad.teacher_cache.make import Made, Wish, make
from rlvr_sad.teacher_cache.teacher import FileTeacher
from rlvr_sad.teacher_cache.tokenizer import keep_tokenizer, kept_tokenizer

V = 256


class Kept(ByteTokenizer):
    """Bytes, and can be saved."""

    can_save = True

    def save(self, directory: Path) -> None:
        (directory / "tokenizer.json").write_text("{}")


class Oracle(Teacher):
    """A teacher whose distribution depends on the last two bytes; counts what it is asked."""

    name = "oracle:1"
    context_length = 4096
    tokenizer = Kept()

    def __init__(self, breaks_after: int = 10**9, **capabilities: Any) -> None:
        self.asked = 0
        self._breaks_after = breaks_after
        self.capabilities = TeacherCapabilities(
            has_scores=True, tokenizer=fingerprint(self.tokenizer), **capabilities
        )

    async def logprobs(self, data: Sequence[Datum]) -> list[FloatArray]:
        raise AssertionError("only its likeliest tokens are kept")

    async def score(self, questions: Sequence[TeacherRequest]) -> list[TopK]:
        self.asked += len(questions)
        if self.asked > self._breaks_after:
            raise BackendError("the server died")
        return [self._answer(question) for question in questions]

    def whole(self, question: TeacherRequest) -> np.ndarray:
        """Logprobs (n, V) at the positions asked for."""
        ids = question.ids.astype(int)
        rows = []
        for t in range(question.start, len(ids)):
            rng = np.random.default_rng([ids[t - 1], ids[t - 2] if t > 1 else 0])
            logits = rng.normal(0, 3, V) / question.temperature
            rows.append(logits - np.log(np.exp(logits).sum()))
        return np.array(rows)

    def _answer(self, question: TeacherRequest) -> TopK:
        whole = self.whole(question)
        ids = np.argsort(-whole, axis=-1)[:, : question.k]
        return TopK(
            ids=ids,
            logprobs=np.take_along_axis(whole, ids, -1),
            actual=whole[np.arange(len(whole)), question.ids[question.start :]],
            is_whole=question.k == V,
        )


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLVR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(teacher, "kept_tokenizer", lambda folder: Kept())


@pytest.fixture
def task(write: Any) -> SadTask:
    """Eight chats."""
    path = write("a.jsonl", "\n".join(json.dumps(chat(n, 1 + n % 3)) for n in range(8)))
    return SadTask(SadConfig(), BuildContext(dataset=path))


def made(folder: Path, task: SadTask, teacher: Any, **wish: Any) -> Made:
    """The answers of a teacher to all trajectories of the task."""
    return asyncio.run(
        make(
            Wish(folder=folder, **{"k": 16, **wish}),
            teacher,
            Policy(tokenizer=Kept()),
            task,
            ReplaySampler(ReplayConfig(), BuildContext()),
            lambda done, of: None,
        )
    )


def data_of(task: SadTask) -> list[Datum]:
    """All trajectories as data."""
    sampler = ReplaySampler(None, BuildContext())
    problems = list(task.problems("all"))
    policy = Policy(tokenizer=Kept())
    groups = asyncio.run(sample_groups(sampler, policy, task, problems, SamplingParams()))
    return [
        Datum(
            tokens=t.tokens,
            mask=t.mask,
            logprobs=t.logprobs,
            advantages=t.mask,
            weights=t.mask,
            problem_id=t.problem_id,
        )
        for group in groups
        for t in group.trajectories
    ]


def everything(folder: Path) -> Iterator[tuple[Any, ...]]:
    """All that is kept of answers, and of the problems they belong to."""
    with closing(sqlite3.connect(folder / ANSWERS)) as store:
        yield from store.execute("select * from answers join problems using (key)")


def question_of(datum: Datum, k: int = 16, temperature: float = 1.0) -> TeacherRequest:
    """What a run asks about a datum."""
    start = int(np.flatnonzero(datum.mask)[0])
    return TeacherRequest(ids=datum.tokens, start=start, k=k, temperature=temperature)


def opened(folder: Path) -> FileTeacher:
    """The teacher of a folder."""
    return FileTeacher(None, BuildContext(model=f"file:{folder}"))


# --- rows ---------------------------------------------------------------------------------------

FLOATS = st.floats(-70000, 0, allow_subnormal=True)


@given(npst.arrays(np.float64, st.integers(1, 30), elements=FLOATS))
def test_rounding_goes_down_by_at_most_a_step(values: np.ndarray) -> None:
    """Never above the value; the next float16 up is above it."""
    kept = rounded_down(values)
    inside = values >= float(np.finfo(np.float16).min)

    assert (kept[inside] <= values[inside]).all()
    above = np.nextafter(kept, np.float16(np.inf)).astype(np.float64)
    assert (above[inside] > values[inside]).all()
    assert rounded_down(np.array([-np.inf]))[0] == -np.inf


@given(npst.arrays(np.float32, (4, 9), elements=st.floats(-30, 30, width=32)), st.floats(0, 2e-3))
def test_no_row_sums_to_more_than_one(logits: np.ndarray, excess: float) -> None:
    """Also where the teacher's own rounding did."""
    whole = logits.astype(np.float64)
    whole = whole - np.log(np.exp(whole).sum(-1, keepdims=True)) + excess
    told = TopK(ids=np.tile(np.arange(9), (4, 1)), logprobs=whole, actual=whole[:, 0])
    rows = rows_of(told, np.arange(1, 5), k=9)
    back = answer_of(rows, 1, 5, 9, is_whole=False)

    assert (np.exp(back.logprobs.astype(np.float64)).sum(-1) <= 1.0 + 1e-7).all()
    brought_back = answer_of(rows, 1, 5, 9, is_whole=True)
    total = np.exp(brought_back.logprobs.astype(np.float64)).sum(-1)
    assert np.allclose(total, 1.0, atol=1e-5)


def test_probabilities_lose_at_most_what_is_said() -> None:
    """At 1 nat 1e-3 of themselves, at 10 nats 8e-3: what docs/sad/teacher-cache.md states."""
    for nats, share in ((0.01, 2e-5), (1.0, 1e-3), (10.0, 8e-3)):
        values = np.linspace(-nats, -nats / 2, 4001)
        lost = 1.0 - np.exp(rounded_down(values).astype(np.float64) - values)
        assert lost.min() >= 0.0
        assert lost.max() <= share


def test_entropy_by_hand() -> None:
    """Half, a quarter, and a quarter that was not named: 1.5 bits; a certain row has none."""
    rows = np.log([[0.5, 0.25], [1.0, 1e-300]])
    found = entropy_of(np.array([rows[0], [0.0, -np.inf]]))

    assert found[0] == pytest.approx(1.5 * np.log(2))
    assert found[1] == 0.0


# --- a folder -----------------------------------------------------------------------------------


def test_what_was_said_comes_back(task: SadTask, tmp_path: Path) -> None:
    """At each learnt position the same tokens, probabilities to float16, the actual one exactly."""
    oracle = Oracle()
    found = made(tmp_path / "f", task, oracle)
    data = data_of(task)
    answers = asyncio.run(opened(tmp_path / "f").score([question_of(d) for d in data]))

    assert found.asked == oracle.asked == len(data)
    assert found.positions == sum(int(d.mask.sum()) for d in data)
    for datum, answer in zip(data, answers, strict=True):
        asked = question_of(datum)
        (wanted,) = asyncio.run(oracle.score([asked]))
        rows = np.flatnonzero(datum.mask) - asked.start
        assert (answer.ids[rows] == wanted.ids[rows]).all()
        error = wanted.logprobs[rows] - answer.logprobs[rows]
        assert (error >= -1e-6).all()
        assert error.max() < 2e-2
        assert (answer.actual[rows] == wanted.actual[rows]).all()
        others = np.setdiff1d(np.arange(len(answer.actual)), rows)
        assert np.isnan(answer.actual[others]).all()  # it was not asked there, and says so


def test_fewer_tokens_are_the_likeliest_ones(task: SadTask, tmp_path: Path) -> None:
    """A run may ask for less than was kept; more is refused, with the command."""
    made(tmp_path / "f", task, Oracle())
    datum = data_of(task)[0]
    teacher = opened(tmp_path / "f")
    (few,), (all_,) = (asyncio.run(teacher.score([question_of(datum, k)])) for k in (4, 16))

    assert (few.ids == all_.ids[:, :4]).all()
    with pytest.raises(BackendError, match=r"16 tokens a position, 17 were asked for[\s\S]*--k"):
        asyncio.run(teacher.score([question_of(datum, 17)]))
    assert teacher.capabilities.max_k == 16


def test_whole_distributions_sum_to_one(task: SadTask, tmp_path: Path) -> None:
    """K of the vocabulary or more keeps all of it."""
    made(tmp_path / "f", task, Oracle(), k=9999)
    datum = data_of(task)[0]
    (answer,) = asyncio.run(opened(tmp_path / "f").score([question_of(datum, V)]))
    rows = np.flatnonzero(datum.mask) - question_of(datum).start

    assert answer.is_whole
    assert np.allclose(np.exp(answer.logprobs[rows]).sum(-1), 1.0, atol=1e-5)


def test_logprobs_of_what_stands_there(task: SadTask, tmp_path: Path) -> None:
    """For the policy-gradient form: exact, 0 where nothing is learnt; an unknown place is said."""
    import attrs

    made(tmp_path / "f", task, Oracle())
    datum = data_of(task)[0]
    (values,) = asyncio.run(opened(tmp_path / "f").logprobs([datum]))
    whole = Oracle().whole(TeacherRequest(ids=datum.tokens, start=1, k=1))
    wanted = whole[np.arange(len(whole)), datum.tokens[1:]].astype(np.float32)

    assert (values[1:][datum.mask[1:]] == wanted[datum.mask[1:]]).all()
    assert not values[~datum.mask].any()
    more = attrs.evolve(datum, mask=np.arange(len(datum.tokens)) > 0)
    with pytest.raises(BackendError, match="it was not asked about"):
        asyncio.run(opened(tmp_path / "f").logprobs([more]))


def test_what_was_never_asked_names_the_command(task: SadTask, tmp_path: Path) -> None:
    """Another sequence, another temperature."""
    made(tmp_path / "f", task, Oracle())
    datum = data_of(task)[0]
    teacher = opened(tmp_path / "f")

    for question in (
        TeacherRequest(ids=[1, 2, 3], start=1, k=2),
        question_of(datum, temperature=2.0),
    ):
        with pytest.raises(BackendError, match="rlvr sad cache-teacher --teacher oracle:1"):
            asyncio.run(teacher.score([question]))


def test_what_is_there_is_not_asked_again(task: SadTask, tmp_path: Path) -> None:
    """The second time nothing; after an interruption only what is missing, and all is the same."""
    made(tmp_path / "whole", task, Oracle())
    again = Oracle()
    assert made(tmp_path / "whole", task, again) == Made(asked=0, known=8, positions=0)
    assert again.asked == 0

    with pytest.raises(BackendError, match="the server died"):
        made(tmp_path / "broken", task, Oracle(breaks_after=5), at_once=2)
    with closing(sqlite3.connect(tmp_path / "broken" / ANSWERS)) as dies:  # while it writes
        dies.execute("insert into answers values ('half', 0, 1, 0.0, x'00')")
    rest = Oracle()
    found = made(tmp_path / "broken", task, rest, at_once=2)

    assert (found.known, found.asked) == (4, 4)
    assert rest.asked == 4
    questions = [question_of(d) for d in data_of(task)]
    one, two = (
        asyncio.run(opened(tmp_path / name).score(questions)) for name in ("whole", "broken")
    )
    for a, b in zip(one, two, strict=True):
        assert (a.ids == b.ids).all()
        assert np.array_equal(a.actual, b.actual, equal_nan=True)
    assert entropies(tmp_path / "whole") == entropies(tmp_path / "broken")


def test_equal_sequences_are_known_for_each_problem(write: Any, tmp_path: Path) -> None:
    """Two records that differ after the last learnt word: asked once, both have their entropy."""
    longer = chat(1)
    longer["messages"].append({"role": "user", "content": "bye"})
    records = [chat(1), longer, chat(2)]
    task = SadTask(
        SadConfig(), BuildContext(dataset=write("b.jsonl", "\n".join(map(json.dumps, records))))
    )
    folder = tmp_path / "answers"
    assert made(folder, task, Oracle()) == Made(asked=2, known=1, positions=ANY)
    before = list(everything(folder))
    known = entropies(folder)
    one, two, other = (known[p.digest] for p in task.problems("all"))
    assert one == two != other

    made(folder, task, Oracle())
    assert list(everything(folder)) == before


def test_what_comes_after_the_last_learnt_token_is_no_part_of_it(
    task: SadTask, tmp_path: Path
) -> None:
    """A run asks up to the last learnt token; so are answers kept, and found."""
    import attrs

    class Trailing(ReplaySampler):
        async def sample(self, *args: Any) -> AsyncGenerator[Trajectory]:
            more = Segment(author="env", tokens=[1, 2, 3])
            async for one in super().sample(*args):
                yield attrs.evolve(one, segments=(*one.segments, more))

    sampler, oracle = Trailing(ReplayConfig(), BuildContext()), Oracle()
    policy, wish = Policy(tokenizer=Kept()), Wish(folder=tmp_path / "f", k=16)
    asyncio.run(make(wish, oracle, policy, task, sampler, lambda done, of: None))
    teacher, (short, *_) = opened(tmp_path / "f"), data_of(task)
    arrays = ("tokens", "mask", "logprobs", "advantages", "weights")
    long = attrs.evolve(short, **{n: np.append(getattr(short, n), [0] * 3) for n in arrays})

    (told,) = asyncio.run(teacher.score([question_of(short)]))
    values = asyncio.run(teacher.logprobs([short, long]))

    assert np.isfinite(told.actual[np.flatnonzero(short.mask) - question_of(short).start]).all()
    assert values[0].tolist() == values[1][:-3].tolist()
    assert not values[1][-3:].any()


def test_small_parts_hold_the_same(task: SadTask, tmp_path: Path, monkeypatch: Any) -> None:
    """A position a part: as many as positions, joined in their order."""
    found = made(tmp_path / "one", task, Oracle())
    monkeypatch.setattr("rlvr_sad.teacher_cache.answers._PART", 1)
    made(tmp_path / "many", task, Oracle())
    one, many = (Answers(tmp_path / name) for name in ("one", "many"))

    assert len(list(everything(tmp_path / "one"))) == found.asked
    assert len(list(everything(tmp_path / "many"))) == found.positions
    for key in one.keys() | many.keys():
        rows = [answers.get(key, row_type(16)) for answers in (one, many)]
        assert rows[0] is not None
        assert rows[1] is not None
        assert (rows[0] == rows[1]).all()
    assert entropies(tmp_path / "one") == pytest.approx(entropies(tmp_path / "many"))


def test_a_folder_of_another_making_is_not_mixed(task: SadTask, tmp_path: Path) -> None:
    """The error names what differs."""
    made(tmp_path / "f", task, Oracle())

    with pytest.raises(ConfigError, match="differ in k"):
        made(tmp_path / "f", task, Oracle(), k=8)


@pytest.mark.parametrize(
    ("capabilities", "said"),
    [
        ({"max_k": 5}, "give --k 5"),
        ({"temperatures": (0.7,)}, "one of these as --temperature"),
    ],
)
def test_what_a_teacher_cannot_say(
    task: SadTask, tmp_path: Path, capabilities: dict[str, Any], said: str
) -> None:
    """Before anything is asked."""
    teacher = Oracle(**capabilities)
    with pytest.raises(ConfigError, match=said):
        made(tmp_path / "f", task, teacher)
    assert teacher.asked == 0


def test_another_tokenizer_is_refused(task: SadTask, tmp_path: Path) -> None:
    """Its ids mean something else."""
    teacher = Oracle()
    teacher.capabilities = TeacherCapabilities(has_scores=True, tokenizer="another")
    with pytest.raises(ConfigError, match="different tokenizers"):
        made(tmp_path / "f", task, teacher)


def test_numbers_that_are_none_are_refused(task: SadTask, tmp_path: Path) -> None:
    """A NaN is an error, and what was said before it is kept."""

    class Sick(Oracle):
        async def score(self, questions: Sequence[TeacherRequest]) -> list[TopK]:
            import attrs

            found = await super().score(questions)
            if self.asked > 4:
                return [attrs.evolve(a, logprobs=a.logprobs * np.nan) for a in found]
            return found

    with pytest.raises(BackendError, match="not a number"):
        made(tmp_path / "f", task, Sick(), at_once=2)
    assert len(Answers(tmp_path / "f").keys()) == 4


def test_folders_that_cannot_be_used(task: SadTask, tmp_path: Path) -> None:
    """None there; a head of another version; a file of answers that was cut off."""
    with pytest.raises(UnknownNameError, match="cache-teacher"):
        opened(tmp_path / "nothing")
    made(tmp_path / "f", task, Oracle())
    datum = data_of(task)[0]
    file = tmp_path / "f" / ANSWERS
    file.write_bytes(file.read_bytes()[:5000])
    with pytest.raises(BackendError, match=r"answers.sqlite[\s\S]*cannot be used"):
        asyncio.run(opened(tmp_path / "f").score([question_of(datum)]))
    head = tmp_path / "f" / "teacher.json"
    head.write_text(head.read_text().replace('"version": 2', '"version": 7'))
    with pytest.raises(ConfigError, match="version 7"):
        opened(tmp_path / "f")


def test_the_tokenizer_beside_the_answers_is_the_students(tmp_path: Path) -> None:
    """Read back it spells and cuts as the one that was kept; one that cannot be kept is refused."""
    bpe = pytest.importorskip("rlvr_torch.models.bpe").BytePairTokenizer
    own = bpe.train(["the cat sat on the mat", "12345 <|endoftext|> é"] * 3, 300)
    keep_tokenizer(own, tmp_path / "tok")
    kept = kept_tokenizer(tmp_path / "tok")
    text = "the cat <|endoftext|>\n 12é \u96ea"

    assert fingerprint(kept) == fingerprint(own)
    assert kept.encode(text) == own.encode(text)
    assert kept.decode(own.encode(text)) == text
    assert kept.eos_id == own.eos_id
    for first in (True, False):
        messages = [Message(role="user", content="a"), Message(role="user", content="b")]
        assert kept.render(messages, first=first) == own.render(messages, first=first)
    with pytest.raises(ConfigError, match="cannot be saved"):
        keep_tokenizer(ByteTokenizer(), tmp_path / "other")
    with pytest.raises(ConfigError, match="was to be read"):
        kept_tokenizer(tmp_path / "nothing")
