"""A teacher with another tokenizer: its likelihood of the same bytes, and nothing besides."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr import (
    BackendError,
    ConfigError,
    Datum,
    DistributionRequest,
    FloatArray,
    Message,
    PartError,
    Teacher,
    TeacherCapabilities,
    TopK,
)
from rlvr.teachers.requests import check_ask
from rlvr_distill.cross_tokenizer.teacher import AlignedTeacher

LETTERS = st.sampled_from([bytes([b]) for b in b"abc "] + [b"\xc3", b"\xa9"])


Merges = list[tuple[bytes, bytes]]


@st.composite
def merges(draw: st.DrawFn) -> Merges:
    """A merge table over few letters: pairs of bytes, then pairs of what there is."""
    known, found = [b"a", b"b", b"c", b" ", b"\xc3", b"\xa9"], []
    for _ in range(draw(st.integers(0, 8))):
        pair = (draw(st.sampled_from(known)), draw(st.sampled_from(known)))
        found.append(pair)
        known.append(pair[0] + pair[1])
    return found


def datum_of(
    student: Any, turns: Sequence[tuple[str, list[int]]], seed: int = 0, **changes: Any
) -> Datum:
    """Turns of tokens by author ("policy" or another), with logprobs made up."""
    tokens = [t for _, ids in turns for t in ids]
    mask = np.array([who == "policy" for who, ids in turns for _ in ids], bool)
    own = -np.random.default_rng(seed).exponential(size=len(tokens)) * mask
    fields = {
        "tokens": tokens,
        "mask": mask,
        "logprobs": own,
        "advantages": 0.0 * mask,
        "weights": 1.0 * mask,
    }
    return Datum(**(fields | changes))


def logprobs(teacher: AlignedTeacher, datum: Datum) -> FloatArray:
    """Of one datum."""
    return asyncio.run(teacher.logprobs([datum]))[0]


def distributed(
    teacher: AlignedTeacher, datum: Datum, ask: DistributionRequest
) -> tuple[Datum, TopK]:
    """One datum with what the teacher thinks of it."""
    (found,) = asyncio.run(teacher.answer([datum], "teacher", ask))
    told = found.distributions["teacher"]
    assert isinstance(told, TopK)
    return found, told


def chain(teacher: Any, ids: Sequence[int], after: int) -> float:
    """Log-likelihood of tokens one after the other."""
    total = 0.0
    for token in ids:
        total += float(teacher.after(after)[token])
        after = token
    return total


@given(merges(), merges(), st.lists(LETTERS, min_size=1, max_size=10), st.integers(0, 99))
@settings(deadline=None, max_examples=60)
def test_the_sum_is_the_teachers_own(
    pairs: Any, bigrams: Any, ours: Merges, theirs: Merges, letters: list[bytes], seed: int
) -> None:
    """
    Whatever both tables merge and the student drew, half characters too.

    Sum over the student's tokens of its logprobs by the teacher = log-likelihood of the teacher's
    own cut of the bytes; the sum of the differences is log P - log Q.
    """
    student, rng = pairs(ours), np.random.default_rng(seed)
    text = b"".join(letters)
    drawn: list[int] = []  # any tokens that spell the text, not only the student's own cut
    while len(spelled := b"".join(map(student.bytes_of, drawn))) < len(text):
        rest = text[len(spelled) :]
        fitting = [i for i, s in enumerate(student.table) if i and rest.startswith(s)]
        drawn.append(int(rng.choice(fitting)))
    teacher = bigrams(pairs(theirs), seed)
    aligned = AlignedTeacher(teacher, student)
    datum = datum_of(student, [("prompt", student.encode("ab")), ("policy", drawn)], seed)

    found = logprobs(aligned, datum)

    (asked,) = teacher.asked
    begin = int(np.argmax(asked.mask))
    assert b"".join(map(teacher.tokenizer.bytes_of, asked.tokens[begin:])) == text
    wanted = chain(teacher, asked.tokens[begin:].tolist(), int(asked.tokens[begin - 1]))
    assert float(found.sum()) == pytest.approx(wanted, rel=1e-4)
    gain = found - datum.logprobs
    assert float(gain.sum()) == pytest.approx(wanted - float(datum.logprobs.sum()), rel=1e-4)


def test_digits_worked_by_hand(pairs: Any, bigrams: Any) -> None:
    """
    The student writes 1-2-3-4, the teacher reads 12-34: two groups of two tokens each.

    A group's log P - log Q is halved between its tokens, which have one byte each.
    """
    student = pairs()
    teacher = bigrams(pairs([(b"1", b"2"), (b"3", b"4")]))
    datum = datum_of(student, [("prompt", student.encode("=")), ("policy", student.encode("1234"))])

    found = logprobs(AlignedTeacher(teacher, student), datum)

    equals, twelve, more = (teacher.tokenizer.ids[s] for s in (b"=", b"12", b"34"))
    first = teacher.after(equals)[twelve] - datum.logprobs[1:3].sum()
    second = teacher.after(twelve)[more] - datum.logprobs[3:5].sum()
    wanted = datum.logprobs[1:] + np.array([first / 2, first / 2, second / 2, second / 2])
    assert found[1:] == pytest.approx(wanted, rel=1e-5)
    assert found[0] == 0


def test_an_equal_tokenizer_changes_nothing(pairs: Any, bigrams: Any) -> None:
    """Where all groups are 1-1 it says what the teacher itself would have said."""
    tokenizer = pairs([(b"a", b"b")])
    teacher = bigrams(tokenizer)
    datum = datum_of(
        tokenizer,
        [("prompt", tokenizer.encode("abc")), ("policy", tokenizer.encode("ab ba"))],
        temperature=0.7,
    )

    found, told = distributed(
        AlignedTeacher(teacher, tokenizer), datum, DistributionRequest(k=5, temperature=2.0)
    )

    assert logprobs(AlignedTeacher(teacher, tokenizer), datum) == pytest.approx(
        asyncio.run(teacher.logprobs([datum]))[0], abs=1e-5
    )
    rows = np.array([teacher.after(t, 2.0) for t in datum.tokens[1:-1]])
    assert told.actual == pytest.approx(rows[np.arange(len(rows)), datum.tokens[2:]], rel=1e-5)
    for ids, values, row in zip(told.ids, told.logprobs, rows, strict=True):
        assert set(ids.tolist()) == set(np.argsort(-row)[:5].tolist())
        assert values == pytest.approx(row[ids], rel=1e-5)
    assert found.annotations["align/1-1"][datum.mask].all()
    assert not found.annotations["align/unmatched_mass"].any()
    assert (found.annotations["align/group"] == -1).all()


def test_control_tokens_carry_no_signal(pairs: Any, bigrams: Any) -> None:
    """
    What the policy said of a control token inside its turn is what the teacher says.

    The teacher reads its own token of that name in its place; one that it has no equal for is left
    out. Ends of turns are its own, and compared.
    """
    student = pairs((), ["<end>", "<b>", "<e>", "<odd>"])
    teacher = bigrams(pairs((), ["</s>", "<b>", "<e>"]))
    end, named, odd = (student.named[n] for n in ("<end>", "<b>", "<odd>"))
    datum = datum_of(
        student,
        [
            ("prompt", student.render([Message(role="user", content="hi")])),
            ("policy", [*student.encode("a"), odd, named, *student.encode("b"), end]),
            ("env", [*student.encode("ok"), end]),
            ("policy", [*student.encode("c"), end]),
        ],
    )

    found = logprobs(AlignedTeacher(teacher, student), datum)

    (asked,) = teacher.asked
    names = [teacher.tokenizer.bytes_of(int(t)).decode() for t in asked.tokens]
    assert " ".join(names) == "<b> h i <e> <b> a <b> b </s> o k </s> c </s>"
    heard = [n for n, m in zip(names, asked.mask, strict=True) if m]
    assert heard == ["a", "b", "</s>", "c", "</s>"]
    own = np.flatnonzero(datum.mask)
    silent = [t for t in own if datum.tokens[t] in (odd, named)]
    assert found[silent].tolist() == datum.logprobs[silent].tolist()
    assert all(found[t] != datum.logprobs[t] for t in own if t not in silent)
    assert not found[~datum.mask].any()
    (answered,) = asyncio.run(AlignedTeacher(teacher, student).answer([datum], "teacher", None))
    masked = np.flatnonzero(answered.annotations["align/masked"])
    assert masked.tolist() == silent


def test_an_end_is_compared_with_the_teachers_own(pairs: Any, bigrams: Any) -> None:
    """
    Its logprob is the teacher's of ending there, by name where both end by it, else by role.

    An end that cost nothing would be worth more than any token the teacher finds a little
    unlikely: policies learnt to answer with nothing.
    """
    student = pairs((), ["<stop>", "<end>"])
    student.stop_ids = frozenset({0, 1})
    for controls, wanted in ((["</s>"], (0, 0)), (["<end>", "<stop>"], (1, 0))):
        theirs = pairs((), controls)
        theirs.stop_ids = frozenset(range(len(controls)))
        teacher = bigrams(theirs)
        for end, other in zip((0, 1), wanted, strict=True):
            tokens = [*student.encode("a"), end]
            datum = datum_of(student, [("p", student.encode("=")), ("policy", tokens)])

            found = logprobs(AlignedTeacher(teacher, student), datum)

            said = teacher.after(theirs.ids[b"a"])[other]
            assert found[-1] == pytest.approx(float(said), rel=1e-5)


def test_headers_of_channels_are_template(pairs: Any, bigrams: Any) -> None:
    """Harmony's `analysis` and `final` name channels: no other teacher sees or scores them."""
    controls = ["<|return|>", "<|channel|>", "<|message|>", "<|end|>", "<|start|>"]
    student = pairs((), controls)
    teacher = bigrams(pairs())
    parts = "<|channel|> analysis <|message|> hm <|end|> <|start|> assistant <|channel|> final "
    written: list[int] = []
    for part in f"{parts}<|message|> 4 <|return|>".split():
        written += [student.named[part]] if part in student.named else student.encode(part)
    datum = datum_of(student, [("prompt", student.encode("2+2")), ("policy", written)])

    found = logprobs(AlignedTeacher(teacher, student), datum)

    (asked,) = teacher.asked
    assert teacher.tokenizer.decode(asked.tokens) == "2+2hm4<end>"
    changed = np.flatnonzero(found != datum.logprobs)
    assert student.decode(datum.tokens[changed]) == "hm4<|return|>"


def test_the_prompt_is_the_teachers_where_messages_are_known(pairs: Any, bigrams: Any) -> None:
    """Rendered with its own template; the bytes of the tokens where they say something else."""
    student, teacher = pairs((), ["<end>"]), bigrams(pairs((), ["<end>", "<b>", "<e>"]))
    hi = Message(role="user", content="hi")
    datum = datum_of(student, [("p", student.encode("hi")), ("policy", student.encode("a"))])
    aligned = AlignedTeacher(teacher, student)

    for prompt, wanted in (((hi,), "<b>hi<e><b>a"), ((), "hia"), ((hi, hi), "hia")):
        logprobs(aligned, attrs.evolve(datum, prompt=prompt))
        assert teacher.tokenizer.decode(teacher.asked[-1].tokens) == wanted


def test_an_answer_is_opened_as_the_teacher_opens_answers(pairs: Any, bigrams: Any) -> None:
    """A template that puts control tokens before an answer's text (gpt-oss) gets them."""

    class Channelled(pairs):  # type: ignore[misc]
        def render(self, messages: Sequence[Message], *, first: bool = True) -> list[int]:
            ids: list[int] = []
            for m in messages:
                open_ids = [self.named["<f>"]] if m.role == "assistant" else []
                ids += [*open_ids, *self.encode(m.content), self.named["<e>"]]
            return ids

    student, teacher = pairs(), bigrams(Channelled((), ["<end>", "<e>", "<f>"]))
    hi = Message(role="user", content="hi")
    datum = datum_of(student, [("p", student.encode("hi")), ("policy", student.encode("a"))])

    logprobs(AlignedTeacher(teacher, student), attrs.evolve(datum, prompt=[hi]))

    assert teacher.tokenizer.decode(teacher.asked[-1].tokens) == "hi<e><f>a"


def test_distributions_worked_by_hand(pairs: Any, bigrams: Any) -> None:
    """
    The policy wrote `x`, `1`, `2`, end; the teacher reads `x`, `12`, end.

    `x` is 1-1: the teacher's whole distribution over the student's tokens, `12` counted as `1`
    (its first token), `</s>` as `<end>`, `<odd>` as none. `12` is a group of its own: no row, its
    log-likelihood at its first token. The end is 1-1 again.
    """
    student = pairs()
    teacher = bigrams(pairs([(b"1", b"2")], ["</s>", "<odd>"]))
    datum = datum_of(student, [("p", student.encode("=")), ("policy", [*student.encode("x12"), 0])])

    found, told = distributed(AlignedTeacher(teacher, student), datum, DistributionRequest(k=0))

    theirs = teacher.tokenizer
    row = np.exp(teacher.after(theirs.ids[b"="]))
    wanted = {0: row[0]} | {
        student.ids[bytes([b])]: row[theirs.ids[bytes([b])]] for b in range(256)
    }
    wanted[student.ids[b"1"]] += row[theirs.ids[b"12"]]
    assert dict(zip(told.ids[0].tolist(), np.exp(told.logprobs[0]).tolist(), strict=True)) == (
        pytest.approx(wanted, rel=1e-4)
    )
    assert (told.ids[1:3] == -1).all()
    assert np.isneginf(told.logprobs[1:3]).all()
    last = np.exp(teacher.after(theirs.ids[b"12"]))
    assert float(np.exp(told.logprobs[3])[told.ids[3] == 0][0]) == pytest.approx(last[0], rel=1e-4)
    assert not told.is_whole
    chunk = float(teacher.after(theirs.ids[b"x"])[theirs.ids[b"12"]])
    marks = {name: values[1:].tolist() for name, values in found.annotations.items()}
    assert marks["align/group"] == [-1, 1, 1, -1]
    assert marks["align/logprob"] == [0, pytest.approx(chunk, rel=1e-5), 0, 0]
    assert marks["align/1-1"] == [1, 0, 0, 1]
    assert marks["align/masked"] == [0, 0, 0, 0]
    lost = [p[theirs.ids[b"12"]] + p[1] for p in (row, last)]
    assert marks["align/unmatched_mass"] == pytest.approx([lost[0], 0, 0, lost[1]], rel=1e-4)
    assert told.actual.tolist() == [
        pytest.approx(float(np.log(row[theirs.ids[b"x"]])), rel=1e-5),
        pytest.approx(chunk / 2, rel=1e-5),
        pytest.approx(chunk / 2, rel=1e-5),
        pytest.approx(float(np.log(last[0])), rel=1e-5),
    ]


def test_only_what_is_compared_is_sent(pairs: Any, bigrams: Any) -> None:
    """What the environment adds after the last word of the policy is read by nobody."""
    student, teacher = pairs(), bigrams(pairs([(b"1", b"2")]))
    turns = [("p", student.encode("=")), ("policy", student.encode("x12"))]
    plain, seen = teacher.score, []

    async def listening(questions: Any) -> list[TopK]:
        seen.extend(questions)
        return await plain(questions)

    teacher.score = listening
    aligned = AlignedTeacher(teacher, student)
    _, short = distributed(aligned, datum_of(student, turns), DistributionRequest(k=3))
    _, long = distributed(
        aligned,
        datum_of(student, [*turns, ("env", student.encode("and more"))]),
        DistributionRequest(k=3),
    )

    assert seen[0] == seen[1]
    assert teacher.tokenizer.decode(seen[1].ids).endswith("x12")
    assert short == long


@pytest.mark.parametrize(("most", "is_refused"), [(0, False), (258, False), (257, True), (9, True)])
def test_whole_distributions_are_the_teachers_whole(
    pairs: Any, bigrams: Any, most: int, is_refused: bool
) -> None:
    """
    All of the student's 257 tokens, or more, mean all 258 of the teacher.

    One that tells fewer is refused at the start; fewer tokens are had from it all the same.
    """
    student, teacher = pairs(), bigrams(pairs([(b"a", b"b")]))
    teacher.capabilities = TeacherCapabilities(has_scores=True, max_k=most)
    assert (student.vocab_size, teacher.tokenizer.vocab_size) == (257, 258)
    aligned = AlignedTeacher(teacher, student)

    check_ask(aligned, DistributionRequest(k=9))
    for k in (0, 257, 999):
        if is_refused:
            with pytest.raises(ConfigError, match=r"at most (256|9) tokens"):
                check_ask(aligned, DistributionRequest(k=k))
        else:
            check_ask(aligned, DistributionRequest(k=k))


@pytest.mark.parametrize("beyond", [5, 5000])
def test_ids_beyond_the_vocabulary(pairs: Any, bigrams: Any, beyond: int) -> None:
    """Rows that pad the teacher's model stand for nothing; ids of another model are refused."""
    student, teacher = pairs(), bigrams(pairs([(b"a", b"b")]))
    plain = teacher.score

    async def padded(questions: Any) -> list[TopK]:
        return [
            attrs.evolve(a, ids=np.where(a.ids == a.ids[:, :1], 257 + beyond, a.ids))
            for a in await plain(questions)
        ]

    teacher.score = padded
    datum = datum_of(student, [("p", student.encode("a")), ("policy", student.encode("xy"))])
    if beyond == 5000:
        with pytest.raises(BackendError, match="its vocabulary has 258"):
            distributed(AlignedTeacher(teacher, student), datum, DistributionRequest(k=3))
    else:
        _, told = distributed(AlignedTeacher(teacher, student), datum, DistributionRequest(k=3))
        assert ((told.ids >= 0).sum(1) == 2).all()
        assert int(told.ids.max()) < student.vocab_size


@given(merges(), merges(), st.text("abc é", min_size=1, max_size=12), st.integers(1, 9))
@settings(deadline=None, max_examples=40)
def test_projected_rows_are_part_of_a_distribution(
    pairs: Any, bigrams: Any, ours: Merges, theirs: Merges, text: str, k: int
) -> None:
    """No id twice, none outside the vocabulary, no more probability than the teacher gave."""
    student = pairs(ours)
    teacher = bigrams(pairs(theirs))
    datum = datum_of(student, [("p", student.encode("a")), ("policy", student.encode(text))])

    found, told = distributed(AlignedTeacher(teacher, student), datum, DistributionRequest(k=k))

    assert len(told.ids) == int(datum.mask.sum())
    one = found.annotations["align/1-1"][datum.mask] > 0
    for ids, values, is_one in zip(told.ids, told.logprobs, one, strict=True):
        kept = ids[ids >= 0]
        assert len(set(kept.tolist())) == len(kept)
        assert (kept < student.vocab_size).all()
        assert np.exp(values.astype(float)).sum() <= 1 + 1e-5
        assert is_one or not len(kept)
    groups = found.annotations["align/group"][datum.mask]
    assert not (one & (groups >= 0)).any()


def test_no_token_before_the_first(pairs: Any, bigrams: Any) -> None:
    """Where the teacher knows nothing of the prompt, a text's end stands before the answer."""
    student = pairs((), ["<end>", "<b>"])
    teacher = bigrams(pairs())
    datum = datum_of(student, [("p", [1]), ("policy", student.encode("a"))])

    logprobs(AlignedTeacher(teacher, student), datum)

    assert teacher.tokenizer.decode(teacher.asked[0].tokens) == "<end>a"


def test_what_the_teacher_cannot_read_carries_no_signal(pairs: Any, bigrams: Any) -> None:
    """
    A context of 4 tokens: `=`, a, b and c of `=abcd`; d, and a group that c would share, is silent.

    Said once, for a run goes on: its tokens are not those that a limit was set for.
    """
    student = pairs([(b"c", b"d")])
    teacher = bigrams(pairs())
    teacher.context_length = 4
    aligned = AlignedTeacher(teacher, student)
    plain = student.encode("=")
    singly = [*student.encode("ab"), student.ids[b"c"], student.ids[b"d"]]
    merged = student.encode("abcd")

    with structlog.testing.capture_logs() as logs:
        found = [
            (logprobs(aligned, d), d)
            for d in (datum_of(student, [("p", plain), ("policy", w)]) for w in (singly, merged))
        ]

    heard = [(values != d.logprobs)[1:].tolist() for values, d in found]
    assert heard == [[True, True, True, False], [True, True, False]]
    assert [len(d.tokens) for d in teacher.asked] == [4, 4]
    (line,) = logs
    assert (line["event"], line["cut"], line["of"]) == ("teacher_reads_part", 1, 1)


def test_nothing_to_compare_is_not_asked(pairs: Any, bigrams: Any) -> None:
    """An answer that is only a control token: no signal, no question, an empty row."""
    student, teacher = pairs((), ["<end>", "<b>"]), bigrams(pairs([(b"a", b"b")]))
    datum = datum_of(student, [("p", student.encode("a")), ("policy", [1])])
    aligned = AlignedTeacher(teacher, student)

    assert logprobs(aligned, datum).tolist() == datum.logprobs.tolist()
    assert teacher.asked == []
    assert distributed(aligned, datum, DistributionRequest(k=3))[1].ids.tolist() == [[-1]]


def test_what_it_is(pairs: Any, bigrams: Any) -> None:
    """It answers whole data, in the student's ids, without states that mean the teacher's."""
    student, inner = pairs(), bigrams(pairs([(b"a", b"b")]))
    aligned = AlignedTeacher(inner, student)

    assert aligned.head is None
    assert aligned.tokenizer is student
    assert inner.capabilities == TeacherCapabilities(has_scores=True)
    assert aligned.capabilities == TeacherCapabilities(
        has_scores=True, reads_data=True, is_partial=True
    )
    assert aligned.shared() == (256, 256, 257)


def test_a_teacher_that_tells_no_distributions_says_so(pairs: Any) -> None:
    """Before anything is sampled it is refused for a divergence; its logprobs are still good."""

    class Plain(Teacher):
        name, context_length, tokenizer = "plain", 99, pairs([(b"a", b"b")])

        async def logprobs(self, data: Sequence[Datum]) -> list[FloatArray]:
            raise AssertionError

    aligned = AlignedTeacher(Plain(), pairs())

    assert not aligned.capabilities.has_scores
    with pytest.raises(ConfigError, match="not which others could have stood there"):
        check_ask(aligned, DistributionRequest(k=3), "opd")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda rows: rows[1:], "0 answers for 1"),
        (lambda rows: [rows[0][1:]], "shape"),
        (lambda rows: [rows[0] * np.nan], "not finite"),
    ],
)
def test_nonsense_is_refused(pairs: Any, bigrams: Any, spoil: Any, said: str) -> None:
    """The teacher is named, before anything is learnt."""
    student, teacher = pairs(), bigrams(pairs([(b"a", b"b")]))
    plain = teacher.logprobs

    async def spoilt(data: Sequence[Datum]) -> Any:
        return spoil(await plain(data))

    teacher.logprobs = spoilt
    datum = datum_of(student, [("p", student.encode("a")), ("policy", student.encode("ab"))])

    with pytest.raises((PartError, BackendError), match=said) as caught:
        logprobs(AlignedTeacher(teacher, student), datum)
    assert re.match(
        "teacher (bigrams was asked|.* did not keep its promise: logprobs)", str(caught.value)
    )
