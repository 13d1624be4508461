"""A policy for a plugin's own command: from a model spec or a run to something that answers."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from attrs import frozen

from rlvr.parts import Policy, Task
from rlvr.plugins.host import PluginHost
from rlvr.run import trained
from rlvr.run.board import Board
from rlvr.run.configure import configure
from rlvr.run.prerequisites import check_prerequisites
from rlvr.run.recipe import build_context, open_student
from rlvr.types import SamplingParams


@frozen(kw_only=True)
class Opened:
    """
    What a command works with.

    Attributes:
        policy: A handle of the weights.
        task: The plugin's task, open.
        params: How the options say that tokens are drawn.
        model: What was opened, for people.
    """

    policy: Policy
    task: Task
    params: SamplingParams
    model: str


@asynccontextmanager
async def open_policy(
    plugin: str,
    *,
    model: str | None = None,
    run: Path | None = None,
    dataset: Path | None = None,
    options: Sequence[str] = (),
) -> AsyncIterator[Opened]:
    """
    Open a model as `rlvr eval` does; it is closed when the block ends.

    Args:
        plugin: Plugin whose default task is used, or the task's name.
        model: Model spec; None: the plugin's starter model, or the run's.
        run: A run whose last checkpoint is opened, or one of its `checkpoints/NAME`.
        dataset: Data set of the task; None: the embedded one, or the run's.
        options: `key=value` texts, as on the command line.

    Raises:
        ConfigError: A model beside a run, or an option that is unknown.
        PluginError: A part is missing.
        CheckpointError: The run has no checkpoint.
        PrerequisiteError: What the plugin needs of the machine is missing.
    """
    given = {"model": model, "dataset": str(dataset) if dataset else None}
    args = Namespace(plugin=plugin, overrides=list(options), **given)
    if run is not None:
        trained.check_alone(run, model)
        args.base = trained.options_of(trained.trained_at(run).run)
    host = PluginHost.load()
    configured = configure(args, host, needs="eval" if run is None else "trained")
    check_prerequisites(host, configured.chosen.task.provider)
    context = build_context(configured, None)
    async with open_student(configured, context, Board()) as student:
        if run is not None:
            which = trained.trained_at(run)
            await trained.load_last(
                configured, context, which.run, student.backend, which.checkpoint
            )
        yield Opened(
            policy=await student.backend.policy(),
            task=student.judge.task,
            params=student.params,
            model=str(run or configured.run.model),
        )
