"""Updates that would have damaged the weights: left out, counted, and at some point too many."""

from __future__ import annotations

import structlog

from rlvr.errors import BackendError

log = structlog.get_logger(__name__)


class NotFiniteError(BackendError):
    """A loss or a gradient is not finite; the weights are as before."""


class Skips:
    """
    Counts the updates that were left out one after another.

    Args:
        most: How many there may be before the run ends.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._in_a_row = 0

    def reset(self) -> None:
        """An update was made."""
        self._in_a_row = 0

    def count(self, error: NotFiniteError) -> dict[str, float]:
        """
        One more; gives the metrics of an update that was left out.

        Raises:
            NotFiniteError: It is one too many.
        """
        if self._in_a_row >= self._most:
            before = f" after {self._in_a_row} that were skipped" if self._in_a_row else ""
            raise NotFiniteError(
                f"{error}\n  found{before}; torch.max_skipped={self._most}\n"
                "  try: a smaller train.lr, a smaller train.grad_clip, or look at these problems"
            ) from error
        self._in_a_row += 1
        log.warning("update_skipped", in_a_row=self._in_a_row, reason=str(error))
        return {"update/skipped": 1.0}
