"""The algorithms as data: parts that go together, and values that work, each with its source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlvr import AlgorithmSpec

_SAMPLING: Mapping[str, Any] = {"sampler.group_size": 8, "sampler.temperature": 1.0}
_TRAINING: Mapping[str, Any] = {
    "train.aggregation": "token",
    "train.lr": 1e-6,
    "train.grad_clip": 1.0,
}
_POLICY: Mapping[str, Any] = {**_SAMPLING, **_TRAINING}

ALGORITHMS: tuple[AlgorithmSpec, ...] = (
    AlgorithmSpec(
        name="grpo",
        sampler="group",
        advantage="group",
        loss="grpo",
        summary="group relative policy optimisation (arXiv:2402.03300)",
        values={
            **_POLICY,
            "advantage.normalise_std": True,
            "grpo.clip_low": 0.2,
            "grpo.clip_high": 0.28,
            "grpo.kl_coef": 0.0,
        },
    ),
    AlgorithmSpec(
        name="dr-grpo",
        sampler="group",
        advantage="group",
        loss="grpo",
        summary="GRPO without its two biases: no deviation, no own length (arXiv:2503.20783)",
        values={
            **_POLICY,
            "train.aggregation": "fixed",
            "advantage.normalise_std": False,
            "grpo.clip_low": 0.2,
            "grpo.clip_high": 0.2,
            "grpo.kl_coef": 0.0,
        },
    ),
    AlgorithmSpec(
        name="dapo",
        sampler="group",
        advantage="group",
        loss="grpo",
        summary="GRPO with clip-higher, refilled groups, soft length limit (arXiv:2503.14476)",
        values={
            **_POLICY,
            "sampler.group_size": 16,
            "advantage.normalise_std": True,
            "advantage.drop_equal": True,
            "advantage.refills": 3,
            "advantage.overlong_buffer": 0.2,
            "advantage.overlong_penalty": 1.0,
            "grpo.clip_low": 0.2,
            "grpo.clip_high": 0.28,
            "grpo.kl_coef": 0.0,
        },
    ),
    AlgorithmSpec(
        name="gspo",
        sampler="group",
        advantage="group",
        loss="gspo",
        summary="group sequence policy optimisation (arXiv:2507.18071)",
        values={
            **_POLICY,
            "train.aggregation": "sequence",
            "train.minibatches": 4,
            "advantage.normalise_std": True,
            "gspo.clip_low": 3e-4,
            "gspo.clip_high": 4e-4,
            "gspo.kl_coef": 0.0,
        },
    ),
    AlgorithmSpec(
        name="cispo",
        sampler="group",
        advantage="group",
        loss="cispo",
        summary="clipped importance weights, every token learns (arXiv:2506.13585)",
        values={
            **_POLICY,
            "advantage.normalise_std": True,
            "cispo.clip_low": 1.0,
            "cispo.clip_high": 4.0,
            "cispo.kl_coef": 0.0,
        },
    ),
    AlgorithmSpec(
        name="rloo",
        sampler="group",
        advantage="rloo",
        loss="reinforce",
        summary="REINFORCE, leave-one-out baseline (arXiv:2402.14740)",
        values={
            **_POLICY,
            "sampler.group_size": 4,
            "train.aggregation": "fixed",
            "advantage.kl_coef": 0.0,
            "reinforce.kl_coef": 0.0,
        },
    ),
    AlgorithmSpec(
        name="reinforce++",
        sampler="group",
        advantage="global",
        loss="grpo",
        summary="REINFORCE normalised over the batch, PPO's clip (arXiv:2501.03262)",
        values={
            **_POLICY,
            "sampler.group_size": 1,
            "train.problems": 64,
            "advantage.whiten": True,
            "advantage.discount": 1.0,
            "advantage.kl_coef": 0.001,
            "grpo.clip_low": 0.2,
            "grpo.clip_high": 0.2,
            "grpo.kl_coef": 0.0,
        },
    ),
    AlgorithmSpec(
        name="ppo",
        sampler="group",
        advantage="gae",
        loss="ppo",
        summary="proximal policy optimisation with a critic (arXiv:1707.06347)",
        values={
            **_POLICY,
            "sampler.group_size": 1,
            "train.problems": 64,
            "train.minibatches": 4,
            "advantage.whiten": True,
            "advantage.discount": 1.0,
            "advantage.gae_lambda": 0.95,
            "advantage.kl_coef": 0.0,
            "ppo.clip_low": 0.2,
            "ppo.clip_high": 0.2,
            "ppo.value_coef": 0.5,
            "ppo.value_clip": 0.2,
            "ppo.kl_coef": 0.0,
        },
    ),
    AlgorithmSpec(
        name="best-of-n",
        sampler="group",
        advantage="best",
        loss="sft",
        summary="rejection sampling: imitate the best right answer of n (arXiv:2304.06767)",
        values={**_POLICY, "train.lr": 1e-5, "advantage.threshold": 1.0},
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
