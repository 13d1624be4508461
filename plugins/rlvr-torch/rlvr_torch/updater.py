"""The optimiser of a net and, once a loss asked for one, of its critic."""

from __future__ import annotations

from typing import Any

import torch

from rlvr_torch.config import TorchConfig
from rlvr_torch.critic import Critic
from rlvr_torch.net import Net
from rlvr_torch.optim import OptimSettings, add_critic, build_adamw, clip_gradients, set_rates

_CRITIC_LR = 10.0
"""A critic's learning rate by default, as a multiple of `train.lr`."""


class Updater:
    """
    Changes weights by their gradients.

    Args:
        net: Whose trained weights they are.
        config: The `torch.*` options of AdamW and the critic.
        settings: The `train.*` options.
        updates: How many the run takes, for the schedule; 0: unknown.

    Attributes:
        critic: The value head, None until `have_critic`.
    """

    def __init__(
        self, net: Net, config: TorchConfig, settings: OptimSettings, updates: int
    ) -> None:
        self._net, self._config, self._settings, self._updates = net, config, settings, updates
        self.critic: Critic | None = None
        self._optimizer = self._new_optimizer()

    def _new_optimizer(self) -> torch.optim.AdamW:
        betas = (self._config.beta1, self._config.beta2)
        optimizer = build_adamw(self._net.module, self._settings, betas)
        if self.critic is not None:
            add_critic(optimizer, self.critic, self._critic_lr)
        return optimizer

    @property
    def _critic_lr(self) -> float:
        return self._config.critic_lr or _CRITIC_LR * self._settings.lr

    def have_critic(self) -> Critic:
        """The value head; made, with its place in the optimiser, when first asked for."""
        if self.critic is None:
            self.critic = Critic(self._net.head.shape[1], self._net.head.device)
            add_critic(self._optimizer, self.critic, self._critic_lr)
        return self.critic

    def clip(self, critic: Critic | None) -> dict[str, float]:
        """Clip model and critic, each by its own norm, so that neither stills the other."""
        limit = self._settings.grad_clip
        own = [value for value in self._net.module.parameters() if value.requires_grad]
        norms = {"grad/norm": clip_gradients(own, limit)}
        if critic is not None:
            norms["grad/critic_norm"] = clip_gradients(critic.parameters(), limit)
        return norms

    def set_rates(self, update: int) -> float:
        """The rates of update number `update`; the model's is returned."""
        return set_rates(self._optimizer, update, self._updates, self._settings)

    def apply(self) -> None:
        """Change the weights."""
        self._optimizer.step()

    def forget_gradients(self) -> None:
        """No weight has a gradient afterwards."""
        self._optimizer.zero_grad(set_to_none=True)

    def state(self) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Of the optimiser, and of the critic where there is one."""
        critic = None if self.critic is None else self.critic.state_dict()
        return self._optimizer.state_dict(), critic

    def restore(self, optimizer: dict[str, Any], critic: dict[str, Any] | None) -> None:
        """What `state` gave; a critic that was made since is gone."""
        self.critic = None
        if critic is not None:
            self.critic = Critic(self._net.head.shape[1], self._net.head.device)
            self.critic.load_state_dict(critic)
        self._optimizer = self._new_optimizer()
        self._optimizer.load_state_dict(optimizer)
