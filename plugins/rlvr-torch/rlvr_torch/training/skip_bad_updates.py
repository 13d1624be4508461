"""Skip updates that are not finite; too many in a row end the run."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from rlvr import BackendError

log = structlog.get_logger(__name__)


class NotFiniteError(BackendError):
    """A loss or a gradient is not finite; the weights are as before."""


class Skips:
    """Counts skipped updates in a row; more than `most` end the run."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._in_a_row = 0

    def guard(self, update: Callable[[], dict[str, float]]) -> dict[str, float]:
        """The metrics of an update with `update/skipped`; `NotFiniteError`: too many in a row."""
        try:
            metrics = update()
        except NotFiniteError as error:
            if self._in_a_row >= self._most:
                before = f" after {self._in_a_row} that were skipped" if self._in_a_row else ""
                raise NotFiniteError(
                    f"{error}\n  found: one too many{before} (torch.max_skipped={self._most})\n"
                    "  try: a smaller train.lr, a smaller train.grad_clip, or look at these "
                    "problems"
                ) from error
            self._in_a_row += 1
            log.warning("update_skipped", in_a_row=self._in_a_row, reason=str(error))
            return {"update/skipped": 1.0}
        self._in_a_row = 0
        return {**metrics, "update/skipped": 0.0}
