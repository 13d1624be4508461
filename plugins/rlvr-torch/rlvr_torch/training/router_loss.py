"""The load-balancing loss of a mixture of experts: its router is to use all experts alike.

E * sum over experts e of f_e * P_e, with f_e the mean number of times that a token of a layer
chooses expert e among its k, P_e the mean probability that the router gives it, both over all
tokens and layers, and E experts. It is transformers' `load_balancing_loss_func`, which TRL adds to
its losses too; Fedus et al. 2021, Switch Transformers (arXiv:2101.03961), equations 4 to 6.

Tokens are counted as if each datum had been read alone: a prompt that a micro-batch reads once
counts for each of its completions. A datum's last token is predicted and not read.

Shapes: N tokens of a packed row, E experts, L layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from rlvr import ConfigError, Datum
from rlvr_torch.models.hf.net import ROUTED, HFNet
from rlvr_torch.models.hf.vision import HFVisionNet
from rlvr_torch.models.interface import Net
from rlvr_torch.training.packing.prefix_packing import SupervisedSpan, reads


@frozen
class RouterLoss:
    """
    The loss of one optimiser update, a share from each micro-batch.

    A micro-batch has its own f and P, as with TRL; their losses are averaged by tokens.
    """

    coefficient: float  # the loss is multiplied by it
    top_k: int  # experts that a token is sent to
    tokens: int  # that the update's data hold

    @classmethod
    def of(cls, net: Net, data: Sequence[Datum], coefficient: float) -> RouterLoss | None:
        """For the data of an update; None where the coefficient is 0."""
        if not coefficient:
            return None
        return cls(
            coefficient, _top_k(net), sum(max(SupervisedSpan.of(d).end - 1, 0) for d in data)
        )

    @contextmanager
    def listening(self) -> Iterator[list[Tensor]]:
        """Router logits (N, E) of the `hidden` that is called inside, layer by layer."""
        found: list[Tensor] = []
        before = ROUTED.set(found)
        try:
            yield found
        finally:
            ROUTED.reset(before)

    def share(self, routed: Sequence[Tensor], data: Sequence[Datum]) -> Tensor:
        """The loss of a micro-batch times its share of the update's tokens; a scalar."""
        counts = torch.from_numpy(reads(data)).to(routed[0].device)  # (N,)
        chosen = probable = torch.zeros(routed[0].shape[-1], device=routed[0].device)  # (E,)
        for logits in routed:
            probabilities = logits.float().softmax(dim=-1)
            best = probabilities.topk(self.top_k, dim=-1).indices
            times = torch.zeros_like(probabilities).scatter_(1, best, 1.0)
            chosen = chosen + counts @ times
            probable = probable + counts @ probabilities
        rows = len(routed) * counts.sum()
        balance = len(chosen) * ((chosen / rows).detach() * probable / rows).sum()
        return balance * (counts.sum() / self.tokens)


def _top_k(net: Net) -> int:
    found = 0
    if isinstance(net, HFNet) and not isinstance(net, HFVisionNet):
        config: Any = net.model.config.get_text_config()
        records = "router_logits" in (getattr(net.decoder, "_can_record_outputs", None) or {})
        found = int(getattr(config, "num_experts_per_tok", 0) or 0) if records else 0
    if not found:
        raise ConfigError(
            "torch.router_coef was asked for.",
            "found: the model has no router of experts whose choices transformers tells",
            "set torch.router_coef=0",
        )
    return found
