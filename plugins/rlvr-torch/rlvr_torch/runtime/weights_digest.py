"""Identity of weights: their version, and their digest, computed on their device."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rlvr_torch.models.interface import Net

_BLOCK = 1 << 13
"""Words of 4 bytes that give one sum."""
_CHUNK = {"cuda": 1 << 24}
"""Words that are multiplied at one time, by device; a CPU's cache holds the products of 2^18."""


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
    """The digest of all weights, in order: of names, shapes and bytes."""
    return _hash(dict(model.named_parameters()))


def _hash(named: Mapping[str, Tensor], begin: str = "") -> str:
    """
    sha256 over names and shapes, and over a sum of each block of weights.

    A sum is that of a block's words (4 bytes, as signed integers) times fixed odd multipliers,
    modulo 2^64: integer arithmetic, so all devices give the same, and only the sums, 8 bytes for 32
    KiB, leave the device. If one word of a block changes, its sum always does: an odd number times
    a change that is not 0 modulo 2^64 is not 0. Changes of several words of a block that do not
    depend on the multipliers cancel with a chance of 2^-32 at most (2^-64 where one of them is
    odd), and an update would have to cancel in all blocks. It is a fingerprint, no protection:
    weights that have a given digest can be constructed.

    Source: multilinear hashing, Lemire and Kaser 2014 (arXiv:1202.4961).
    """
    digest = hashlib.sha256(begin.encode())
    sums: list[Tensor] = []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # hundreds of short operations: cores would wait for each other
    try:
        for name, value in named.items():
            digest.update(f"{name}{tuple(value.shape)}".encode())
            sums += _sums(_words(value.detach()))
    finally:
        torch.set_num_threads(threads)
    if sums:
        digest.update(torch.cat(sums).cpu().numpy().data)
    return digest.hexdigest()


def _words(value: Tensor) -> Tensor:
    """The bytes of a tensor as int32 (n,), zeros after the last."""
    flat = value.contiguous().flatten().view(torch.uint8)
    lacking = -len(flat) % 4
    if lacking or flat.storage_offset() % 4:
        flat = F.pad(flat, (0, lacking)) if lacking else flat.clone()
    return flat.view(torch.int32)


def _sums(words: Tensor) -> Iterator[Tensor]:
    """The sums of the blocks, int64, some at a time; the last block may be short."""
    odd = _multipliers(words.device)
    whole = len(words) // _BLOCK * _BLOCK
    rows = words[:whole].view(-1, _BLOCK)
    count = _CHUNK.get(words.device.type, 1 << 18) // _BLOCK
    room = torch.empty(min(count, len(rows)), _BLOCK, dtype=torch.int64, device=words.device)
    for part in rows.split(count) if len(rows) else ():
        yield torch.mul(part, odd, out=room[: len(part)]).sum(1)
    if whole < len(words):
        rest = words[whole:]
        yield (rest * odd[: len(rest)]).sum(0, keepdim=True)


@cache
def _multipliers(device: torch.device) -> Tensor:
    """Odd int64 (`_BLOCK`,): splitmix64 of 1, 2, ... (Steele et al. 2014), its last bit set."""
    found = np.arange(1, _BLOCK + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        found = (found ^ (found >> np.uint64(shift))) * np.uint64(factor)
    found = (found ^ (found >> np.uint64(31))) | np.uint64(1)
    return torch.from_numpy(found.view(np.int64)).to(device)


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
        """Compute the digest at the end of each update, so that `digest` always works."""
        self._is_live = True
        self.digest()

    def become(self, number: int, *, is_restored: bool = False) -> None:
        """The weights are those of that version, by an update or restored from a checkpoint."""
        known = {} if is_restored else self._digests
        if self._is_live:  # the new digest is there before its number is
            self._digests = known = {**known, number: self._read()}
        self.number = number
        self._digests = {n: digest for n, digest in known.items() if n == number}
