"""A teacher in memory: the table of a `TinyBackend`, frozen."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import attrs
import numpy as np

from rlvr.errors import BackendError
from rlvr.parts import Teacher, TeacherCapabilities, Tokenizer
from rlvr.testing.fakes.tiny import TinyBackend, TinyHead
from rlvr.tokenization.fingerprint import fingerprint
from rlvr.types import Datum, FloatArray, HiddenStates, TeacherRequest, TopK


class TinyTeacher(Teacher):
    """
    Scores with the table of logits that a `TinyBackend` has.

    Args:
        backend: Where the numbers come from; train it before, not after.
        name: Of the teacher, for messages.
        max_k: Most tokens a position that it tells; 0: any number.
        temperatures: Those it scores at; None: any.
    """

    context_length = 4096

    def __init__(
        self,
        backend: TinyBackend | None = None,
        name: str = "tiny",
        *,
        max_k: int = 0,
        temperatures: tuple[float, ...] | None = None,
    ) -> None:
        self._backend = backend or TinyBackend(seed=7)
        self.name = name
        self.tokenizer: Tokenizer = self._backend.tokenizer
        self.capabilities = TeacherCapabilities(
            has_scores=True,
            max_k=max_k,
            temperatures=temperatures,
            tokenizer=fingerprint(self.tokenizer),
        )

    async def logprobs(self, data: Sequence[Datum]) -> list[FloatArray]:
        """Logprobs (T,) of the policy's tokens at the datum's temperature, 0 elsewhere."""
        for datum in data:
            if len(datum.tokens) > self.context_length:
                raise BackendError(f"{len(datum.tokens)} tokens, {self.context_length} are read")
        found = await self._backend.logprobs(data, "policy")
        return [np.where(d.mask, row, np.float32(0)) for d, row in zip(data, found, strict=True)]

    async def score(self, questions: Sequence[TeacherRequest]) -> list[TopK]:
        """The likeliest tokens, in no order."""
        return [self._answer(question) for question in questions]

    def _answer(self, question: TeacherRequest) -> TopK:
        size, able = self.tokenizer.vocab_size, self.capabilities
        if able.max_k and question.k > able.max_k:
            raise BackendError(f"k={question.k} was asked of teacher {self.name}: {able.max_k}")
        if len(question.ids) > self.context_length or question.start < 1:
            raise BackendError(
                f"{len(question.ids)} tokens from {question.start} on were asked for"
            )
        rows = self._backend.table[question.ids[question.start - 1 : -1]] / question.temperature
        rows -= np.log(np.exp(rows).sum(-1, keepdims=True))
        k = min(question.k, size)
        ids = np.sort(np.argpartition(-rows, min(k, size - 1), axis=-1)[:, :k], axis=-1)
        return TopK(
            ids=ids,
            logprobs=np.take_along_axis(rows, ids, axis=-1),
            actual=np.take_along_axis(rows, question.ids[question.start :, None], axis=-1)[:, 0],
            is_whole=k == size,
        )


class TinyRevealer(TinyTeacher):
    """The same, which gives its states too: the previous token, one-hot. Needs torch."""

    def __init__(self, backend: TinyBackend | None = None, name: str = "tiny") -> None:
        super().__init__(backend, name)
        self.capabilities = attrs.evolve(self.capabilities, has_states=True)
        torch = importlib.import_module("torch")
        self.head = TinyHead(weights=torch.tensor(self._backend.table.T, dtype=torch.float32))

    async def states(self, data: Sequence[Datum]) -> list[HiddenStates]:
        """The states (n, V) of each datum's supervised tokens."""
        return [HiddenStates(states=states) for states in self._backend.states(data)]
