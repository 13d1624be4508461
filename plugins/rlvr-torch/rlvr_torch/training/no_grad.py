"""Data in micro-batches: budget and threads, and numbers of many data without gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import torch
from attrs import frozen
from torch import Tensor

from rlvr import BackendError, Datum, FloatArray
from rlvr_torch.runtime.batch_threads import BatchThreads
from rlvr_torch.training.microbatches import microbatches

Found = TypeVar("Found")


@frozen(kw_only=True, eq=False)
class Pieces:
    """How data are gone through, micro-batch by micro-batch."""

    budget: int  # tokens of a micro-batch
    threads: BatchThreads  # work on several micro-batches at a time
    is_cancelled: Callable[[], bool] = lambda: False  # asked before each

    def map(
        self, data: Sequence[Datum], work: Callable[[list[int]], Sequence[Found]]
    ) -> dict[int, Found]:
        """
        What `work` gives for each datum, by its place; none for one without a supervised token.

        Args:
            data: Checked data of any lengths.
            work: From the places of a micro-batch's data to one result each, in order.

        Raises:
            BackendError: `is_cancelled` said so.
        """

        def one(batch: list[int]) -> list[tuple[int, Found]]:
            if self.is_cancelled():
                raise BackendError("computing logprobs was cancelled")
            with torch.no_grad():
                return list(zip(batch, work(batch), strict=True))

        pieces = self.threads.map(one, microbatches(data, self.budget))
        return dict(pair for pairs in pieces for pair in pairs)

    def numbers(
        self, data: Sequence[Datum], score: Callable[[Sequence[Datum]], list[Tensor]]
    ) -> list[FloatArray]:
        """Numbers (T,) of each datum, zeros where nothing is supervised."""
        found = self.map(data, lambda batch: score([data[i] for i in batch]))
        return [
            found[i].cpu().numpy() if i in found else np.zeros(len(datum.tokens), np.float32)
            for i, datum in enumerate(data)
        ]
