"""Our losses on the service: built in there, or computed here."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any

import structlog

from rlvr import (
    BackendError,
    Datum,
    FloatArray,
    Loss,
    NamedForm,
    PrerequisiteError,
    extent,
    pip_install,
)

log = structlog.get_logger(__name__)

_GAP = 1e-3
"""Largest relative difference between the service's loss and ours that rounding explains."""


class NotFiniteError(BackendError):
    """A loss is not finite; the weights are as before."""


def form_of(loss: Loss, *, is_custom: bool) -> NamedForm | None:
    """
    The service's name for a loss; None: it is computed here.

    Raises:
        BackendError: The loss needs more of the forward pass than logprobs.
    """
    if outputs := sorted(loss.needs.outputs):
        raise BackendError(
            f"the loss needs {', '.join(outputs)} from the forward pass.",
            "found: the Tinker service gives logprobs only",
            "switch that term off (a divergence: opd.mode=pg), or train on a local backend: "
            "--backend torch",
        )
    return None if is_custom else loss.builtin_form()


def measured(
    loss: Loss, data: Sequence[Datum], logprobs: Sequence[FloatArray]
) -> tuple[float | None, dict[str, float]]:
    """Our value and metrics of a loss that the service computed; (None, {}) without torch."""
    try:
        import torch
    except ImportError:
        return None, {}
    with torch.no_grad():
        value, metrics = loss(data, [torch.from_numpy(lp) for lp in logprobs], {})
    return float(value), metrics


def check_sum(theirs: float | None, ours: float | None, name: str, told: set[str]) -> None:
    """Warn once if the service's loss has another formula than ours."""
    if theirs is None or ours is None or name in told:
        return
    if not abs(theirs - ours) <= _GAP * max(1.0, abs(ours)):
        told.add(name)
        log.warning(
            "loss_differs",
            loss=name,
            service=theirs,
            here=ours,
            advice="tinker.custom_loss=true computes it here",
        )


class LocalLoss:
    """
    A loss of ours in the shape of `forward_backward_custom`, which calls it in a thread.

    What goes wrong in it is kept as `error`; the service then gets a gradient of zero, because
    the SDK's client could not be used again after an exception.

    Attributes:
        value: The loss.
        metrics: Its metrics.
        error: What it raised, None where nothing.
        is_known: Done once the loss was computed, or was not: it is waited for like a request.
    """

    def __init__(self, loss: Loss, data: Sequence[Datum]) -> None:
        """Take a loss; a `PrerequisiteError` without torch, which differentiates it."""
        try:
            import torch  # noqa: F401  # only whether it is there
        except ImportError as error:
            raise PrerequisiteError(
                "a loss that the service does not know was asked for.",
                "found: torch is not installed, and the loss is computed here",
                pip_install("rlvr-tinker[custom]"),
            ) from error
        self._loss, self._data = loss, data
        self.is_known: Future[None] = Future()
        self.value = math.nan
        self.metrics: dict[str, float] = {}
        self.error: BaseException | None = None

    def __call__(self, _sent: Any, logprobs: Sequence[Any]) -> tuple[Any, dict[str, float]]:
        """The loss of tensors (N,), one per datum; no metrics, which stay in `metrics`."""
        import torch

        nothing = sum((torch.nan_to_num(lp) * 0.0).sum() for lp in logprobs)
        try:
            full = [_padded(d, lp) for d, lp in zip(self._data, logprobs, strict=True)]
            loss, self.metrics = self._loss(self._data, full, {})
            self.value = float(loss.detach())
            slopes = torch.autograd.grad(loss, list(logprobs), retain_graph=True, allow_unused=True)
            bad = [
                datum.problem_id
                for datum, slope in zip(self._data, slopes, strict=True)
                if slope is not None and not bool(torch.isfinite(slope).all())
            ]
            if bad or not math.isfinite(self.value):
                raise NotFiniteError(
                    f"the loss is {self.value}; the weights are as before.",
                    f"found: problems {', '.join(dict.fromkeys(bad)) or 'unknown'}",
                    "try a smaller train.lr, or look at these problems",
                )
        except BaseException as error:
            self.error, loss = error, 0.0
        with contextlib.suppress(InvalidStateError):  # nobody waits any more
            self.is_known.set_result(None)
        return loss + nothing, {}


def _padded(datum: Datum, lp: Any) -> Any:
    """Logprobs of the targets that were sent (N,) as (T,), with their gradient."""
    import torch

    rest = len(datum.tokens) - extent(datum)
    return torch.cat([lp.new_zeros(1), lp, lp.new_zeros(rest)])
