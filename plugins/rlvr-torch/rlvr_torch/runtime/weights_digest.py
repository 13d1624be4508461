"""Names of weights: sha256 over what they are."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from rlvr_torch.models.interface import Net


class WeightsDigest:
    """
    The digest of a net's weights as they are when it is called.

    Weights that are not trained (under LoRA, nearly all) are read once, when this is made.
    """

    def __init__(self, net: Net) -> None:
        self._net = net
        frozen = {n: v for n, v in net.module.named_parameters() if not v.requires_grad}
        self._frozen = _hash(frozen) if frozen else ""

    def __call__(self) -> str:
        """Hexadecimal, over names, shapes and bytes of all weights, in order."""
        named = self._net.module.named_parameters()
        return _hash({n: v for n, v in named if v.requires_grad}, self._frozen)


def weights_digest(model: nn.Module) -> str:
    """sha256 over names, shapes and bytes of all weights, in order."""
    return _hash(dict(model.named_parameters()))


def _hash(named: Mapping[str, Tensor], begin: str = "") -> str:
    digest = hashlib.sha256(begin.encode())
    for name, value in named.items():
        digest.update(f"{name}{tuple(value.shape)}".encode())
        plain = value.detach().cpu().contiguous().flatten()
        digest.update(plain.view(torch.uint8).numpy().data)
    return digest.hexdigest()
