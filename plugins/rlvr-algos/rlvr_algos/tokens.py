"""The policy's own tokens of a batch as flat tensors: what every token loss starts from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from attrs import frozen
from torch import Tensor

from rlvr import BackendError, Datum, Needs

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
    places: Tensor  # int64, which datum a token belongs to
    annotations: Mapping[str, Tensor]  # other models' logprobs ("reference"), say
    outputs: Mapping[str, Tensor]  # further outputs of the forward pass; they carry gradients

    @classmethod
    def gather(
        cls,
        data: Sequence[Datum],
        logprobs: Sequence[Tensor],
        outputs: Mapping[str, Sequence[Tensor]] | None = None,
        needs: Needs | None = None,
    ) -> PolicyTokens:
        """
        Flatten D data, their logprobs (one tensor a datum, shape (T,)), and what `needs` names.

        Raises:
            BackendError: The logprobs do not have the shapes of the data, a datum lacks an
                annotation, or the backend did not give an output.
        """
        needs, given = needs or Needs(), outputs or {}
        lengths, found = [len(d.tokens) for d in data], [len(x) for x in logprobs]
        if lengths != found:
            raise BackendError(
                f"A loss needs one logprob a token, for data of lengths {lengths}.",
                f"The backend gave lengths {found}.",
                "This is a bug of the backend: run BackendContract on it.",
            )
        flat = _flat(logprobs)  # (sum of T,)
        mask = np.concatenate([d.mask for d in data])  # (sum of T,)
        index = torch.from_numpy(np.flatnonzero(mask)).to(flat.device)
        own = flat.index_select(0, index).clamp(min=FLOOR)  # (N,) nats
        places = np.repeat(np.arange(len(data)), lengths)[mask]

        def column(arrays: Sequence[np.ndarray]) -> Tensor:
            return torch.from_numpy(np.concatenate(arrays)[mask]).to(own)

        for name in sorted(needs.annotations):
            if missing := [d.problem_id for d in data if name not in d.annotations]:
                raise BackendError(
                    f"The loss needs the annotation {name!r} of every datum.",
                    f"{len(missing)} of {len(data)} data lack them, first {missing[0]!r}.",
                    f"Annotate the data with {name!r}: it is in the loss's `needs`.",
                )
        if lacking := sorted(needs.outputs - set(given)):
            raise BackendError(
                f"The loss needs {lacking[0]!r} from the forward pass.",
                f"The backend gave: {', '.join(given) or 'logprobs only'}.",
                "Use a backend that gives it, or another algorithm: see the loss's `needs`.",
            )
        return cls(
            logprobs=own,
            sampled=column([d.logprobs for d in data]),
            advantages=column([d.advantages for d in data]),
            weights=column([d.weights for d in data]),
            places=torch.from_numpy(places).to(flat.device),
            annotations={
                name: column([np.asarray(d.annotations[name]) for d in data])
                for name in needs.annotations
            },
            outputs={
                name: _flat(given[name]).index_select(0, index).to(own) for name in needs.outputs
            },
        )

    def per_datum(self, values: Tensor) -> Tensor:
        """Sum of (N,) values over the tokens of each datum, given back to each of them: (N,)."""
        # N rows of which D are used: compiled code has one length, not two.
        sums = torch.zeros_like(values).index_add(0, self.places, values)  # (N,)
        return sums.index_select(0, self.places)

    def weighted(self, values: Tensor) -> Tensor:
        """Sum of (N,) values times the weights: additive over micro-batches, scalar."""
        return (self.weights * values).sum()


def _flat(rows: Sequence[Tensor]) -> Tensor:
    """Rows as one tensor, in float32 at least."""
    flat = torch.cat([row.reshape(-1) for row in rows])
    return flat.float() if flat.dtype in (torch.float16, torch.bfloat16) else flat


def as_metrics(values: dict[str, Tensor]) -> dict[str, float]:
    """Plain numbers of scalar tensors, with a single transfer from the device."""
    numbers: list[float] = torch.stack([v.detach() for v in values.values()]).tolist()
    return dict(zip(values, numbers, strict=True))
