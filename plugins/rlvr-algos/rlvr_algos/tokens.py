"""The policy's own tokens of a batch as flat tensors: what every token loss starts from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from attrs import frozen
from torch import Tensor

from rlvr import BackendError, Datum

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
    _data: Sequence[Datum]
    _mask: np.ndarray
    _index: Tensor

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

        return cls(
            logprobs=own,
            sampled=column([d.logprobs for d in data]),
            advantages=column([d.advantages for d in data]),
            weights=column([d.weights for d in data]),
            places=torch.from_numpy(places).to(flat.device),
            data=data,
            mask=mask,
            index=index,
        )

    def annotation(self, name: str) -> Tensor:
        """
        Numbers (N,) of the same tokens by name: another model's logprobs ("reference"), say.

        Raises:
            BackendError: A datum lacks the annotation.
        """
        if missing := [d.problem_id for d in self._data if name not in d.annotations]:
            raise BackendError(
                f"The loss needs the annotation {name!r} of every datum.",
                f"{len(missing)} of {len(self._data)} data lack them, first {missing[0]!r}.",
                f"Annotate the data with {name!r}: it is in the loss's `needs`.",
            )
        values = np.concatenate([np.asarray(d.annotations[name]) for d in self._data])
        return torch.from_numpy(values[self._mask]).to(self.logprobs)

    def output(self, outputs: Mapping[str, Sequence[Tensor]], name: str) -> Tensor:
        """
        A further output (N,) of the forward pass at the same tokens, with its gradient.

        Raises:
            BackendError: The backend did not give it.
        """
        if name not in outputs:
            raise BackendError(
                f"The loss needs {name!r} from the forward pass.",
                f"The backend gave: {', '.join(outputs) or 'logprobs only'}.",
                "Use a backend that gives it, or another algorithm: see the loss's `needs`.",
            )
        return _flat(outputs[name]).index_select(0, self._index).to(self.logprobs)

    def per_datum(self, values: Tensor) -> Tensor:
        """Sum of (N,) values over the tokens of each datum, given back to each of them: (N,)."""
        sums = values.new_zeros(len(self._data)).index_add(0, self.places, values)  # (D,)
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
