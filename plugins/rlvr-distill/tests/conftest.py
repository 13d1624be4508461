"""One thread: the machine is shared, and these tensors are tiny."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
