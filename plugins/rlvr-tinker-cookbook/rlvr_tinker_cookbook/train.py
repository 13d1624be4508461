r"""The cookbook's own loops on a task of ours, as one command.

    python -m rlvr_tinker_cookbook.train plugin=cvdp model_name=MODEL learning_rate=1e-4 \
        max_tokens=1024 log_path=runs/cookbook

is `tinker_cookbook.rl.train`; with `teacher=` it is `distillation.train_on_policy`. Arguments are
the fields of `Command`, in the cookbook's manner: NAME=VALUE.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any

import chz
from tinker_cookbook.distillation import train_on_policy
from tinker_cookbook.distillation.datasets import DistillationDatasetConfig, TeacherConfig
from tinker_cookbook.rl import train

from rlvr import ConfigError, RlvrError
from rlvr_tinker_cookbook.dataset import TaskDatasetBuilder

RECIPE = "rlvr"
"""What the service's records of these runs say that they are."""

_OF_THE_DATA_SET = (
    *("plugin", "model_name", "batch_size", "group_size", "dataset", "renderer_name"),
    *("seed", "test_problems", "max_tokens", "context_length"),
)
_OF_BOTH_LOOPS = (
    *("model_name", "learning_rate", "max_tokens", "log_path", "lora_rank"),
    *("eval_every", "save_every"),
)


@chz.chz
class Command:
    """
    What is trained on what.

    Attributes:
        plugin: The task, as `rlvr run --plugin` names it.
        model_name: The trained model; its tokenizer must be readable under that name.
        learning_rate: Of Adam.
        max_tokens: Tokens of a completion.
        log_path: Folder of metrics and checkpoints; a run that is there goes on.
        dataset: The task's data set; "": the embedded one.
        options: `key=value key=value` of the task and its reward.
        batch_size: Problems a step.
        group_size: Answers a problem.
        steps: How many; 0: until every problem was met once.
        renderer_name: A renderer of the cookbook; "": the model's chat template.
        context_length: Tokens that the model can hold; 0: not looked at here.
        lora_rank: Of the adapter.
        loss_fn: The service's loss (RL only).
        teacher: Distil from this model (a name); "": reinforcement learning.
        teacher_path: Weights of the teacher (`tinker://...`); "": as it comes.
        kl_penalty_coef: Weight of the teacher's opinion.
        eval_every: Steps between evaluations on split "test"; 0: none.
        test_problems: Problems of an evaluation.
        save_every: Steps between checkpoints; 0: at the end only.
        seed: Of the problems' order.
    """

    plugin: str
    model_name: str
    learning_rate: float
    max_tokens: int
    log_path: str
    dataset: str = ""
    options: str = ""
    batch_size: int = 8
    group_size: int = 8
    steps: int = 0
    renderer_name: str = ""
    context_length: int = 0
    lora_rank: int = 32
    loss_fn: str = "importance_sampling"
    teacher: str = ""
    teacher_path: str = ""
    kl_penalty_coef: float = 1.0
    eval_every: int = 0
    test_problems: int = 0
    save_every: int = 20
    seed: int = 0

    def dataset_builder(self) -> TaskDatasetBuilder:
        """The task's problems."""
        shared = {name: getattr(self, name) for name in _OF_THE_DATA_SET}
        options = shlex.split(self.options)
        return TaskDatasetBuilder(options=options, batches=self.steps, **shared)

    def reinforcement(self) -> train.Config:
        """The settings of `tinker_cookbook.rl.train`."""
        builder = self.dataset_builder()
        return train.Config(dataset_builder=builder, loss_fn=self.loss_fn, **self._of_both())

    def distillation(self) -> train_on_policy.Config:
        """The settings of `tinker_cookbook.distillation.train_on_policy`."""
        data = DistillationDatasetConfig(
            dataset_builder=self.dataset_builder(),
            teacher_config=TeacherConfig(
                base_model=self.teacher, load_checkpoint_path=self.teacher_path or None
            ),
            groups_per_batch=self.batch_size,
        )
        return train_on_policy.Config(
            dataset_configs=[data], kl_penalty_coef=self.kl_penalty_coef, **self._of_both()
        )

    def _of_both(self) -> dict[str, Any]:
        shared = {name: getattr(self, name) for name in _OF_BOTH_LOOPS}
        return {**shared, "recipe_name": RECIPE, "renderer_name": self.renderer_name or None}


def run(command: Command) -> None:
    """
    Train to the end.

    Raises:
        ConfigError: Weights of a teacher without its name.
    """
    if command.teacher_path and not command.teacher:
        raise ConfigError(
            f"teacher_path={command.teacher_path} was given.",
            "found: no teacher, the name of the model that these weights adapt",
            "add teacher=MODEL",
        )
    os.environ.setdefault("TINKER_TELEMETRY", "0")
    if command.teacher:
        asyncio.run(train_on_policy.main(command.distillation()))
    else:
        asyncio.run(train.main(command.reinforcement()))


def main(argv: Sequence[str]) -> int:
    """Run the command; a person's mistake is three sentences and an exit code, as in `rlvr`."""
    command = chz.Blueprint(Command).make_from_argv(list(argv))
    try:
        run(command)
    except RlvrError as error:
        print(f"rlvr: {error}    (exit {int(error.exit_code)})", file=sys.stderr)
        return int(error.exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
