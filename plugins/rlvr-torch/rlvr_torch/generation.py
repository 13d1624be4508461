"""A generation that can be continued: some tokens now, more when the weights have changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlvr.types import Completion
from rlvr_torch.crew import Crew
from rlvr_torch.draft import Draft
from rlvr_torch.lane import Lane
from rlvr_torch.packed_weights import PackedWeights


class Generation:
    """
    Completions in the making; made by `Engine.begin`.

    Between two calls of `advance` the weights may change. Keys that older weights computed are
    kept; each token's logprob is that of the distribution it was drawn from.
    """

    def __init__(
        self,
        drafts: Sequence[Draft],
        lanes: Sequence[Lane],
        crew: Crew,
        weights: PackedWeights,
    ) -> None:
        """`drafts` are in the order of the completions; the lanes hold those that have room."""
        self._weights = weights
        self._drafts = drafts
        self._lanes = lanes
        self._crew = crew

    @property
    def is_done(self) -> bool:
        """Whether all completions have ended."""
        return all(lane.is_done for lane in self._lanes)

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
        going = [lane for lane in self._lanes if not lane.is_done]
        with self._weights.packed():
            self._crew.map(lambda lane: lane.run(tokens, is_cancelled, version), going)
        return self.is_done

    def completions(self) -> list[Completion]:
        """One a request, in order, as far as they have come."""
        return [draft.completion for draft in self._drafts]
