"""The cookbook's environments as a task: `rlvr run --plugin cookbook cookbook.builder=M:C`.

A problem is one `EnvGroupBuilder` of the data set; an episode is one of its environments, spoken
to in tokens. The environment judges while it is played, so its reward travels in the trajectory's
notes, and the reward reads it there.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import chain
from typing import Any

import chz
from attrs import frozen
from chz.blueprint import (
    ConstructionException,
    ExtraneousBlueprintArg,
    InvalidBlueprintArg,
    MissingBlueprintArg,
)
from tinker_cookbook.rl.problem_env import ProblemGroupBuilder
from tinker_cookbook.rl.types import EnvGroupBuilder, RLDataset, RLDatasetBuilder

from rlvr import BuildContext, ConfigError, Message, Problem, Task, UnknownNameError
from rlvr_tinker_cookbook.config import CookbookConfig
from rlvr_tinker_cookbook.episode import EnvEpisode, EnvPool

_BAD_FIELDS = (
    ConstructionException,
    ExtraneousBlueprintArg,
    InvalidBlueprintArg,
    MissingBlueprintArg,
    TypeError,
    ValueError,
)
_ALONE = (EnvGroupBuilder.compute_group_rewards, ProblemGroupBuilder.compute_group_rewards)
"""Group rewards that are 0 whatever the answers are."""


@frozen(kw_only=True)
class Place:
    """Where a problem stands in its data set: split, batch and position in the batch."""

    split: str
    batch: int
    position: int


class CookbookTask(Task):
    """
    Environments of one data set of the cookbook.

    Those of its test data set, where it has one, are split "test".
    `unsupported` names builders whose reward needs the whole group (`cookbook.group_rewards`).
    """

    def __init__(self, config: CookbookConfig, context: BuildContext) -> None:
        if context.dataset is not None:
            raise ConfigError(
                f"the data set {context.dataset} was given to task cookbook.",
                "found: its problems come from a dataset builder of the cookbook",
                "leave --dataset out; name the builder: cookbook.builder=MODULE:CLASS",
            )
        self._config = config
        self._pools: dict[Place, EnvPool] = {}

    async def __aenter__(self) -> CookbookTask:
        """Environments are made when they are played."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Clean up after rollouts that broke off."""
        for pool in self._pools.values():
            await pool.close()

    def problems(self, split: str) -> Iterable[Problem]:
        """A problem for each group builder; those of the test data set for "test"."""
        for place, builder in self._builders.items():
            if split in (place.split, "all") and self._why_not(builder) is None:
                yield self._problem(place, builder)

    def episode(self, problem: Problem) -> EnvEpisode:
        """One environment of the problem's group."""
        place: Place = problem.payload
        if place not in self._pools:
            self._pools[place] = EnvPool(self._builders[place])
        has_group_reward = type(self._builders[place]).compute_group_rewards not in _ALONE
        return EnvEpisode(self._pools[place], has_group_reward=has_group_reward)

    def unsupported(self) -> Mapping[str, str]:
        """Builders whose group is judged as a whole."""
        builders = self._builders.items()
        return {self._name(at): why for at, builder in builders if (why := self._why_not(builder))}

    def _why_not(self, builder: EnvGroupBuilder) -> str | None:
        judges_alone = type(builder).compute_group_rewards in _ALONE
        if judges_alone or self._config.group_rewards == "alone":
            return None
        return (
            f"{type(builder).__name__} gives rewards to a whole group, and a reward of rlvr sees "
            "one answer; cookbook.group_rewards=alone gives it groups of one"
        )

    def _problem(self, place: Place, builder: EnvGroupBuilder) -> Problem:
        name = self._name(place)
        tags = builder.logging_tags()
        text = f"{self._config.builder}, {name}: the environment makes its prompt when it is played"
        key = json.dumps([self._config.builder, *self._config.args, name])
        return Problem(
            id=name,
            prompt=(Message(role="user", content=text),),
            split=place.split,
            labels={"family": tags[0]} if tags else {},
            payload=place,
            digest=hashlib.sha256(key.encode()).hexdigest(),
        )

    def _name(self, place: Place) -> str:
        return f"{place.split}_{place.batch:04d}_{place.position:03d}"

    @cached_property
    def _builders(self) -> Mapping[Place, EnvGroupBuilder]:
        train, test = _await(self._dataset_builder())
        tested = () if test is None else self._in_batches("test", test)
        return dict(chain(self._in_batches("train", train), tested))

    def _in_batches(
        self, split: str, dataset: RLDataset
    ) -> Iterable[tuple[Place, EnvGroupBuilder]]:
        for batch in range(min(len(dataset), self._config.batches)):
            for position, builder in enumerate(dataset.get_batch(batch)):
                yield Place(split=split, batch=batch, position=position), builder

    def _dataset_builder(self) -> RLDatasetBuilder:
        cls = _load(self._config.builder)
        arguments = list(self._config.args)
        try:
            made: RLDatasetBuilder = chz.Blueprint(cls).make_from_argv(arguments)
        except _BAD_FIELDS as error:
            raise ConfigError(
                f"{self._config.builder} was to be made of: {' '.join(arguments) or 'nothing'}",
                f"found: {error}",
                'give its fields: cookbook.args="NAME=VALUE,NAME=VALUE"',
            ) from None
        return made


def _load(path: str) -> type[RLDatasetBuilder]:
    module, _, name = path.partition(":")
    if not name:
        raise ConfigError(
            f"task cookbook was asked for with cookbook.builder='{path}'.",
            do="name a dataset builder: cookbook.builder=MODULE:CLASS, such as "
            "tinker_cookbook.recipes.math_rl.arithmetic_env:ArithmeticDatasetBuilder",
        )
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UnknownNameError(
            f"the dataset builder {path} was asked for.",
            f"found: {error}",
            "check the module and the class in cookbook.builder",
        ) from None
    if not (isinstance(found, type) and issubclass(found, RLDatasetBuilder)):
        raise ConfigError(
            f"the dataset builder {path} was asked for.",
            f"found: {found!r}, which is no RLDatasetBuilder of the cookbook",
            "name a class that is one in cookbook.builder",
        )
    return found


def _await(builder: RLDatasetBuilder) -> Sequence[Any]:
    """The data sets that the builder makes; works also if a loop runs in this thread."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(lambda: asyncio.run(builder())).result()
