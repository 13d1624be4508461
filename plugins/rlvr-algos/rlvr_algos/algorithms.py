"""The algorithms as data: parts that go together, and values that work, each with its source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlvr import AlgorithmSpec

_TRAINING: Mapping[str, Any] = {
    "train.aggregation": "token",
    "train.lr": 1e-6,
    "train.grad_clip": 1.0,
}
_POLICY: Mapping[str, Any] = {"sampler.group_size": 8, "sampler.temperature": 1.0, **_TRAINING}


def _clip(loss: str, low: float, high: float) -> dict[str, Any]:
    return {f"{loss}.clip_low": low, f"{loss}.clip_high": high, f"{loss}.kl_coef": 0.0}


def _algorithm(
    name: str, advantage: str, loss: str, summary: str, values: Mapping[str, Any]
) -> AlgorithmSpec:
    return AlgorithmSpec(
        name=name,
        sampler="group",
        advantage=advantage,
        loss=loss,
        summary=summary,
        values={**_POLICY, **values},
    )


ALGORITHMS: tuple[AlgorithmSpec, ...] = (
    _algorithm(
        "grpo",
        "group",
        "grpo",
        "group relative policy optimisation (arXiv:2402.03300)",
        {"advantage.normalise_std": True, **_clip("grpo", 0.2, 0.28)},
    ),
    _algorithm(
        "dr-grpo",
        "group",
        "grpo",
        "GRPO without its two biases: no deviation, no own length (arXiv:2503.20783)",
        {
            "train.aggregation": "fixed",
            "advantage.normalise_std": False,
            **_clip("grpo", 0.2, 0.2),
        },
    ),
    _algorithm(
        "dapo",
        "group",
        "grpo",
        "GRPO with clip-higher, refilled groups, soft length limit (arXiv:2503.14476)",
        {
            "sampler.group_size": 16,
            "advantage.normalise_std": True,
            "advantage.drop_equal": True,
            "advantage.refills": 3,
            "advantage.overlong_buffer": 0.2,
            "advantage.overlong_penalty": 1.0,
            **_clip("grpo", 0.2, 0.28),
        },
    ),
    _algorithm(
        "gspo",
        "group",
        "gspo",
        "group sequence policy optimisation (arXiv:2507.18071)",
        {
            "train.aggregation": "sequence",
            "train.minibatches": 4,
            "advantage.normalise_std": True,
            **_clip("gspo", 3e-4, 4e-4),
        },
    ),
    _algorithm(
        "cispo",
        "group",
        "cispo",
        "clipped importance weights, every token learns (arXiv:2506.13585)",
        {"advantage.normalise_std": True, **_clip("cispo", 1.0, 4.0)},
    ),
    _algorithm(
        "rloo",
        "rloo",
        "reinforce",
        "REINFORCE, leave-one-out baseline (arXiv:2402.14740)",
        {
            "sampler.group_size": 4,
            "train.aggregation": "fixed",
            "advantage.kl_coef": 0.0,
            "reinforce.kl_coef": 0.0,
        },
    ),
    _algorithm(
        "reinforce++",
        "global",
        "grpo",
        "REINFORCE normalised over the batch, PPO's clip (arXiv:2501.03262)",
        {
            "sampler.group_size": 1,
            "train.problems": 64,
            "advantage.whiten": True,
            "advantage.discount": 1.0,
            "advantage.kl_coef": 0.001,
            **_clip("grpo", 0.2, 0.2),
        },
    ),
    _algorithm(
        "ppo",
        "gae",
        "ppo",
        "proximal policy optimisation with a critic (arXiv:1707.06347)",
        {
            "sampler.group_size": 1,
            "train.problems": 64,
            "train.minibatches": 4,
            "advantage.whiten": True,
            "advantage.discount": 1.0,
            "advantage.gae_lambda": 0.95,
            "advantage.kl_coef": 0.0,
            "ppo.value_coef": 0.5,
            "ppo.value_clip": 0.2,
            **_clip("ppo", 0.2, 0.2),
        },
    ),
    _algorithm(
        "best-of-n",
        "best",
        "sft",
        "rejection sampling: imitate the best right answer of n (arXiv:2304.06767)",
        {"train.lr": 1e-5, "advantage.threshold": 1.0},
    ),
    AlgorithmSpec(
        name="sft",
        sampler="reference",
        advantage="one",
        loss="sft",
        summary="supervised fine-tuning on the task's reference answers",
        values={**_TRAINING, "sampler.group_size": 1, "train.lr": 1e-5},
    ),
)
