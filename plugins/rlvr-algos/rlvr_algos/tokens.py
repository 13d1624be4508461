"""The policy's own tokens of a batch as flat tensors: what every token loss starts from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from attrs import frozen
from torch import Tensor

from rlvr.errors import BackendError, explain
from rlvr.types import Datum

FLOOR = -1e4
"""Logprobs below this many nats count as this, and pass no gradient: sums stay finite."""


@frozen(kw_only=True, eq=False)
class PolicyTokens:
    """
    The N tokens of a batch that the policy wrote, in order; all tensors have shape (N,).

    Tokens of the prompt and the environment are left out before any arithmetic, so nothing that
    stands there, NaN included, reaches the loss or its gradient. Computed in the precision of the
    logprobs that came in, in float32 at least.
    """

    logprobs: Tensor  # nats, of the policy being trained; carries the gradient
    sampled: Tensor  # nats, of the policy that sampled
    advantages: Tensor
    weights: Tensor
    _data: Sequence[Datum]
    _mask: np.ndarray

    @classmethod
    def gather(cls, data: Sequence[Datum], logprobs: Sequence[Tensor]) -> PolicyTokens:
        """
        Flatten D data and their logprobs (one tensor a datum, shape (T,)).

        Raises:
            BackendError: The logprobs do not have the shapes of the data.
        """
        lengths, found = [len(d.tokens) for d in data], [len(x) for x in logprobs]
        if lengths != found:
            raise BackendError(
                explain(
                    f"A loss needs one logprob a token, for data of lengths {lengths}.",
                    f"The backend gave lengths {found}.",
                    "This is a bug of the backend: run BackendContract on it.",
                )
            )
        flat = torch.cat([x.reshape(-1) for x in logprobs])  # (sum of T,)
        if flat.dtype in (torch.float16, torch.bfloat16):
            flat = flat.float()
        mask = np.concatenate([d.mask for d in data])  # (sum of T,)
        index = torch.from_numpy(np.flatnonzero(mask)).to(flat.device)
        own = flat.index_select(0, index).clamp(min=FLOOR)  # (N,) nats

        def column(arrays: Sequence[np.ndarray]) -> Tensor:
            return torch.from_numpy(np.concatenate(arrays)[mask]).to(own)

        return cls(
            logprobs=own,
            sampled=column([d.logprobs for d in data]),
            advantages=column([d.advantages for d in data]),
            weights=column([d.weights for d in data]),
            data=data,
            mask=mask,
        )

    def annotation(self, name: str) -> Tensor:
        """
        Logprobs (N,) of the same tokens by another model ("reference", "teacher"), in nats.

        Raises:
            BackendError: A datum lacks the annotation.
        """
        if missing := [d.problem_id for d in self._data if name not in d.annotations]:
            raise BackendError(
                explain(
                    f"The loss needs the {name} model's logprobs of every datum.",
                    f"{len(missing)} of {len(self._data)} data lack them, first {missing[0]!r}.",
                    f"Annotate the data with {name!r}: it is in the loss's `needs`.",
                )
            )
        values = np.concatenate([np.asarray(d.annotations[name]) for d in self._data])
        return torch.from_numpy(values[self._mask]).to(self.logprobs)

    def weighted(self, values: Tensor) -> Tensor:
        """Sum of (N,) values times the weights: additive over micro-batches, scalar."""
        return (self.weights * values).sum()


def as_metrics(values: dict[str, Tensor]) -> dict[str, float]:
    """Plain numbers of scalar tensors, with a single transfer from the device."""
    numbers: list[float] = torch.stack([v.detach() for v in values.values()]).tolist()
    return dict(zip(values, numbers, strict=True))
