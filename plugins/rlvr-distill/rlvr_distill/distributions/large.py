"""Room for large tensors on a processor, in large pages where the system has them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

_LARGE = 1 << 22
"""Bytes from which on NumPy asks the system for pages of 2 MiB (Linux)."""


def zeros(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """
    Zeros; what is never written to costs neither time nor memory.

    NumPy allocates them, because torch does not ask for large pages: filling a gradient of the size
    of the logits then spends a third of its time on faults of small ones.
    """
    size = math.prod(shape) * dtype.itemsize
    if device.type != "cpu" or size < _LARGE:
        return torch.zeros(shape, dtype=dtype, device=device)
    return torch.from_numpy(np.zeros(size, np.uint8)).view(dtype).view(shape)
