"""Data before use: checked, cut into micro-batches, and gone through in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import structlog
import torch
from attrs import define, frozen
from torch import Tensor

import rlvr
from rlvr import BackendError, Datum, FloatArray
from rlvr_torch.runtime.batch_threads import BatchThreads
from rlvr_torch.training.packing.prefix_packing import SupervisedSpan

Found = TypeVar("Found")

log = structlog.get_logger(__name__)


def check_data(
    data: Sequence[Datum], vocab_size: int, positions: int, needs: frozenset[str] = frozenset()
) -> None:
    """Refuse data that would train on nonsense, before any of it is used (`rlvr.check_data`)."""
    rlvr.check_data(data, needs=needs, vocab_size=vocab_size, positions=positions)


def microbatches(data: Sequence[Datum], budget: int) -> list[list[int]]:
    """
    Indices of the data that one forward pass each holds: at most `budget` tokens, or one.

    Data with equal prompts stay together, for their prompt is computed, and counted, once; those
    with pictures share nothing. Similar lengths are near. The cut depends on the data, not on their
    order: equal sets of data give equal micro-batches. Data without a supervised token are left
    out.
    """
    extents = [SupervisedSpan.of(datum) for datum in data]
    leads = [_lead(d, e) for d, e in zip(data, extents, strict=True)]
    longest: dict[bytes, int] = {}
    for lead, extent in zip(leads, extents, strict=True):
        longest[lead] = max(longest.get(lead, 0), extent.end)
    order = sorted(
        (i for i, extent in enumerate(extents) if extent.end),
        key=lambda i: (
            longest[leads[i]],
            leads[i],
            extents[i].end,
            data[i].tokens.tobytes(),
            data[i].advantages.tobytes(),
        ),
    )
    batches: list[list[int]] = []
    tokens = 0
    for i in order:
        whole = extents[i].end
        is_known = (  # equal prompts: neighbours
            bool(batches) and leads[batches[-1][-1]] == leads[i] and not data[i].pictures
        )
        more = whole - extents[i].prompt if is_known else whole
        if batches and tokens + more <= budget:
            batches[-1].append(i)
            tokens += more
        else:
            batches.append([i])
            tokens = whole
    return batches


def row_tokens(data: Sequence[Datum]) -> int:
    """Tokens of a micro-batch of these data, as `microbatches` counts them: equal prompts once."""
    tokens, known = 0, set[bytes]()
    for datum in data:
        extent = SupervisedSpan.of(datum)
        lead = _lead(datum, extent)
        tokens += extent.end - (extent.prompt if lead in known and not datum.pictures else 0)
        known.add(lead)
    return tokens


def halves(batch: list[int]) -> tuple[list[int], list[int]]:
    """A micro-batch that does not fit, cut in two."""
    middle = len(batch) // 2
    return batch[:middle], batch[middle:]


def _lead(datum: Datum, extent: SupervisedSpan) -> bytes:
    """The bytes by which prompts are told apart."""
    shown = repr(datum.pictures).encode() if datum.pictures else b""
    return datum.tokens[: extent.prompt].tobytes() + shown


@frozen(kw_only=True, eq=False)
class MicroBatches:
    """Runs data through a function, micro-batch by micro-batch."""

    budget: int  # tokens of a micro-batch
    threads: BatchThreads  # work on several micro-batches at a time
    is_cancelled: Callable[[], bool] = lambda: False  # asked before each
    # Told how many tokens a micro-batch may have, where one did not fit into the memory.
    shrink: Callable[[int], None] = lambda tokens: None

    def each(
        self,
        data: Sequence[Datum],
        work: Callable[[list[int]], Found],
        batches: Sequence[list[int]],
    ) -> Iterator[Found]:
        """
        Results of `work` for each micro-batch, in order; with one thread, each at once.

        One that does not fit into the device's memory is cut in two, and gives two results.

        Raises:
            torch.OutOfMemoryError: A single datum does not fit.
        """

        def some(batch: list[int]) -> Iterator[Found]:
            try:
                found = work(batch)
            except torch.OutOfMemoryError:
                if len(batch) == 1:
                    raise
            else:
                yield found
                return
            # Outside the handler: the error holds what the failed pass had made.
            parts = halves(batch)
            self.shrink(max(row_tokens([data[i] for i in part]) for part in parts))
            for half in parts:
                yield from some(half)

        if self.threads.size == 1:  # a result may be a whole set of gradients: hold one at a time
            self.threads.prepare()
            for batch in batches:
                yield from some(batch)
        else:
            for all_found in self.threads.map(lambda batch: list(some(batch)), batches):
                yield from all_found

    def map(
        self, data: Sequence[Datum], work: Callable[[list[int]], Sequence[Found]]
    ) -> dict[int, Found]:
        """
        Results of `work` for each datum, by its place; none for one without a supervised token.

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

        pieces = self.each(data, one, microbatches(data, self.budget))
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


@define
class MicroBatchBudget:
    """How large micro-batches are, and on which threads; smaller once one did not fit."""

    tokens: int
    threads: BatchThreads
    model: str  # named by the warning

    def pieces(self, is_cancelled: Callable[[], bool]) -> MicroBatches:
        """What runs data through a function in such micro-batches."""
        return MicroBatches(
            budget=self.tokens,
            threads=self.threads,
            is_cancelled=is_cancelled,
            shrink=self._shrink,
        )

    def _shrink(self, tokens: int) -> None:
        """From now on micro-batches hold at most so many tokens: more did not fit."""
        if tokens < self.tokens:
            self.tokens = tokens
            log.warning("out_of_memory", model=self.model, microbatch_tokens=tokens)
