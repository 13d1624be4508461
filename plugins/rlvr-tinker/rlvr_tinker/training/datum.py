"""Our training sequences as the service's, and its numbers (N,) as ours (T,).

The service shifts nothing by itself: a datum of T tokens is sent as T - 1 inputs with the T - 1
tokens that follow them as targets. What it says of target n belongs to our token n + 1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from rlvr import BuildContext, ConfigError, Datum, FloatArray, NamedForm, check_data, extent

PADDED = 1024
"""Ids that a model may have, and draw, beyond those of its tokenizer: rows that pad its matrix."""
TEMPERATURES = (1.0,)
"""The service gives logprobs, of data and of prompts, at temperature 1 only."""
LOSSES_BY_WEIGHT = frozenset({"cross_entropy"})
"""Built-in losses whose weight is called `weights`; that of the others is `advantages`."""


def to_service(data: Sequence[Datum], form: NamedForm) -> list[Any]:
    """
    Data for one of the service's losses, up to each one's last supervised token.

    Its losses are plain sums: `advantages * weights` is sent as the advantage (as the weight of
    `cross_entropy`), and the mask by each name in `form.masks`. Tokens that the policy did not
    write get zeros, hence no gradient.
    """
    sent = []
    for datum in data:
        credit = np.where(datum.mask, datum.advantages * datum.weights, 0.0)
        inputs = {"weights": credit}
        if form.name not in LOSSES_BY_WEIGHT:
            drawn = np.where(datum.mask, datum.logprobs, 0.0)
            inputs = {"logprobs": drawn, "advantages": credit}
        sent.append(_sent(datum, inputs | dict.fromkeys(form.masks, datum.mask)))
    return sent


def for_logprobs(data: Sequence[Datum]) -> list[Any]:
    """As `to_service`, for a forward pass alone or a loss that is computed here."""
    return [_sent(datum, {"weights": datum.mask}) for datum in data]


def to_ours(datum: Datum, values: Any) -> FloatArray:
    """Numbers of the T' - 1 targets that were sent as (T,): 0 where nothing is supervised."""
    full = np.zeros(len(datum.tokens), np.float32)
    found = np.asarray(values, np.float32).reshape(-1)
    full[1 : 1 + len(found)] = found
    full[~datum.mask] = 0.0
    return full


def _sent(datum: Datum, inputs: Mapping[str, Any]) -> Any:
    """A datum with inputs (T,), shifted to the targets that they belong to."""
    from tinker import types

    end = extent(datum)
    tensor = types.TensorData.from_numpy
    numbers = {name: tensor(np.array(v[1:end], np.float32)) for name, v in inputs.items()}
    targets = tensor(np.array(datum.tokens[1:end], np.int64))
    return types.Datum(
        model_input=types.ModelInput.from_ints(datum.tokens[: end - 1].tolist()),
        loss_fn_inputs={"target_tokens": targets, **numbers},
    )


def check_sendable(
    data: Sequence[Datum], *, vocab_size: int, positions: int, needs: Collection[str] = ()
) -> None:
    """
    Refuse data before anything is sent: a service may repeat for ever what makes it fail.

    `vocab_size` is the tokenizer's, `positions` the longest sequence that the model takes, and
    `needs` are the annotations that the loss asks for.

    Raises:
        BackendError: As `rlvr.checks.check_data`.
    """
    check_data(
        data,
        needs=needs,
        vocab_size=vocab_size + PADDED,
        positions=positions,
        temperatures=TEMPERATURES,
    )


def check_temperature(context: BuildContext) -> None:
    """
    Refuse a run at a temperature that cannot be trained at, before anything is sampled.

    Raises:
        ConfigError: `sampler.temperature` of a run is not 1.
    """
    sampling = context.sampling
    if context.run_dir is None or sampling is None or sampling.temperature in TEMPERATURES:
        return
    raise ConfigError(
        f"sampler.temperature={sampling.temperature:g} was asked for.",
        "found: the Tinker service gives the trainer's logprobs at temperature 1 only, so that "
        "every importance ratio would be wrong",
        "leave it at 1, or train on a local backend",
    )
