"""Open a policy from a model spec or a run, or a task with its verifier, for a plugin's command."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from attrs import frozen

from rlvr.assembly import trained_model
from rlvr.assembly.build_part import enter
from rlvr.assembly.configure import configure
from rlvr.assembly.configured import STARTER, Configured
from rlvr.assembly.prerequisites import check_prerequisites
from rlvr.assembly.recipe import build_context, open_policy_context, open_verifier
from rlvr.assembly.teachers import model_of, teacher_for
from rlvr.config.core import CORE_OPTIONS
from rlvr.config.layer import PYTHON, overrides_layer, typed_options
from rlvr.config.layers import resolve
from rlvr.parts import Backend, BuildContext, Policy, Sampler, Task, Teacher
from rlvr.plugins.host import PluginHost
from rlvr.plugins.registry import Registry
from rlvr.plugins.resolve import load_object
from rlvr.progress.status import RunStatus
from rlvr.records.read_runs import is_run, trained_at, weights_of
from rlvr.types import Outcome, Problem, SamplingParams, Trajectory

__all__ = ["Opened", "Verifying", "open_policy", "open_teacher", "open_verifying", "starter_model"]
__all__ += ["weights_of"]

WordsOrValues = Collection[str] | Mapping[str, Any] | None
Pairs = Sequence[tuple[Problem, Trajectory]]


@frozen(kw_only=True)
class Opened:
    """
    The open parts of a command.

    Attributes:
        policy: A handle of the weights as they were opened.
        backend: Trains them; `backend.policy()` gives a handle after each update.
        task: The plugin's task, open.
        verify: As `Verifying.verify`.
        params: How the options say that tokens are drawn.
        sampler: The one that the options name (`run.sampler`).
        model: What was opened, for people.
    """

    policy: Policy
    backend: Backend
    task: Task
    verify: Callable[[Pairs], Awaitable[list[Outcome]]]
    params: SamplingParams
    sampler: Sampler
    model: str


@frozen(kw_only=True)
class Verifying:
    """
    A task with its verifier, where another program samples.

    Attributes:
        task: The plugin's task, open.
        verify: One outcome a pair, order kept: within `verify.workers` and `verify.deadline_s`,
            from the verdict store where it has them. Failures are `Failed`, never raised.
        max_failures: Share of verifications that may fail to run (`verify.max_failures`).
        stop: Texts that end a completion (`sampler.stop`).
    """

    task: Task
    verify: Callable[[Pairs], Awaitable[list[Outcome]]]
    max_failures: float
    stop: tuple[str, ...]


@asynccontextmanager
async def open_verifying(
    plugin: str, *, dataset: Path | None = None, options: WordsOrValues = ()
) -> AsyncIterator[Verifying]:
    """
    Open a task and its reward as `rlvr score` does; they are closed when the block ends.

    Args:
        plugin: Plugin whose default task is used, or the task's name.
        dataset: Data set of the task; None: the embedded one.
        options: `key=value` texts, as on the command line, or values by key.

    Raises:
        ConfigError: An option is unknown.
        PluginError: A part is missing.
        PrerequisiteError: What the plugin needs of the machine is missing.
    """
    configured, context = _configured(plugin, dataset, options, needs="score")
    async with open_verifier(configured, context, RunStatus()) as verifier:
        yield Verifying(
            task=verifier.task,
            verify=verifier.runner.pairs,
            max_failures=verifier.runner.max_failures,
            stop=configured.options.record("sampler").stop,
        )


def _configured(
    plugin: str, dataset: Path | None, options: WordsOrValues, *, needs: str, **given: Any
) -> tuple[Configured, BuildContext]:
    given["dataset"] = str(dataset) if dataset else None
    given["flag_options"] = {}
    is_words = isinstance(options, Collection) and not isinstance(options, Mapping | str)
    if is_words and all(isinstance(word, str) for word in options or ()):
        given["overrides"] = list(options or ())
    else:
        given["flag_options"] = typed_options(options)
    args = Namespace(plugin=plugin, origin=PYTHON, **given)
    host = PluginHost.load()
    configured = configure(args, host, needs=needs)
    check_prerequisites(host, configured.chosen.task.provider)
    return configured, build_context(configured, None)


def starter_model(plugin: str) -> str:
    """
    The model spec of a plugin's starter model, for commands that take a model without a task.

    Raises:
        PluginError: No such plugin.
        ConfigError: Its default task ships no model.
    """
    return model_of(STARTER, Registry(PluginHost.load()).default_task(plugin))


@asynccontextmanager
async def open_teacher(model: str, *, options: Sequence[str] = ()) -> AsyncIterator[Teacher]:
    """
    Open a teacher by its model spec, through the plugin that takes it; closed after the block.

    Args:
        model: Model spec (hf:PATH, gpt2:PATH, a server's, ...), or a run that trained it.
        options: `key=value` texts, as on the command line; what is not its own is passed over.

    Raises:
        ConfigError: An option has a value it cannot have.
        PluginError: No plugin takes the model, or several do.
        PrerequisiteError: What it needs of the machine is missing.
    """
    model = weights_of(model)
    spec = teacher_for(model, PluginHost.load())
    own, records = spec.option_namespace, dict(CORE_OPTIONS)
    if spec.config is not None:
        records[own] = load_object(spec.config, spec.provider)
    known = [text for text in options if text.partition(".")[0] in records]
    resolved = resolve(records, [overrides_layer(known)])
    config = resolved.record(own) if spec.config is not None else None
    context = BuildContext(model=model, train=resolved.record("train"))
    async with AsyncExitStack() as stack:
        yield await enter(stack, load_object(spec.target, spec.provider)(config, context))


@asynccontextmanager
async def open_policy(
    plugin: str,
    *,
    model: str | None = None,
    run: Path | None = None,
    dataset: Path | None = None,
    options: WordsOrValues = (),
) -> AsyncIterator[Opened]:
    """
    Open a model as `rlvr eval` does; it is closed when the block ends.

    Args:
        plugin: Plugin whose default task is used, or the task's name.
        model: Model spec, or a run as `run`; None: the plugin's starter model, or the run's.
        run: A run whose last checkpoint is opened, or one of its `checkpoints/NAME`.
        dataset: Data set of the task; None: the embedded one, or the run's.
        options: `key=value` texts, as on the command line, or values by key.

    Raises:
        ConfigError: A model beside a run, or an option that is unknown.
        PluginError: A part is missing.
        CheckpointError: The run has no checkpoint.
        PrerequisiteError: What the plugin needs of the machine is missing.
    """
    given: dict[str, Any] = {"model": model, "needs": "eval"}
    trained = None
    if run is None and isinstance(model, str | Path) and is_run(model):
        run, given["model"] = Path(model), None
    if run is not None:
        trained_model.check_alone(run, given["model"])
        trained = trained_at(run)
        given |= {"base": trained_model.options_of(trained.run), "needs": "trained"}
    configured, context = _configured(plugin, dataset, options, **given)
    async with open_policy_context(configured, context, RunStatus()) as opened:
        if trained is not None:
            backend, name = opened.backend, trained.checkpoint
            await trained_model.load_last(configured, context, trained.run, backend, name)
        yield Opened(
            policy=await opened.backend.policy(),
            backend=opened.backend,
            task=opened.task,
            verify=opened.runner.pairs,
            params=opened.params,
            sampler=opened.sampler,
            model=str(run or configured.run.model),
        )
