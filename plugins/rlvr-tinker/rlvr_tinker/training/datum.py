"""Our training sequences as the service's, and its numbers (N,) as ours (T,).

The service shifts nothing by itself: a datum of T tokens is sent as T - 1 inputs with the T - 1
tokens that follow them as targets. What it says of target n belongs to our token n + 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlvr import Datum, FloatArray, NamedForm, extent

LOSSES_BY_WEIGHT = frozenset({"cross_entropy"})
"""Built-in losses whose weight is called `weights`; that of the others is `advantages`."""


def to_service(data: Sequence[Datum], form: NamedForm) -> list[Any]:
    """
    Data for one of the service's losses, up to each one's last supervised token.

    Its losses are plain sums: `advantages * weights` is sent as the advantage (as the weight of
    `cross_entropy`), and the mask by each name in `form.masks`. Tokens that the policy did not
    write get zeros, hence no gradient.
    """
    return [_sent(datum, form) for datum in data]


def for_logprobs(data: Sequence[Datum]) -> list[Any]:
    """The same for a forward pass alone, or for a loss that is computed here."""
    from tinker import types

    sent = []
    for datum in data:
        end = extent(datum)
        sent.append(
            types.Datum(
                model_input=types.ModelInput.from_ints(datum.tokens[: end - 1].tolist()),
                loss_fn_inputs={
                    "target_tokens": _ints(datum.tokens[1:end]),
                    "weights": _floats(datum.mask[1:end]),
                },
            )
        )
    return sent


def to_ours(datum: Datum, values: Any) -> FloatArray:
    """Numbers of the T' - 1 targets that were sent as (T,): 0 where nothing is supervised."""
    full = np.zeros(len(datum.tokens), np.float32)
    found = np.asarray(values, np.float32).reshape(-1)
    full[1 : 1 + len(found)] = found
    full[~datum.mask] = 0.0
    return full


def _sent(datum: Datum, form: NamedForm) -> Any:
    from tinker import types

    end = extent(datum)
    credit = np.where(datum.mask, datum.advantages * datum.weights, 0.0)[1:end]
    inputs = {"target_tokens": _ints(datum.tokens[1:end])}
    if form.name in LOSSES_BY_WEIGHT:
        inputs["weights"] = _floats(credit)
    else:
        inputs["logprobs"] = _floats(np.where(datum.mask, datum.logprobs, 0.0)[1:end])
        inputs["advantages"] = _floats(credit)
    for mask in form.masks:  # which tokens make a ratio
        inputs[mask] = _floats(datum.mask[1:end])
    return types.Datum(
        model_input=types.ModelInput.from_ints(datum.tokens[: end - 1].tolist()),
        loss_fn_inputs=inputs,
    )


def _ints(values: Any) -> Any:
    from tinker import types

    return types.TensorData.from_numpy(np.array(values, np.int64))


def _floats(values: Any) -> Any:
    from tinker import types

    return types.TensorData.from_numpy(np.array(values, np.float32))
