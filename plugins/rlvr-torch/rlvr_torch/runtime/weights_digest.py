"""Which weights they are: their version, and their digest, the sha256 over all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from rlvr_torch.models.interface import Net


class WeightsDigest:
    """
    The digest of a net's weights as they are when it is called, hexadecimal.

    Weights that are not trained (under LoRA, nearly all) are read once, when this is made.
    """

    def __init__(self, net: Net) -> None:
        self._net = net
        frozen = {n: v for n, v in net.module.named_parameters() if not v.requires_grad}
        self._frozen = _hash(frozen) if frozen else ""

    def __call__(self) -> str:
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


class Versions:
    """
    Counts the updates of a net, and computes a version's digest when somebody asks, once.

    Attributes:
        number: Updates that the weights have seen.
        start_digest: Of the weights as they were when this was made.
    """

    def __init__(self, net: Net) -> None:
        self.number = 0
        self._read = WeightsDigest(net)
        self.start_digest = self._read()
        self._digests = {0: self.start_digest}
        self._is_live = False

    def digest(self) -> str:
        """The digest of the weights as they are."""
        number = self.number
        found = self._digests.get(number)
        if found is None:
            found = self._read()
            self._digests = {number: found}
        return found

    def go_live(self) -> None:
        """From now on `digest` may be called at any time: each update ends with its own."""
        self._is_live = True
        self.digest()

    def become(self, number: int, *, is_restored: bool = False) -> None:
        """The weights are those of that version, by an update or restored from a checkpoint."""
        known = {} if is_restored else self._digests
        if self._is_live:  # the new digest is there before its number is
            self._digests = known = {**known, number: self._read()}
        self.number = number
        self._digests = {n: digest for n, digest in known.items() if n == number}
