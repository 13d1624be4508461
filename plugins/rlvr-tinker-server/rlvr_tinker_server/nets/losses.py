"""The service's built-in losses, as it documents them: sums over all tokens of a datum.

Every loss is `-sum(objective)`; nothing is divided by lengths or counts, that is for advantages and
weights to do. `p` are the trainer's logprobs of the targets, `q` those of the sampler, `A` the
advantages.

Source: https://tinker-docs.thinkingmachines.ai/tinker/losses (formulas; read November 2026).
Shapes: N tokens of a datum, K targets at each (cross_entropy only).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from attrs import frozen
from torch import Tensor

from rlvr_tinker_server.refusal import Refusal
from rlvr_tinker_server.wire import Row

Inputs = Mapping[str, Tensor]
Settings = Mapping[str, float]


def _cross_entropy(p: Tensor, inputs: Inputs, settings: Settings) -> Tensor:
    return -(p * inputs["weights"]).sum()


def _importance_sampling(p: Tensor, inputs: Inputs, settings: Settings) -> Tensor:
    ratio = (p - inputs["logprobs"]).exp()
    return -(ratio * inputs["advantages"]).sum()


def _clipped(ratio: Tensor, inputs: Inputs, settings: Settings) -> Tensor:
    """The ratio between the thresholds: the token's own where the datum has them."""
    low, high = (
        torch.as_tensor(inputs.get(name, settings[name]), dtype=ratio.dtype, device=ratio.device)
        for name in ("clip_low_threshold", "clip_high_threshold")
    )
    return torch.minimum(torch.maximum(ratio, low), high)


def _surrogate(ratio: Tensor, inputs: Inputs, settings: Settings) -> Tensor:
    advantages = inputs["advantages"]
    clipped = _clipped(ratio, inputs, settings) * advantages
    return -torch.minimum(ratio * advantages, clipped).sum()


def _ppo(p: Tensor, inputs: Inputs, settings: Settings) -> Tensor:
    return _surrogate((p - inputs["logprobs"]).exp(), inputs, settings)


def _cispo(p: Tensor, inputs: Inputs, settings: Settings) -> Tensor:
    ratio = (p.detach() - inputs["logprobs"]).exp()
    return -(_clipped(ratio, inputs, settings) * p * inputs["advantages"]).sum()


def _gspo(p: Tensor, inputs: Inputs, settings: Settings) -> Tensor:
    """GSPO-token (arXiv:2507.18071): each token has the sequence's ratio and its own gradient."""
    is_in = inputs["sequence_ratio_mask"] != 0
    mean = (p.detach() - inputs["logprobs"])[is_in].mean() if bool(is_in.any()) else p.new_zeros(())
    return _surrogate((mean + p - p.detach()).exp(), inputs, settings)


def _dro(p: Tensor, inputs: Inputs, settings: Settings) -> Tensor:
    penalty = (p - inputs["logprobs"]).square()
    return -(p * inputs["advantages"] - 0.5 * settings["beta"] * penalty).sum()


@frozen(kw_only=True)
class Form:
    """A built-in loss."""

    compute: Callable[
        [Tensor, Inputs, Settings], Tensor
    ]  # `(p, inputs, settings) -> loss`, of one datum
    inputs: tuple[str, ...]  # tensors (N,) that a datum must have besides `target_tokens`
    optional: tuple[str, ...] = ()  # those that it may have
    defaults: Mapping[
        str, float | None
    ] = {}  # settings and their values; None where one must be given
    factor: str | None = "advantages"  # what every token's gradient is multiplied by; None: none


_RATIO = ("logprobs", "advantages")


def _clipping(compute: Any, low: float | None, high: float | None, *inputs: str) -> Form:
    """A loss with thresholds: these by default, or a datum's own."""
    defaults = {"clip_low_threshold": low, "clip_high_threshold": high}
    return Form(
        compute=compute, inputs=(*_RATIO, *inputs), optional=tuple(defaults), defaults=defaults
    )


FORMS: Mapping[str, Form] = {
    "cross_entropy": Form(compute=_cross_entropy, inputs=("weights",), factor="weights"),
    "importance_sampling": Form(compute=_importance_sampling, inputs=_RATIO),
    "ppo": _clipping(_ppo, 0.8, 1.2),
    "cispo": _clipping(_cispo, 0.0, 4.0),
    # The service's own defaults of these two are not public: they must be said.
    "gspo": _clipping(_gspo, None, None, "sequence_ratio_mask"),
    "dro": Form(compute=_dro, inputs=_RATIO, defaults={"beta": None}, factor=None),
}
"""Name to loss."""


@frozen(kw_only=True)
class Loss:
    """A built-in loss with its settings; call it with a datum's logprobs and tensors."""

    form: Form
    settings: Settings

    def __call__(self, logprobs: Tensor, inputs: Inputs) -> Tensor:
        return self.form.compute(logprobs, inputs, self.settings)

    def begin(self, row: Row) -> int:
        """The first token that can have a gradient; the last token where none can."""
        if self.form.factor is None:
            return 0
        factor = row.inputs[self.form.factor].reshape(len(row.tokens), -1)
        at = np.flatnonzero(factor.any(axis=1))
        return int(at[0]) if len(at) else len(row.tokens) - 1


def choose(name: str, config: Mapping[str, float | str]) -> Loss:
    """
    The loss of that name.

    `Refusal`: no such loss; a setting is unknown, missing or no number.
    """
    form = FORMS.get(name)
    if form is None:
        raise Refusal(f"no loss {name!r} here; there are: {', '.join(FORMS)}")
    settings = dict(form.defaults)
    for key, value in config.items():
        if key not in settings:
            known = ", ".join(settings) or "none"
            raise Refusal(f"the loss {name} has no setting {key!r}; it has: {known}")
        if isinstance(value, str) or not math.isfinite(value):
            raise Refusal(f"{name}: {key}={value!r} is no finite number")
        settings[key] = float(value)
    found = {key: value for key, value in settings.items() if value is not None}
    if missing := sorted(set(settings) - set(found)):
        raise Refusal(f"the loss {name} needs {', '.join(missing)} in loss_fn_config")
    return Loss(form=form, settings=found)


def check_rows(rows: Sequence[Row], name: str, *, positions: int, vocab_size: int) -> None:
    """
    Refuse data that the loss cannot be computed on: nothing is computed on the rest either.

    Raises:
        Refusal: A datum is empty, too long, has ids outside the vocabulary, lacks a tensor or has
            an unknown one, or a tensor has the wrong length or numbers that are not finite.
    """
    form = FORMS[name]
    if not rows:
        raise Refusal("there are no data")
    for i, row in enumerate(rows):
        length = len(row.tokens)
        if not 1 <= length <= positions:
            raise Refusal(f"datum {i} has {length} tokens; the model reads 1..{positions}")
        _check_ids(row.tokens, vocab_size, f"datum {i}: model_input")
        needed = ("target_tokens", *form.inputs)
        if missing := [key for key in needed if key not in row.inputs]:
            raise Refusal(f"datum {i} lacks {', '.join(missing)}, which {name} needs")
        if unknown := sorted(set(row.inputs) - {*needed, *form.optional}):
            raise Refusal(f"datum {i} has {', '.join(unknown)}, which {name} does not take")
        targets = row.inputs["target_tokens"]
        _check_ids(targets, vocab_size, f"datum {i}: target_tokens")
        is_table = name == "cross_entropy" and targets.ndim == 2 and targets.shape[1] > 0
        if targets.shape[:1] != (length,) or not (targets.ndim == 1 or is_table):
            raise Refusal(
                f"datum {i}: target_tokens has the shape {list(targets.shape)}, the input "
                f"{length} tokens"
            )
        for key, values in row.inputs.items():
            if values.shape != targets.shape:
                raise Refusal(
                    f"datum {i}: {key} has the shape {list(values.shape)}, target_tokens "
                    f"{list(targets.shape)}"
                )
            if not np.isfinite(values).all():
                raise Refusal(f"datum {i}: {key} holds numbers that are not finite")


def _check_ids(ids: np.ndarray, vocab_size: int, name: str) -> None:
    if ids.dtype.kind != "i":
        raise Refusal(f"{name} holds {ids.dtype}, not token ids")
    if len(ids) and (ids.min() < 0 or ids.max() >= vocab_size):
        raise Refusal(
            f"{name} holds ids {ids.min()}..{ids.max()}, the model knows 0..{vocab_size - 1}"
        )
