"""One run from start to end: its directory, resuming, interruption, failure, final summary."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import attrs
from attrs import frozen

from rlvr.assembly.configured import Configured
from rlvr.assembly.prerequisites import check_prerequisites
from rlvr.assembly.recipe import Recipe, build_context, open_callbacks, open_recipe
from rlvr.assembly.trained_model import lineage_at_start
from rlvr.border.abilities import warnings_of
from rlvr.border.calls import Border, culprit, shown
from rlvr.border.promises import checkpoints_of
from rlvr.concurrency import ending_signals, run_blocking, say_stopped, say_stopping
from rlvr.config.layers import DEFAULT
from rlvr.errors import (
    DISK_TROUBLE,
    BackendError,
    CheckpointError,
    ConfigError,
    PartError,
    PrerequisiteError,
    RlvrError,
    RunInterruptedError,
    TaskError,
    VerifierError,
)
from rlvr.install import rlvr_command
from rlvr.log import bound, get
from rlvr.plugins.author_error import said
from rlvr.progress.status import RunStatus
from rlvr.records.lineage import after_training, joined
from rlvr.records.run_directory import RunDir
from rlvr.records.run_state import RunState, state_of
from rlvr.training.callbacks import Callbacks
from rlvr.training.loop import train
from rlvr.training.run_json import close_identity, write_identity
from rlvr.types import Checkpoint, EvalReport, RunInfo

log = get(__name__)


@frozen(kw_only=True)
class Finished:
    """The result of a run that ended well: directory, last state, evaluations by step."""

    directory: Path
    state: RunState
    reports: dict[int, EvalReport]


def make_default_directory(configured: Configured) -> Path:
    """Make `runs/TIME-PLUGIN-ALGO`, the time in UTC; a number follows where it is taken."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    name = configured.run.task.replace("/", "-")
    for count in itertools.count(1):
        end = f"-{count}" if count > 1 else ""
        path = Path("runs") / f"{stamp}-{name}-{configured.run.algo}{end}"
        try:
            path.mkdir(parents=True)  # at once, so that of two runs of one second each has its own
        except FileExistsError:
            continue
        except OSError:
            pass  # the run that is to be written there says it
        break
    return path


def run(configured: Configured, directory: RunDir, status: RunStatus, *, resume: bool) -> Finished:
    """
    Run to the end, or to the first Ctrl-C.

    Raises:
        RunInterruptedError: Ctrl-C; the checkpoint is written and named.
        VerifierError, BackendError, CheckpointError: The last good checkpoint is named.
    """
    return run_blocking(
        lambda: _run(configured, directory, status, resume=resume), then=" after a checkpoint"
    )


async def _run(
    configured: Configured, directory: RunDir, status: RunStatus, *, resume: bool
) -> Finished:
    info = RunInfo(
        id=directory.path.name,
        directory=directory.path,
        plugin=configured.chosen.task.provider,
        algo=configured.run.algo,
        model=configured.run.model,
        steps=configured.run.steps,
        seed=configured.run.seed,
        config=dict(configured.options.values),
    )
    watch = Callbacks(host=configured.host, run=info, directory=directory, status=status)
    outcome, is_begun, is_refused = "failed", False, False
    observers = AsyncExitStack()  # open until told the end
    with bound(run_id=info.id), _interruptible(directory.path):
        try:
            check_prerequisites(configured.host, configured.chosen.task.provider)
            context = build_context(configured, directory.path)
            watch.parts = await open_callbacks(observers, configured, context)
            async with open_recipe(configured, context, status) as recipe:
                start = lineage_at_start(configured, context.model)
                found = await _last_good(recipe) if resume else None
                write_identity(configured, directory, recipe, context, start=start, resume=resume)
                is_begun = True
                if resume:
                    _restore(found, watch)
                lineage = after_training(joined(start, watch.state.lineage), recipe.problems)
                watch.state = attrs.evolve(watch.state, lineage=lineage)
                _give_notice(recipe)
                if not resume:
                    _say_what_is_missing(recipe, configured)
                watch.announce("rlvr_run_started")
                try:
                    state = await train(recipe, watch.state, watch)
                except asyncio.CancelledError:
                    outcome = "interrupted"
                    raise await _interrupted(recipe, watch) from None
                except VerifierError as error:
                    await _save_if_behind(recipe, watch)
                    raise _named(error, watch) from error
                except (BackendError, CheckpointError) as error:
                    raise _named(error, watch) from error
                except OSError as error:
                    if culprit(error) or not _is_of(directory, error):
                        raise
                    raise _named(_unwritable(error, directory), watch) from error
                except (Exception, GeneratorExit) as error:
                    if isinstance(error, PartError) or not isinstance(error, RlvrError):
                        with suppress(CheckpointError, PartError):  # what was trained is kept
                            await _save_if_behind(recipe, watch)
                    raise
            watch.say_if_idle(is_over=True)
            outcome = "done"
            return Finished(directory=directory.path, state=state, reports=watch.reports)
        except (Exception, GeneratorExit) as error:
            if isinstance(error, PartError) or not isinstance(error, RlvrError):
                _keep_traceback(directory)
            is_refused = isinstance(error, ConfigError | PrerequisiteError | TaskError)
            raise
        finally:
            watch.keep_trace()
            close_identity(directory, outcome, watch.state.step)
            if is_begun or not (resume and is_refused):
                watch.announce("rlvr_run_finished", outcome=outcome)
            await _close(observers)
            if is_refused and not resume:
                directory.take_back()


async def _close(observers: AsyncExitStack) -> None:
    try:
        await observers.aclose()
    except RlvrError as failure:  # of a callback: it ends no run
        error = failure.__cause__ or failure
        log.error("observer_failed", hook="__aexit__", observer=culprit(error), error=said(error))


def _keep_traceback(directory: RunDir) -> None:
    """Write the traceback of the error being handled into the run directory."""
    with suppress(OSError):  # the error itself is the one to show
        (directory.path / "traceback.txt").write_text(
            traceback.format_exc()[-100_000:], encoding="utf-8", errors="replace"
        )


def _say_what_is_missing(recipe: Recipe, configured: Configured) -> None:
    """Warn where a person set `verify.second_opinion` and the reward offers none."""
    asked_by = configured.options.origin["verify.second_opinion"]
    is_there = recipe.reward.has_second_opinion
    if asked_by != DEFAULT and recipe.verify.second_opinion and not is_there:
        name = configured.chosen.reward.full_name
        log.warning("no_second_opinion", reward=name, found="it offers none", asked_by=asked_by)


def _give_notice(recipe: Recipe) -> None:
    if not recipe.backend.capabilities.batch_invariant:
        log.info("not_batch_invariant", found="equal runs may differ in bits")
    for text in warnings_of(recipe.task, "train"):
        log.warning("task_notice", notice=text)


def _restore(found: tuple[Checkpoint, RunState] | None, watch: Callbacks) -> None:
    if found is None:
        log.warning("run_begins_anew", reason="it has no checkpoint")
        watch.directory.truncate_after(-1)
        return
    watch.last_checkpoint, watch.state = found
    watch.directory.truncate_after(watch.state.step)
    watch.reports.update(watch.directory.read_evals())
    log.info("run_resumed", step=watch.state.step, checkpoint=str(found[0].path))


async def _last_good(recipe: Recipe) -> tuple[Checkpoint, RunState] | None:
    """
    Load the newest undamaged checkpoint, None without any; name the damaged that are passed by.

    Raises:
        CheckpointError: None can.
    """
    refused: list[CheckpointError] = []
    for checkpoint in reversed(checkpoints_of(recipe.checkpointer)):
        at = Border(recipe.checkpointer, "checkpointer", "load", promised="the state it saved")
        try:
            with at:
                state = await recipe.checkpointer.load(checkpoint, recipe.backend)
            at.check("" if isinstance(state, Mapping) else shown(state))
            return checkpoint, state_of(state, checkpoint)
        except CheckpointError as error:
            refused.append(error)
            log.warning("checkpoint_passed_by", path=str(checkpoint.path), reason=str(error))
    if refused:
        raise refused[0]
    return None


async def _save_if_behind(recipe: Recipe, watch: Callbacks) -> None:
    last = watch.last_checkpoint
    if watch.state.step > (last.step if last else 0) or last is None:
        await watch.checkpoint(recipe, watch.state)


async def _interrupted(recipe: Recipe, watch: Callbacks) -> RunInterruptedError:
    await _save_if_behind(recipe, watch)
    return RunInterruptedError(
        f"interrupted after step {watch.state.step} of {recipe.steps}.",
        f"a checkpoint was written: {watch.last_checkpoint and watch.last_checkpoint.path}",
        f"go on with: {rlvr_command('run', '--resume', str(watch.directory.path))}",
    )


def _named(error: RlvrError, watch: Callbacks) -> RlvrError:
    last = watch.last_checkpoint
    where = f"{last.path} (step {last.step})" if last else "none yet"
    if "last good checkpoint" in str(error):
        return error
    return type(error)(
        f"{error}\n  last good checkpoint: {where}; go on with: "
        f"{rlvr_command('run', '--resume', str(watch.directory.path))}"
    )


def _is_of(directory: RunDir, error: OSError) -> bool:
    """Whether the error is about the run directory: its disk is full, or a file not writable."""
    name = error.filename if isinstance(error.filename, str) else ""
    place = Path(os.path.realpath(directory.path))
    return error.errno in DISK_TROUBLE or place in Path(os.path.realpath(name)).parents


def _unwritable(error: OSError, directory: RunDir) -> CheckpointError:
    return CheckpointError(
        f"the run directory {directory.path} could not be written.",
        f"found: {error.strerror}" + (f" ({error.filename})" if error.filename else ""),
        "free space, or put the directory back, then continue with --resume",
    )


@contextmanager
def _interruptible(run: Path) -> Iterator[None]:
    """First Ctrl-C (SIGTERM, SIGHUP) cancels the run; a second one stops the process at once."""
    loop, task, seen = asyncio.get_running_loop(), asyncio.current_task(), 0
    assert task is not None

    def stop(*_: object) -> None:  # Python calls it even where a part keeps the loop busy
        nonlocal seen
        seen += 1
        with suppress(RuntimeError):  # it came while something was printed
            if seen == 1:
                say_stopping(" after a checkpoint")
            else:
                is_begun = (run / "run.json").exists()
                say_stopped(rlvr_command("run", "--resume", str(run)) if is_begun else "")
        if seen > 1:
            os._exit(130)
        loop.call_soon_threadsafe(task.cancel)

    # Only the main thread has signals; `run_blocking` cancels the run in another one.
    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, stop) for number in ending_signals() if is_main}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
