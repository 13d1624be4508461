"""Check training data before use: every backend rejects the same faults with the same messages."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rlvr.border.calls import Border, shown
from rlvr.errors import BackendError
from rlvr.types import Datum, TopK

__all__ = ["check_data", "check_loss", "extent", "fault_of"]


def check_data(
    data: Sequence[Datum],
    *,
    needs: Collection[str] = (),
    vocab_size: int | None = None,
    positions: int | None = None,
    temperatures: Collection[float] | None = None,
) -> None:
    """
    Refuse data that would train on nonsense, before any of it is used.

    Args:
        data: What is to be trained on, or scored.
        needs: Annotations that the loss asks for.
        vocab_size: Ids go from 0 to one less; None: any that is not negative.
        positions: Longest sequence that the model takes, up to its last supervised token; None:
            any.
        temperatures: Those that can be trained at; None: any above 0.

    Raises:
        BackendError: Names the datum, its problem and what is wrong (`fault_of`).
    """
    for index, datum in enumerate(data):
        if reason := fault_of(datum, needs, vocab_size, positions, temperatures):
            raise BackendError(
                f"datum {index} of {len(data)} (problem {datum.problem_id!r}) was not used.",
                f"found: {reason}",
                "check the reward and the advantage of this problem",
            )


def fault_of(
    datum: Datum,
    needs: Collection[str] = (),
    vocab_size: int | None = None,
    positions: int | None = None,
    temperatures: Collection[float] | None = None,
) -> str:
    """
    The fault of a datum; "" if it has none. Arguments as `check_data`.

    Arrays of unequal length, numbers that are not finite, an annotation that is missing, ids
    outside the vocabulary, a supervised first token, a temperature, too many tokens.
    """
    return next(_faults(datum, needs, vocab_size, positions, temperatures), "")


def extent(datum: Datum) -> int:
    """Tokens up to the last supervised one, 0 where there is none: what comes after is not used."""
    places = np.flatnonzero(datum.mask)
    return int(places[-1]) + 1 if len(places) else 0


def _faults(
    datum: Datum,
    needs: Collection[str],
    vocab_size: int | None,
    positions: int | None,
    temperatures: Collection[float] | None,
) -> Iterator[str]:
    length = len(datum.tokens)
    arrays = {
        "mask": datum.mask,
        "logprobs": datum.logprobs,
        "advantages": datum.advantages,
        "weights": datum.weights,
        **{f"annotation {name!r}": values for name, values in datum.annotations.items()},
    }
    for name, values in arrays.items():
        if np.shape(values) != (length,):
            yield f"{name} has shape {np.shape(values)}, tokens ({length},)"
        if not np.isfinite(values).all():
            yield f"{name} holds a number that is not finite"
    rows = int(datum.mask.sum())
    for name, found in datum.distributions.items():
        numbers = found.logprobs if isinstance(found, TopK) else found.states
        if len(numbers) != rows:
            yield f"distribution {name!r} has {len(numbers)} rows for {rows} supervised tokens"
        if np.isnan(numbers).any():
            yield f"distribution {name!r} holds a value that is not a number"
    for name in sorted(set(needs) - set(datum.annotations)):
        yield f"the loss needs the annotation {name!r}, which it lacks"
    if length:
        low, high = int(datum.tokens.min()), int(datum.tokens.max())
        if low < 0 and vocab_size is None:
            yield f"a negative token id: {low}"
        if vocab_size is not None and (low < 0 or high >= vocab_size):
            yield f"token ids {low}..{high} leave the vocabulary 0..{vocab_size - 1}"
        if datum.mask[0]:
            yield "its first token is supervised, but nothing comes before it"
    if not (datum.temperature > 0 and np.isfinite(datum.temperature)):
        yield f"its temperature is {datum.temperature}, which must be positive"
    if temperatures is not None and datum.temperature not in temperatures:
        known = ", ".join(f"{t:g}" for t in temperatures)
        yield (
            f"it was sampled at temperature {datum.temperature:g}, and only {known} can be "
            "trained at (sampler.temperature)"
        )
    if positions is not None and (end := extent(datum)) > positions:
        yield f"it has {end} tokens, the model {positions} positions"


def check_loss(loss: Any, returned: Any, logprobs: Sequence[Any]) -> Any:
    """
    The result of a loss, if a backend can use it.

    Args:
        loss: Named where it cannot.
        returned: Of `loss(data, logprobs, outputs)`.
        logprobs: What it was given.

    Raises:
        PartError: It is no scalar tensor with metrics, or has no gradient by the logprobs.
    """
    at = Border(loss, "loss", "__call__", promised="(loss, metrics): a scalar tensor and numbers")
    if not isinstance(returned, tuple) or len(returned) != 2:
        at.check(shown(returned))
    value, metrics = returned
    if not _is_scalar(value):
        at.check(f"{shown(value)}, which is no scalar tensor")
    if "complex" in str(getattr(value, "dtype", "")) or getattr(value, "is_meta", False):
        at.check(f"{shown(value)}, which is no real number")
    if not isinstance(metrics, Mapping):
        at.check(f"{shown(metrics)} as metrics")
    for name, number in metrics.items():
        is_number = isinstance(number, int | float | np.number) or _is_scalar(number)
        if not isinstance(name, str) or not is_number:
            at.check(f"{shown(number)} as metric {shown(name)}")
    wants = any(getattr(tensor, "requires_grad", False) for tensor in logprobs)
    if wants and not getattr(value, "requires_grad", False):
        at.check("a loss without a gradient by the logprobs: they were detached, or are not in it")
    return returned


def _is_scalar(value: Any) -> bool:
    """Whether a value is a tensor or array of no dimension."""
    shape = getattr(value, "shape", None)
    return shape is not None and tuple(shape) == ()
