"""A teacher in memory: the table of a `TinyBackend`, frozen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlvr.errors import BackendError
from rlvr.parts import Tokenizer
from rlvr.testing.fakes.tiny import TinyBackend
from rlvr.types import Datum, FloatArray


class TinyTeacher:
    """
    Scores with the table of logits that a `TinyBackend` has.

    Args:
        backend: Where the numbers come from; train it before, not after.
        name: Of the teacher, for messages.
    """

    context_length = 4096

    def __init__(self, backend: TinyBackend | None = None, name: str = "tiny") -> None:
        self._backend = backend or TinyBackend(seed=7)
        self.name = name
        self.tokenizer: Tokenizer = self._backend.tokenizer

    async def logprobs(self, data: Sequence[Datum]) -> list[FloatArray]:
        """Logprobs (T,) of the policy's tokens at the datum's temperature, 0 elsewhere."""
        for datum in data:
            if len(datum.tokens) > self.context_length:
                raise BackendError(f"{len(datum.tokens)} tokens, {self.context_length} are read")
        found = await self._backend.logprobs(data, "policy")
        return [np.where(d.mask, row, np.float32(0)) for d, row in zip(data, found, strict=True)]
