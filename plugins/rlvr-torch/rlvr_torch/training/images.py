"""Final hidden states for training where some data have pictures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from rlvr import BackendError, Datum, ImageProcessor
from rlvr_torch.models.hf.vision import HFVisionNet
from rlvr_torch.models.interface import Net
from rlvr_torch.training.prefix_packing import Extent, supervised_hidden


def image_processor_of(net: Net) -> ImageProcessor | None:
    """How a net takes pictures; None: it reads text alone."""
    return net.image_processor if isinstance(net, HFVisionNet) else None


def seen_hidden(net: Net, data: Sequence[Datum]) -> Tensor:
    """
    As `supervised_hidden`: text in one row, each datum with pictures by itself.

    Raises:
        ConfigError: A picture cannot be read.
        BackendError: The model sees no pictures, or the tokens are not those of the pictures.
    """
    text = [i for i, datum in enumerate(data) if not datum.pictures]
    found: dict[int, Tensor] = {}
    if text:
        hidden = supervised_hidden(net, [data[i] for i in text])  # (N, C)
        counts = [int(data[i].mask.sum()) for i in text]
        found |= zip(text, hidden.split(counts), strict=True)
    for i, datum in enumerate(data):
        if datum.pictures:
            found[i] = _seen(net, datum)
    return torch.cat([found[i] for i in range(len(data))])


def _seen(net: Net, datum: Datum) -> Tensor:
    """Of one datum, (n, C)."""
    if not isinstance(net, HFVisionNet):
        raise BackendError(
            f"problem {datum.problem_id!r} has {len(datum.pictures)} pictures.",
            "found: the model reads text alone",
            "use a vision-language model (hf:PATH)",
        )
    device = net.head.device
    tokens = datum.tokens[: Extent.of(datum).end - 1].astype(np.int64)  # the last is not read
    hidden = net.seen(torch.from_numpy(tokens).to(device)[None], datum.pictures)
    return hidden[0].index_select(0, torch.from_numpy(np.flatnonzero(datum.mask) - 1).to(device))
