"""Reject settings that exclude each other, or warn of them, before anything is sampled."""

from __future__ import annotations

import os

from rlvr.config.core import MOST, TrainOptions
from rlvr.errors import ConfigError
from rlvr.log import get
from rlvr.parts import Advantage, Backend, Loss, Sampler, Task
from rlvr.specs import BackendSpec, SamplerSpec
from rlvr.types import SamplingParams

log = get(__name__)


def check_together(
    *,
    sampler: Sampler,
    params: SamplingParams,
    advantage: Advantage,
    loss: Loss,
    train: TrainOptions,
    max_staleness: int,
) -> None:
    """
    Reject settings that exclude each other; warn of a loss that does not correct stale samples.

    References are off-policy at any time, so `max_staleness` is allowed with them: it changes
    nothing of what is learnt, and their verification then overlaps training.

    Raises:
        ConfigError: Truncated sampling under importance ratios, ratios without a sampler that
            draws from the policy, the reference asked for twice, more minibatches than a step
            can have trajectories, or more rollouts at a time than memory can hold.
    """
    if params.is_truncated and loss.importance_weighted:
        raise ConfigError(
            "top-p or top-k sampling was asked for with an importance-weighted loss.",
            "found: the sampled distribution is then not the policy, and every ratio is biased",
            "set sampler.top_p=1 sampler.top_k=0, or use a loss without ratios (sft)",
        )
    if loss.importance_weighted and not sampler.draws_from_policy:
        raise ConfigError(
            "a sampler that does not draw from the policy was chosen with an "
            "importance-weighted loss.",
            "found: ratios need the logprobs of the policy that sampled, and there are none",
            "use sampler 'group', or algorithm sft",
        )
    if "reference" in advantage.needs.annotations & loss.needs.annotations:
        raise ConfigError(
            "a KL to the reference was asked for twice.",
            "found: one in the loss (kl_coef of the loss) and one in the reward "
            "(advantage.kl_coef)",
            "set one of the two to 0",
        )
    most = train.problems * params.group_size
    if train.minibatches > most:
        raise ConfigError(
            f"{train.minibatches} optimiser steps a pass were asked for (train.minibatches).",
            f"found: a step has at most {most} trajectories (train.problems={train.problems} "
            f"times sampler.group_size={params.group_size})",
            f"set train.minibatches to {most} or less, or raise train.problems",
        )
    if sampler.draws_from_policy and (1 + max_staleness) * most > MOST:
        ahead = f" times {1 + max_staleness} steps (run.max_staleness)" * bool(max_staleness)
        raise ConfigError(
            f"{(1 + max_staleness) * most} rollouts at a time were asked for.",
            f"found: train.problems={train.problems} times sampler.group_size={params.group_size}"
            f"{ahead}, and at most {MOST} are held in memory",
            "set them smaller, and train more steps",
        )
    if max_staleness and sampler.draws_from_policy and not loss.importance_weighted:
        log.warning(
            "stale_samples_uncorrected",
            max_staleness=max_staleness,
            why="the loss has no importance ratio: samples of older weights count as the policy's",
            do="set run.max_staleness=0, or use an algorithm with ratios (grpo)",
        )


def check_fit(backend: BackendSpec, sampler: SamplerSpec | None, *, trains: bool) -> None:
    """
    Reject a command that the backend cannot serve, before anything is built.

    Raises:
        ConfigError: Training with a backend that only samples, or one whose policy another
            sampler must ask.
    """
    if trains and not backend.trains:
        raise ConfigError(
            f"a model was to be trained with backend {backend.name}.",
            f"found: it only samples ({backend.summary}); it gives no gradients",
            "train with another --model and --backend; measure this one with: rlvr eval",
        )
    if backend.sampler and sampler is not None and sampler.name != backend.sampler:
        raise ConfigError(
            f"sampler {sampler.name} was asked for.",
            f"found: backend {backend.name} goes with sampler {backend.sampler} only",
            "leave --sampler out",
        )


def check_model(model: str, backend: BackendSpec) -> None:
    """
    Reject a model spec that the backend does not take.

    Raises:
        ConfigError: It has another scheme, or none: a folder that is no run has none.
    """
    if not backend.models or model.partition(":")[0] in backend.models:
        return
    asked = f"model '{model}' was asked for."
    takes = f"backend {backend.name} takes: {', '.join(f'{s}:...' for s in backend.models)}"
    if ":" in model:
        raise ConfigError(asked, takes, "choose another --model or --backend")
    spelt = " or ".join(f"{scheme}:{model}" for scheme in backend.models)
    if os.path.isdir(model):
        found = "a folder that is neither a run (no run.json) nor RUN/checkpoints/NAME"
        do = f"name a run or a checkpoint of one; if the folder holds a model, write {spelt}"
    else:
        found = f"no run or folder {os.path.abspath(model)}"
        do = f"name a folder that is there, or for a model write {spelt}"
    raise ConfigError(asked, f"found: {found}; {takes}", do)


def check_eval_loss(task: Task, backend: Backend, name: str) -> None:
    """
    Reject an evaluation by loss, before training, where the backend cannot measure it.

    Raises:
        ConfigError: The task is recorded, and the backend trains only.
    """
    if task.is_offline and not backend.capabilities.eval_loss:
        raise ConfigError(
            "held-out trajectories were to be evaluated (eval.samples).",
            f"found: backend {name} cannot tell a loss without training on it",
            "set eval.samples=0, or choose another backend: --backend torch",
        )


def check_is_judged(task: Task, name: str) -> None:
    """
    Reject `rlvr eval` of a recorded task: there are no answers to sample and judge.

    Raises:
        ConfigError: The task is recorded.
    """
    if task.is_offline:
        raise ConfigError(
            f"answers to the problems of task {name} were to be sampled and judged.",
            "found: its trajectories are recorded; a model is measured by its loss on those "
            "that are held out, which is known with an algorithm and its teacher only",
            f"do: rlvr run --plugin {name} --algo ALGO --model MODEL --teacher TEACHER "
            "--steps 0 eval.samples=1",
        )
