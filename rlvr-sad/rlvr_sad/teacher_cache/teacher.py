"""The teacher `file:DIR`: answers that were asked for before, found by content."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rlvr import (
    BackendError,
    BuildContext,
    Datum,
    FloatArray,
    Teacher,
    TeacherCapabilities,
    TeacherRequest,
    TopK,
)
from rlvr_sad.teacher_cache.answers import (
    TOKENIZER,
    Answers,
    answer_of,
    asked_of,
    key_of,
    read_head,
    row_type,
)
from rlvr_sad.teacher_cache.tokenizer import kept_tokenizer


class FileTeacher(Teacher):
    """
    The teacher of a folder that `rlvr sad cache-teacher` made.

    It knows the sequences it was asked for, and the positions that were learnt in them, and no
    others: it fits runs that replay trajectories, which are the same each time.

    Attributes:
        name: The model spec.
        tokenizer: The one that the sequences were made with.
        context_length: Of the teacher that was asked.
        capabilities: At most the k that was kept, at the one temperature.
    """

    def __init__(self, config: None, context: BuildContext) -> None:
        del config
        self.name = context.model
        self._folder = Path(context.model.partition(":")[2]).expanduser()
        self._head = read_head(self._folder)
        self._answers = Answers(self._folder)
        self.tokenizer = kept_tokenizer(self._folder / TOKENIZER)
        self.context_length = self._head.context_length
        self.capabilities = TeacherCapabilities(
            has_scores=True,
            max_k=self._head.k,
            temperatures=(self._head.temperature,),
            tokenizer=self._head.tokenizer,
        )

    async def __aenter__(self) -> FileTeacher:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._answers.close()

    async def score(self, questions: Sequence[TeacherRequest]) -> list[TopK]:
        """
        The teacher's answers; NaN at positions that it was not asked for.

        Raises:
            BackendError: A sequence is not there, or not at this temperature, or not with this k;
                or the file of answers is broken.
        """
        return [self._answer(question) for question in questions]

    async def logprobs(self, data: Sequence[Datum]) -> list[FloatArray]:
        """
        Natural logs (T,) of the supervised tokens; 0 elsewhere.

        Raises:
            BackendError: A sequence or a position is not there.
        """
        found = []
        for datum in data:
            values = np.zeros(len(datum.tokens), np.float32)
            if datum.mask.any():
                rows = self._rows(asked_of(datum.tokens, datum.mask), datum.temperature)
                values[rows["place"]] = rows["actual"]
                missing = np.setdiff1d(np.flatnonzero(datum.mask), rows["place"])
                if len(missing):
                    raise self._refused(
                        f"it was not asked about {len(missing)} of {int(datum.mask.sum())} "
                        f"positions of problem {datum.problem_id}"
                    )
                values[~datum.mask] = 0.0
            found.append(values)
        return found

    def _answer(self, question: TeacherRequest) -> TopK:
        if question.k > self._head.k:
            raise self._refused(f"{self._head.k} tokens a position, {question.k} were asked for")
        rows = self._rows(question.ids, question.temperature)
        is_whole = question.k == self._head.k == self._head.vocab_size
        return answer_of(rows, question.start, len(question.ids), question.k, is_whole=is_whole)

    def _rows(self, ids: np.ndarray, temperature: float) -> np.ndarray:
        if len(ids) > self.context_length:
            raise self._refused(f"{len(ids)} tokens, it read at most {self.context_length}")
        key = key_of(self._head.tokenizer, ids, temperature)
        rows = self._answers.get(key, row_type(self._head.k))
        if rows is None:
            at = f" at temperature {temperature:g}" if temperature != self._head.temperature else ""
            raise self._refused(f"no answer to a sequence of {len(ids)} tokens{at}")
        return rows

    def _refused(self, found: str) -> BackendError:
        head = self._head
        return BackendError(
            f"the answers of {head.teacher} in {self._folder} were to be used.",
            f"found: {found}",
            f"make what is missing: rlvr sad cache-teacher --teacher {head.teacher} "
            f"--model STUDENT --dataset FILES --k {head.k} --out {self._folder}, with the "
            "same sad.* and replay.* options as the run",
        )
