"""A generation that can be continued: some tokens now, more when the weights have changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlvr import Completion
from rlvr_torch.generation.cpu.weights import DecodeWeights
from rlvr_torch.generation.decode_batch import DecodeBatch
from rlvr_torch.generation.sequence import RunningSequence
from rlvr_torch.runtime.batch_threads import BatchThreads


class Generation:
    """
    Completions in the making; made by `Engine.begin`.

    Between two calls of `advance` the weights may change. Keys that older weights computed are
    kept; each token's logprob is that of the distribution it was drawn from.
    """

    def __init__(
        self,
        sequences: Sequence[RunningSequence],
        batches: Sequence[DecodeBatch],
        threads: BatchThreads,
        weights: DecodeWeights,
    ) -> None:
        """`sequences`: in the order of the completions; `batches`: what decodes them."""
        self._weights = weights
        self._sequences = sequences
        self._batches = batches
        self._threads = threads

    @property
    def is_done(self) -> bool:
        """Whether all completions have ended."""
        return all(batch.is_done for batch in self._batches)

    def advance(
        self,
        tokens: int | None = None,
        is_cancelled: Callable[[], bool] = lambda: False,
        version: int | None = None,
    ) -> bool:
        """
        Draw on, at most `tokens` tokens in each row (None: until all have ended).

        Args:
            tokens: See above.
            is_cancelled: Asked before each token; the generation is lost when it says so.
            version: Of the weights that draw now, for `Completion.versions`.

        Returns:
            Whether all completions have ended.

        Raises:
            BackendError: Logits are not finite, or it was cancelled.
        """
        going = [batch for batch in self._batches if not batch.is_done]
        with self._weights.packed():
            self._threads.map(lambda batch: batch.run(tokens, is_cancelled, version), going)
        return self.is_done

    def completions(self) -> list[Completion]:
        """One a request, in order, as far as they have come."""
        return [sequence.completion for sequence in self._sequences]
