"""A whole run in a few lines: the toy task, the tiny backend, and what listens to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlvr import BuildContext, RunInfo, SamplingParams
from rlvr.assembly.recipe import Recipe
from rlvr.builtin.file_checkpoints import FileCheckpointer, FileCheckpointOptions
from rlvr.config.core import CheckpointOptions, EvalOptions, ParityOptions, TrainOptions
from rlvr.plugins.host import PluginHost
from rlvr.progress.status import RunStatus
from rlvr.records.run_directory import RunDir
from rlvr.rollouts.group import GroupSampler
from rlvr.testing.fakes import CentredAdvantage, ReinforceLoss, TinyBackend, ToyReward, ToyTask
from rlvr.training.callbacks import Callbacks
from rlvr.verification.runner import VerificationRunner


def toy_recipe(directory: Path, **changes: Any) -> Recipe:
    """Six steps of 12 toy problems with 8 answers of one token each; fields may be changed."""
    task = changes.get("task") or ToyTask()
    runner = VerificationRunner(reward=changes.get("reward") or ToyReward(), workers=4)
    keep, context = FileCheckpointOptions(keep=9), BuildContext(run_dir=directory, seed=1)
    usual: dict[str, Any] = {
        "task": task,
        "reward": runner.reward,
        "runner": runner,
        "sampler": GroupSampler(),
        "backend": TinyBackend(seed=3, lr=60.0),
        "params": SamplingParams(max_tokens=1, group_size=8),
        "eval_sampler": GroupSampler(),
        "advantage": CentredAdvantage(),
        "loss": ReinforceLoss(),
        "checkpointer": FileCheckpointer(keep, context),
        "problems": tuple(task.problems("train")),
        "eval_problems": (),
        "steps": 6,
        "seed": 1,
        "train": TrainOptions(problems=12),
        "eval": EvalOptions(),
        "checkpoint": CheckpointOptions(every=2),
        "parity": ParityOptions(),
    }
    return Recipe(**{**usual, **changes})


def watch_of(directory: Path) -> Callbacks:
    """Callbacks of a run without plugins; its directory is made."""
    info = RunInfo(
        id="t", directory=directory, plugin="toy", algo="x", model="tiny", steps=1, seed=1
    )
    for name in ("trajectories", "checkpoints"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    host = PluginHost.load({"RLVR_PLUGINS": ""})
    return Callbacks(host=host, run=info, directory=RunDir(directory), status=RunStatus())
