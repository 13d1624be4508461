"""Logprobs of targets under a net, a few positions at a time: full logits exist for those only.

Unlike in our own training, every position of a datum has a target, and the target need not be the
next token; there may be several.

Shapes: N positions of all rows, K targets at each, C width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rlvr import Datum
from rlvr_torch.models.interface import Net, capped
from rlvr_torch.training.logprobs import slices, trunk

_CHUNK = 1024  # positions whose logits exist at one time


def positions_hidden(
    net: Net, rows: Sequence[np.ndarray], dtype: torch.dtype, begins: Sequence[int] | None = None
) -> Tensor:
    """
    The final hidden state at every token of the rows, (N, C): row by row, without padding.

    `begins` leaves out what stands before in each row. What rows have in common up to and with the
    token at which they begin is then computed once.
    """
    data = []
    for tokens, begin in zip(rows, begins or [0] * len(rows), strict=True):
        extended = np.append(tokens, 0)  # the last token of a datum is predicted, not read
        zeros = np.zeros(len(extended), np.float32)
        mask = np.arange(len(extended)) > begin
        data.append(
            Datum(tokens=extended, mask=mask, logprobs=zeros, advantages=zeros, weights=zeros)
        )
    return trunk(net, data, dtype)


def logits_of(net: Net, hidden: Tensor, head: Tensor) -> Tensor:
    """Logits (n, V), float32 whatever the rest is computed in, of hidden states (n, C)."""
    bias = net.head_bias
    logits = F.linear(hidden.float(), head.float(), None if bias is None else bias.float())
    return capped(net, logits)


def target_logprobs(net: Net, hidden: Tensor, targets: Tensor) -> Tensor:
    """
    Logprobs of targets (N, K), float32, nats, with a gradient where autograd is on.

    The backward pass computes each chunk's logits again.
    """
    head = net.head

    def work(hidden: Tensor, head: Tensor, targets: Tensor) -> Tensor:
        logits = logits_of(net, hidden, head)
        return logits.gather(1, targets) - logits.logsumexp(dim=1, keepdim=True)

    parts = []
    for at in slices(len(hidden), _CHUNK):
        if torch.is_grad_enabled():
            part = checkpoint(work, hidden[at], head, targets[at], use_reentrant=False)
        else:
            part = work(hidden[at], head, targets[at])
        parts.append(part)
    return torch.cat(parts)
