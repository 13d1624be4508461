"""AdamW of a net and its critic, the learning rate over time, and the norm of the gradient."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from attrs import define, evolve, field, fields, frozen
from torch import nn

from rlvr import learning_rate
from rlvr_torch.config import TorchConfig
from rlvr_torch.models.interface import Net
from rlvr_torch.training.adamw import make_adamw
from rlvr_torch.training.output_head import Critic

_CRITIC_LR = 10.0
"""A critic's learning rate by default, as a multiple of `train.lr`."""


@frozen(kw_only=True)
class OptimSettings:
    """Options of the optimiser: the run's `train.*`, and `torch.weight_decay`."""

    lr: float = 1e-5
    warmup: int = 0
    decay: str = "constant"
    weight_decay: float = 0.0
    grad_clip: float = 1.0
    passes: int = 1
    minibatches: int = 1

    @classmethod
    def of(cls, train: Any, weight_decay: float = 0.0) -> OptimSettings:
        """From the `TrainOptions` of a `BuildContext`; the defaults where it has none."""
        names = [one.name for one in fields(cls) if one.name != "weight_decay"]
        given = {} if train is None else {name: getattr(train, name) for name in names}
        return cls(weight_decay=weight_decay, **given)


def build_adamw(
    model: nn.Module,
    settings: OptimSettings,
    betas: tuple[float, float],
    kind: str = "adamw",
    make: Callable[..., torch.optim.Optimizer] = make_adamw,
) -> torch.optim.Optimizer:
    """AdamW over what is trained; weight decay is for matrices, not norms, biases, embeddings."""
    embeddings = {id(part.weight) for part in model.modules() if isinstance(part, nn.Embedding)}
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for value in model.parameters():
        if value.requires_grad:
            is_matrix = value.ndim >= 2 and id(value) not in embeddings
            (decayed if is_matrix else plain).append(value)
    groups = [
        {"params": decayed, "weight_decay": settings.weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
    return make(kind, groups, lr=settings.lr, betas=betas)


def clip_gradients(weights: Iterable[nn.Parameter], limit: float) -> float:
    """Scale the gradients to a norm of at most `limit` (0: no limit); gives the norm before."""
    grads: Sequence[torch.Tensor] = [v.grad for v in weights if v.grad is not None]
    norm = float(nn.utils.get_total_norm(grads))
    if limit and math.isfinite(norm) and norm > limit:
        for grad in grads:
            grad.mul_(limit / (norm + 1e-6))
    return norm


@define(eq=False)
class Updater:
    """Changes weights by their gradients."""

    _net: Net
    _config: TorchConfig
    _settings: OptimSettings
    _updates: int  # how many the run takes, for the schedule; 0: unknown
    _make: Callable[..., torch.optim.Optimizer] = make_adamw  # a primitive of the hardware
    critic: Critic | None = None  # the value head, made by `have_critic`
    _optimizer: torch.optim.Optimizer = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._optimizer = self._new_optimizer()

    def _new_optimizer(self) -> torch.optim.Optimizer:
        betas = (self._config.beta1, self._config.beta2)
        kind = self._config.optimizer
        optimizer = build_adamw(self._net.module, self._settings, betas, kind, self._make)
        if self.critic is not None:
            self._add_critic(optimizer, self.critic)
        return optimizer

    def _add_critic(self, optimizer: torch.optim.Optimizer, critic: Critic) -> None:
        """Train a value head too; its rate follows the same schedule, from a peak of its own."""
        peak = self._config.critic_lr or _CRITIC_LR * self._settings.lr
        weights = list(critic.parameters())
        optimizer.add_param_group({"params": weights, "weight_decay": 0.0, "peak_lr": peak})

    def have_critic(self) -> Critic:
        """The value head; made, with its place in the optimiser, when first asked for."""
        if self.critic is None:
            self.critic = Critic(self._net.head.shape[1], self._net.head.device)
            self._add_critic(self._optimizer, self.critic)
        return self.critic

    def clip(self, critic: Critic | None) -> dict[str, float]:
        """Clip model and critic by their own norms: neither shrinks the other's gradient."""
        limit = self._settings.grad_clip
        own = [value for value in self._net.module.parameters() if value.requires_grad]
        norms = {"grad/norm": clip_gradients(own, limit)}
        if critic is not None:
            norms["grad/critic_norm"] = clip_gradients(critic.parameters(), limit)
        return norms

    def set_rates(self, update: int) -> float:
        """Give all groups the rate of update number `update`; the model's is returned."""
        settings = self._settings
        for group in self._optimizer.param_groups:
            own = evolve(settings, lr=group.get("peak_lr", settings.lr))
            group["lr"] = learning_rate(update, self._updates, own)
        return learning_rate(update, self._updates, settings)

    def apply(self) -> None:
        self._optimizer.step()

    def forget_gradients(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)

    def state(self) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """The state of the optimiser, and of the critic if there is one."""
        critic = None if self.critic is None else self.critic.state_dict()
        return self._optimizer.state_dict(), critic

    def restore(self, optimizer: dict[str, Any], critic: dict[str, Any] | None) -> None:
        """Restore what `state` gave; a critic that was made since is dropped."""
        self.critic = None
        if critic is not None:
            self.critic = Critic(self._net.head.shape[1], self._net.head.device)
            self.critic.load_state_dict(critic)
        self._optimizer = self._new_optimizer()
        self._optimizer.load_state_dict(optimizer)
