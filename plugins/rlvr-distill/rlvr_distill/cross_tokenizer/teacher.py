"""A teacher with another tokenizer, whose answers are given on the policy's tokens.

Shapes: T tokens of a datum, n of them the policy's, S of the teacher's sequence, g groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import structlog
from numpy.typing import NDArray

from rlvr import (
    BackendError,
    Datum,
    DistributionRequest,
    FloatArray,
    Problem,
    Teacher,
    TeacherRequest,
    Tokenizer,
    TopK,
    teacher_logprobs,
    teacher_metrics,
    teacher_scores,
)
from rlvr_distill.cross_tokenizer.align import group_sums, spread
from rlvr_distill.cross_tokenizer.prompt import TeachersPrompt
from rlvr_distill.cross_tokenizer.sequence import Reader, TeacherSequence
from rlvr_distill.cross_tokenizer.token_bytes import TokenBytes
from rlvr_distill.cross_tokenizer.vocabulary_map import VocabularyMap

ONE, UNMATCHED = "align/1-1", "align/unmatched_mass"
MASKED, RENDERED = "align/masked", "align/rendered"


def of_alignment(data: Sequence[Datum]) -> dict[str, float]:
    """
    Means over the policy's tokens of the data that such a teacher saw; {} where none did.

    `align/1-1`: share in a group of one token each. `align/masked`: share without a signal (control
    tokens, what cannot be spelt). `align/rendered`: share whose prompt the teacher read in its own
    template. `align/unmatched_mass`: of the probability that the teacher gave its likeliest tokens
    in 1-1 groups, the part on tokens that the policy does not have; where it was asked for them.
    """
    own = [d for d in data if ONE in d.annotations and d.mask.any()]
    if not own:
        return {}
    found = {name: float(_joined(own, name).mean()) for name in (ONE, MASKED, RENDERED)}
    asked = [d for d in own if UNMATCHED in d.annotations]
    if asked and (single := _joined(asked, ONE) > 0).any():
        found[UNMATCHED] = float(_joined(asked, UNMATCHED)[single].mean())
    return found


def _joined(data: Sequence[Datum], name: str) -> np.ndarray:
    return np.concatenate([np.asarray(d.annotations[name], np.float64)[d.mask] for d in data])


log = structlog.get_logger(__name__)

GROUP, LOGPROB = "align/group", "align/logprob"
_PADDED = 1024
"""Rows that a model may have beyond the ids of its tokenizer; no token uses them."""


class AlignedTeacher(Teacher):
    """
    Another teacher, in the student's tokens; it `reads_data`.

    Both tokenizers cut the policy's text; tokens are matched by bytes (`cross_tokenizer.align`).
    A group's log-likelihood ratio `log P - log Q`, teacher to sampler, is spread over its student
    tokens by bytes and added to what the sampler said of them: the sum over the group of these
    logprobs is log P, whatever the cut. Tokens in no group (control tokens, bytes that cannot be
    spelt, what is beyond the teacher's context) get the sampler's own logprob: a log-ratio of 0.

    Distributions: in a group of one token each, the teacher's likeliest tokens as the student's
    (`VocabularyMap`); in other groups none (a row of -1, everything in the rest), and instead the
    annotations `align/group` (number of the group, -1 at all other tokens) and `align/logprob`
    (log P of the whole group, at its first token), for a divergence of the two likelihoods.

    Attributes:
        tokenizer: The student's: so are the ids of all it is asked and says.
        capabilities: The teacher's, without its states.
    """

    def __init__(self, inner: Teacher, ours: Tokenizer) -> None:
        self._inner = inner
        self.name = inner.name
        self.tokenizer = ours
        self.context_length = inner.context_length
        self._ours, self._theirs = TokenBytes(ours), TokenBytes(inner.tokenizer)
        self._projection = VocabularyMap(self._theirs, self._ours)
        prompt = TeachersPrompt(ours, self._theirs)
        self._reader = Reader(self._ours, self._theirs, prompt, inner.context_length)
        self._has_said_cut = False
        own = inner.capabilities
        self.capabilities = attrs.evolve(
            own,
            max_k=_most(own.max_k, inner.tokenizer.vocab_size, ours.vocab_size),
            has_states=False,
            reads_data=True,
            tokenizer="",
            is_partial=True,
        )

    def shared(self) -> tuple[int, int, int]:
        """Texts that both vocabularies have a token for, and how many each has."""
        ours, theirs = self._ours.texts, self._theirs.texts
        return len(ours & theirs), len(ours), len(theirs)

    def metrics(self, data: Sequence[Datum]) -> Mapping[str, float]:
        """How much of the answers could be compared (`align/...`), and the teacher's own."""
        return {**teacher_metrics(self._inner, data), **of_alignment(data)}

    def check_problems(self, problems: Iterable[Problem]) -> None:
        self._inner.check_problems(problems)

    async def logprobs(self, data: Sequence[Datum]) -> list[FloatArray]:
        """Numbers (T,) whose sums over aligned groups are the teacher's log-likelihoods."""
        return await self._logprobs(data, self._read(data))

    async def answer(
        self, data: Sequence[Datum], name: str, ask: DistributionRequest | None
    ) -> list[Datum]:
        """
        The data with logprobs, or with distributions where `ask` says so, and `align/*`.

        Raises:
            BackendError: The teacher cannot score what it was given.
        """
        readings = self._read(data)
        if ask is None:
            values = await self._logprobs(data, readings)
            return [
                _with(datum, {**_told(datum, reading), name: row})
                for datum, reading, row in zip(data, readings, values, strict=True)
            ]
        asked = _asked(readings)
        answers = await self._scores([readings[i] for i in asked], ask)
        by_datum = dict(zip(asked, answers, strict=True))
        return [
            self._distributed(datum, reading, name, by_datum.get(i))
            for i, (datum, reading) in enumerate(zip(data, readings, strict=True))
        ]

    def _read(self, data: Sequence[Datum]) -> list[TeacherSequence]:
        readings = [self._reader.read(datum) for datum in data]
        if not self._has_said_cut and (cut := sum(r.is_cut for r in readings)):
            self._has_said_cut = True
            log.warning(
                "teacher_reads_part",
                teacher=self.name,
                reads=self.context_length,
                cut=cut,
                of=len(data),
                why="in its tokens they are longer; what comes after has no signal (align/masked)",
            )
        return readings

    async def _logprobs(
        self, data: Sequence[Datum], readings: Sequence[TeacherSequence]
    ) -> list[FloatArray]:
        asked = _asked(readings)
        questions = [readings[i].masked(data[i]) for i in asked]
        by_datum = dict(zip(asked, await teacher_logprobs(self._inner, questions), strict=True))
        return [
            _even(datum, reading, by_datum.get(i))
            for i, (datum, reading) in enumerate(zip(data, readings, strict=True))
        ]

    async def _scores(
        self, readings: Sequence[TeacherSequence], ask: DistributionRequest
    ) -> list[TopK]:
        if not self.capabilities.has_scores:
            raise BackendError(
                f"teacher {self.name} was asked for distributions over the next token.",
                "found: it tells how likely given tokens are, and nothing else",
                "choose another teacher, or a loss that needs sampled tokens alone",
            )
        size = self._theirs.tokenizer.vocab_size
        is_whole = ask.k == 0 or ask.k >= self.tokenizer.vocab_size
        k = size if is_whole else min(ask.k, size)
        spans = [_span(reading) for reading in readings]
        questions = [
            TeacherRequest(ids=r.tokens[:end], start=start, k=k, temperature=ask.temperature)
            for r, (start, end) in zip(readings, spans, strict=True)
        ]
        answers = await teacher_scores(self._inner, questions)
        for answer in answers:
            if int(answer.ids.max(initial=-1)) >= size + _PADDED:
                raise self._unfit(f"token id {answer.ids.max()}, its vocabulary has {size}")
            if np.isnan(answer.logprobs).any() or not np.isfinite(answer.actual).all():
                raise self._unfit("a logprob that is not a number")
        return answers

    def _distributed(
        self, datum: Datum, reading: TeacherSequence, name: str, answer: TopK | None
    ) -> Datum:
        """The datum with rows at its policy's tokens, and the annotations of its groups."""
        places = np.flatnonzero(datum.mask)
        told = _told(datum, reading)
        if answer is None:
            ids = np.full((len(places), 1), -1)
            nothing = TopK(ids=ids, logprobs=ids * np.inf, actual=np.zeros(len(places)))
            return _with(datum, told, {name: nothing})
        alignment, (start, end) = reading.alignment, _span(reading)
        total = group_sums(alignment.theirs[start:end], answer.actual, len(alignment))  # (g,) log P
        single = np.append(alignment.is_single, False)  # the last: of -1
        ours, theirs = single[alignment.ours], single[alignment.theirs]  # (T,), (S,)
        rows = np.flatnonzero(theirs[start:end])
        projected = self._projection.rows(answer.ids[rows], answer.logprobs[rows])
        unmatched, logprob = np.zeros(len(datum.tokens)), np.zeros(len(datum.tokens))
        unmatched[ours] = projected.unmatched
        shape, alone = (len(places), projected.ids.shape[1]), ours[places]
        ids, logprobs = np.full(shape, -1), np.full(shape, -np.inf)
        ids[alone], logprobs[alone] = projected.ids, projected.logprobs
        shares = spread(alignment.ours, reading.lengths, total)
        is_chunk = (alignment.ours >= 0) & ~ours
        first = is_chunk & (np.diff(alignment.ours, prepend=-1) != 0)
        logprob[first] = total[alignment.ours[first]]
        groups = np.where(is_chunk, alignment.ours, -1)
        return _with(
            datum,
            {**told, GROUP: groups, LOGPROB: logprob, UNMATCHED: unmatched},
            {name: TopK(ids=ids, logprobs=logprobs, actual=shares[places])},
        )

    def _unfit(self, problem: str) -> BackendError:
        return BackendError(
            f"teacher {self.name} was asked for logprobs in its own tokens.",
            f"found: {problem}",
            "run TeacherContract on it; a model in too low a precision can give NaN",
        )


def _most(max_k: int, theirs: int, ours: int) -> int:
    """
    Largest k that a student may ask for; 0: any.

    As many as its vocabulary holds, or more, means the teacher's whole distribution.
    """
    return min(max_k, max(ours - 1, 1)) if 0 < max_k < theirs else 0


def _span(reading: TeacherSequence) -> tuple[int, int]:
    """From the first token that is compared to behind the last, of the teacher's."""
    places = np.flatnonzero(reading.alignment.theirs >= 0)
    return int(places[0]), int(places[-1]) + 1


def _asked(readings: Sequence[TeacherSequence]) -> list[int]:
    """Indices of the readings that have a token for the teacher to score."""
    return [i for i, reading in enumerate(readings) if len(reading.alignment)]


def _even(datum: Datum, reading: TeacherSequence, by_teacher: FloatArray | None) -> FloatArray:
    """(T,) the sampler's logprobs plus each group's `log P - log Q`, spread by bytes."""
    alignment, own = reading.alignment, datum.logprobs.astype(np.float64)
    values = np.where(datum.mask, own, 0.0)
    if by_teacher is not None:
        gain = group_sums(alignment.theirs, by_teacher, len(alignment))
        gain -= group_sums(alignment.ours, own, len(alignment))
        values += spread(alignment.ours, reading.lengths, gain)
    return np.asarray(values, np.float32)


def _told(datum: Datum, reading: TeacherSequence) -> dict[str, NDArray[Any]]:
    """Annotations (T,) whose means over the policy's tokens are the metrics of a step."""
    single = np.append(reading.alignment.is_single, False)
    return {
        ONE: single[reading.alignment.ours],
        MASKED: datum.mask & (reading.alignment.ours < 0),
        RENDERED: np.full(len(datum.tokens), reading.is_rendered),
    }


def _with(
    datum: Datum,
    annotations: Mapping[str, NDArray[Any]],
    distributions: Mapping[str, TopK] | None = None,
) -> Datum:
    added = {name: np.asarray(values, np.float32) for name, values in annotations.items()}
    return attrs.evolve(
        datum,
        annotations={**datum.annotations, **added},
        distributions={**datum.distributions, **(distributions or {})},
    )
