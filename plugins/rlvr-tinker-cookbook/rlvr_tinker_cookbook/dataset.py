"""A task of ours as a data set of the cookbook.

    from rlvr_tinker_cookbook.dataset import TaskDatasetBuilder

    TaskDatasetBuilder(plugin="cvdp", model_name=MODEL, batch_size=8, group_size=8)

goes where the cookbook takes an `RLDatasetBuilder`: `rl.train.Config`, and
`DistillationDatasetConfig` of `distillation.train_on_policy`.
"""

from __future__ import annotations

from collections.abc import Sequence

import chz
from tinker_cookbook.rl import types

from rlvr import ConfigError, Problem, epochs
from rlvr_tinker_cookbook.env import TaskGroupBuilder
from rlvr_tinker_cookbook.judge import Wanted, judge_of


class TaskDataset(types.RLDataset):
    """
    Problems in batches: epochs of seeded permutations, as `rlvr run` takes them.

    Args:
        builders: One a problem.
        batch_size: Groups of a batch.
        batches: Length of the data set.
        seed: Of the order; None: the order of the task.
    """

    def __init__(
        self,
        builders: Sequence[TaskGroupBuilder],
        batch_size: int,
        batches: int,
        seed: int | None,
    ) -> None:
        self._builders = {builder.problem.id: builder for builder in builders}
        self._problems = [builder.problem for builder in builders]
        self._batch_size, self._batches, self._seed = batch_size, batches, seed

    def get_batch(self, index: int) -> Sequence[types.EnvGroupBuilder]:
        """The groups of a step: a function of its number, so a resumed run goes on exactly."""
        count = self._batch_size
        if self._seed is None:
            problems = self._problems[index * count : (index + 1) * count]
        else:
            problems = epochs(self._problems, count, seed=self._seed, step=index)
        return [self._builders[problem.id] for problem in problems]

    def __len__(self) -> int:
        return self._batches


@chz.chz
class TaskDatasetBuilder(types.RLDatasetBuilder):
    """
    A task by the words of rlvr's command line.

    Attributes:
        plugin: `--plugin`: plugin whose default task is used, or the task's name.
        model_name: Whose tokenizer (and chat template) is used: the trained model's.
        batch_size: Problems a step.
        group_size: Rollouts a problem.
        dataset: `--dataset`; "": the embedded one.
        options: `key=value` texts of the task, the reward and `verify.*`.
        renderer_name: A renderer of the cookbook; "": the model's own chat template, which is
            what `rlvr run` uses.
        batches: Steps of an epoch of the cookbook's loop; 0: until every problem was met once.
        seed: Of the problems' order.
        test_problems: Problems of split "test" that the loop evaluates on; 0: none.
        max_tokens: Tokens of a completion, where `context_length` is given.
        context_length: Tokens that the model can hold: longer first prompts lose their middle,
            episodes that outgrow it end. 0: the service's own limits.
    """

    plugin: str
    model_name: str
    batch_size: int
    group_size: int
    dataset: str = ""
    options: Sequence[str] = ()
    renderer_name: str = ""
    batches: int = 0
    seed: int = 0
    test_problems: int = 0
    max_tokens: int = 0
    context_length: int = 0

    async def __call__(self) -> tuple[TaskDataset, TaskDataset | None]:
        """
        Open the task and read its problems.

        Raises:
            ConfigError: There are no problems, or a completion leaves no room for a prompt.
            PrerequisiteError: What the plugin needs of the machine is missing.
        """
        wanted = Wanted(plugin=self.plugin, dataset=self.dataset, options=tuple(self.options))
        task = judge_of(wanted).verifying.task
        train = self._builders(wanted, list(task.problems("train")), self.group_size)
        if not train:
            raise ConfigError(
                f"the problems of '{self.plugin}' were to be trained on.",
                "found: no usable problem in split 'train'",
                "check `dataset` and `options` of TaskDatasetBuilder",
            )
        batches = self.batches or -(-len(train) // self.batch_size)
        training = TaskDataset(train, self.batch_size, batches, self.seed)
        test = self._builders(wanted, list(task.problems("test"))[: self.test_problems], 1)
        if not test:
            return training, None
        count = min(self.batch_size, len(test))
        return training, TaskDataset(test, count, -(-len(test) // count), None)

    def _builders(
        self, wanted: Wanted, problems: Sequence[Problem], group_size: int
    ) -> list[TaskGroupBuilder]:
        room = self.context_length - self.max_tokens if self.context_length else 0
        if self.context_length and room < 2:
            raise ConfigError(
                f"completions of {self.max_tokens} tokens were asked for (max_tokens).",
                f"found: a context of {self.context_length} (context_length)",
                "make max_tokens smaller",
            )
        return [
            TaskGroupBuilder(
                wanted=wanted,
                problem=problem,
                group_size=group_size,
                model_name=self.model_name,
                renderer_name=self.renderer_name,
                room=room,
            )
            for problem in problems
        ]
