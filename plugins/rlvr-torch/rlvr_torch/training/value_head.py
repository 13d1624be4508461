"""A value head: how much reward is still to come, told from what the model has read so far."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Critic(nn.Module):
    """
    One linear map of the final hidden state before a token, zero at first.

    It shares the policy's trunk, so its gradient flows there too. Always float32.
    """

    def __init__(self, width: int, device: torch.device) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width, device=device))
        self.bias = nn.Parameter(torch.zeros((), device=device))

    def forward(self, hidden: Tensor) -> Tensor:
        """Estimates (N,), unit: reward, from hidden states (N, C)."""
        return hidden.float() @ self.weight + self.bias
