"""How the next token is drawn: temperature, top-k, top-p, greedy; one random number a token.

Each request has a counter-based generator of its own (NumPy's Philox, keyed by the request's seed)
and the token is the inverse of the cumulative distribution at its next number. So a request draws
the same tokens whatever batch it sits in.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from rlvr.types import GenerateRequest

_OFF = 2.0  # a nucleus mass that keeps everything, rounding included


class Draws:
    """The sampling settings of R rows and their random numbers. `keep` drops rows."""

    def __init__(
        self, requests: Sequence[GenerateRequest], lengths: Sequence[int], device: torch.device
    ) -> None:
        """`lengths` are the most tokens each row may draw."""
        numbers = np.zeros((len(requests), max(lengths, default=0)))
        for row, (request, length) in enumerate(zip(requests, lengths, strict=True)):
            philox = np.random.Philox(key=request.seed & (2**128 - 1))
            numbers[row, :length] = np.random.Generator(philox).random(length)
        params = [request.params for request in requests]
        self._numbers = torch.from_numpy(numbers).to(device, torch.float32)  # (R, tokens)
        greedy = [p.temperature == 0 for p in params]
        heat = [p.temperature or 1.0 for p in params]
        cut = [p.is_truncated and p.temperature > 0 for p in params]
        self._greedy = torch.tensor(greedy, device=device)
        self._heat = torch.tensor(heat, dtype=torch.float32, device=device)[:, None]
        self._cut = torch.tensor(cut, device=device)
        self._top_k = torch.tensor([p.top_k or 2**31 for p in params], device=device)
        self._top_p = torch.tensor(
            [p.top_p if p.top_p < 1 else _OFF for p in params], device=device
        )
        self._summarise()

    def _summarise(self) -> None:
        self._any_greedy = bool(self._greedy.any())
        self._cut_rows = self._cut.nonzero()[:, 0]
        self._is_plain = bool((self._heat == 1.0).all())

    def keep(self, rows: Tensor) -> None:
        """Drop all rows but these."""
        for name in ("_numbers", "_greedy", "_heat", "_cut", "_top_k", "_top_p"):
            setattr(self, name, getattr(self, name)[rows])
        self._summarise()

    def draw(self, logits: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """
        Token `step` of each row and its logprob.

        The logprob is the one under the whole distribution at the row's temperature, also where
        top-k or top-p restricted the choice: the trainer, which never truncates, computes the same
        number. Greedy rows (temperature 0) report it at temperature 1.

        Args:
            logits: Shape (R, V), float32.
            step: How many tokens the rows have drawn before.

        Returns:
            Tokens (R,) int64 and logprobs (R,) float32, nats.
        """
        scaled = logits if self._is_plain else logits / self._heat
        logprobs = scaled.log_softmax(dim=1)  # (R, V)
        probs = logprobs.exp()
        numbers = self._numbers[:, step : step + 1]  # (R, 1)
        tokens = _invert(probs, numbers)
        if self._any_greedy:
            tokens = torch.where(self._greedy[:, None], logits.argmax(dim=1, keepdim=True), tokens)
        if len(self._cut_rows):
            rows = self._cut_rows
            tokens[rows] = _draw_cut(
                probs[rows], numbers[rows], self._top_k[rows], self._top_p[rows]
            )
        return tokens[:, 0], logprobs.gather(1, tokens)[:, 0]


def _invert(probs: Tensor, numbers: Tensor) -> Tensor:
    """The first index whose cumulative probability exceeds `numbers` (R, 1) of the whole mass."""
    cumulative = probs.cumsum(dim=1)
    total = cumulative[:, -1:]
    target = torch.minimum(numbers * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, target, right=True).clamp_(max=probs.shape[1] - 1)


def _draw_cut(probs: Tensor, numbers: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    ordered, index = probs.sort(dim=1, descending=True, stable=True)
    before = ordered.cumsum(dim=1) - ordered
    rank = torch.arange(probs.shape[1], device=probs.device)
    is_kept = (before < top_p[:, None]) & (rank < top_k[:, None])
    is_kept[:, 0] = True
    return index.gather(1, _invert(ordered * is_kept, numbers))
