"""One run from start to end: directory, resume, interruption, failure, last words."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import platform
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attrs import frozen

import rlvr
from rlvr.errors import (
    BackendError,
    CheckpointError,
    ConfigError,
    RlvrError,
    RunInterruptedError,
    VerifierError,
    explain,
)
from rlvr.log import bind, get, unbind
from rlvr.plugins.host import PluginHost
from rlvr.run.board import Board
from rlvr.run.configure import Configured
from rlvr.run.loop import train
from rlvr.run.prerequisites import check_prerequisites
from rlvr.run.recipe import Recipe, build_context, open_recipe
from rlvr.run.rundir import RunDir, now
from rlvr.run.state import RunState
from rlvr.run.watch import Watch
from rlvr.types import EvalReport, RunInfo

log = get(__name__)

FREE_ON_RESUME = ("run.steps", "run.out", "verify.", "checkpoint.", "parity.")
"""Options that a resumed run may change: they decide no trajectory and no update."""

DISK_TROUBLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)


@frozen(kw_only=True)
class Finished:
    """What a run that ended well leaves: its directory, last state and evaluations by step."""

    directory: Path
    state: RunState
    reports: dict[int, EvalReport]


def default_directory(configured: Configured) -> Path:
    """`runs/TIME-PLUGIN-ALGO`, the time in UTC."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    name = configured.run.plugin or configured.chosen.task.name.replace("/", "-")
    return Path("runs") / f"{stamp}-{name}-{configured.run.algo}"


def check_not_running(record: Mapping[str, Any], directory: Path) -> None:
    """
    Refuse to resume a run that another process is still at.

    Raises:
        ConfigError: Names the process.
    """
    pid = record.get("pid")
    if record.get("status") == "running" and isinstance(pid, int) and _is_alive(pid):
        raise ConfigError(
            explain(
                f"the run {directory} was to be resumed.",
                f"found: process {pid} is still at it",
                "wait for it, stop it with Ctrl-C, or start a run of your own",
            )
        )


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid != os.getpid()


def check_unchanged(configured: Configured, before: dict[str, Any], directory: Path) -> None:
    """
    Refuse to resume with options that would make it another run.

    Raises:
        ConfigError: Names every option that changed.
    """
    after = configured.options.values
    is_free: tuple[str, ...] = FREE_ON_RESUME
    if after["train.decay"] != "constant":  # the schedule of learning rates ends with the run
        is_free = tuple(key for key in FREE_ON_RESUME if key != "run.steps")
    changed = [
        key
        for key in sorted({*before, *after})
        if _plain(before.get(key)) != _plain(after.get(key)) and not key.startswith(is_free)
    ]
    if changed:
        listed = ", ".join(f"{k} ({before.get(k)!r} -> {after.get(k)!r})" for k in changed)
        raise ConfigError(
            explain(
                f"the run {directory} was to be resumed with other options.",
                f"changed: {listed}",
                "leave them as they were, or start a new run",
            )
        )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def run(configured: Configured, directory: RunDir, board: Board, *, resume: bool) -> Finished:
    """
    Run to the end, or to the first Ctrl-C.

    Raises:
        RunInterruptedError: Ctrl-C; the checkpoint is written and named.
        VerifierError, BackendError, CheckpointError: The last good checkpoint is named.
    """
    return asyncio.run(_run(configured, directory, board, resume=resume))


async def _run(
    configured: Configured, directory: RunDir, board: Board, *, resume: bool
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
    bind(run_id=info.id)
    watch = Watch(host=configured.host, run=info, directory=directory, board=board)
    outcome = "failed"
    with _interruptible():
        try:
            check_prerequisites(configured.host, configured.chosen.task.provider)
            context = build_context(configured, directory.path)
            async with open_recipe(configured, context, board) as recipe:
                _write_identity(configured, directory, recipe, resume=resume)
                if resume:
                    await _restore(recipe, watch)
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
                    if error.errno not in DISK_TROUBLE:
                        raise
                    raise _named(_unwritable(error, directory), watch) from error
                except Exception:  # a bug, ours or a plugin's: what was trained is kept
                    with contextlib.suppress(CheckpointError):
                        await _save_if_behind(recipe, watch)
                    raise
            outcome = "done"
            return Finished(directory=directory.path, state=state, reports=watch.reports)
        except RlvrError:
            raise
        except Exception:
            (directory.path / "traceback.txt").write_text(traceback.format_exc(), encoding="utf-8")
            raise
        finally:
            _close_identity(directory, outcome, watch.state.step)
            watch.announce("rlvr_run_finished", outcome=outcome)
            directory.discard()
            unbind("run_id")


async def _restore(recipe: Recipe, watch: Watch) -> None:
    checkpoints = recipe.checkpointer.list()
    if not checkpoints:
        watch.directory.truncate_after(-1)
        return
    newest = checkpoints[-1]
    state = RunState.from_json(await recipe.checkpointer.load(newest, recipe.student.backend))
    watch.state, watch.last_checkpoint = state, newest
    watch.directory.truncate_after(state.step)
    watch.reports.update(watch.directory.read_evals())
    log.info("run_resumed", step=state.step, checkpoint=str(newest.path))


async def _save_if_behind(recipe: Recipe, watch: Watch) -> None:
    last = watch.last_checkpoint
    if watch.state.step > (last.step if last else 0) or last is None:
        await watch.checkpoint(recipe, watch.state)


async def _interrupted(recipe: Recipe, watch: Watch) -> RunInterruptedError:
    await _save_if_behind(recipe, watch)
    directory = watch.directory.path
    return RunInterruptedError(
        explain(
            f"interrupted after step {watch.state.step} of {recipe.steps}.",
            f"a checkpoint was written: {watch.last_checkpoint and watch.last_checkpoint.path}",
            f"go on with: rlvr run --resume {directory}",
        )
    )


def _named(error: RlvrError, watch: Watch) -> RlvrError:
    last = watch.last_checkpoint
    where = f"{last.path} (step {last.step})" if last else "none yet"
    if "last good checkpoint" in str(error):
        return error
    return type(error)(
        f"{error}\n  last good checkpoint: {where}; go on with: rlvr run --resume "
        f"{watch.directory.path}"
    )


def _unwritable(error: OSError, directory: RunDir) -> CheckpointError:
    return CheckpointError(
        explain(
            f"the run directory {directory.path} could not be written.",
            f"found: {error.strerror}",
            "free space, then continue with --resume",
        )
    )


def _close_identity(directory: RunDir, outcome: str, step: int) -> None:
    """Write how the run ended; where that fails, the error that ended it is the one to show."""
    if (directory.path / "run.json").exists():
        try:
            directory.update_run(status=outcome, finished=now(), step=step)
        except OSError as error:
            log.error("outcome_not_written", outcome=outcome, error=str(error))


def _dataset_hash(recipe: Recipe) -> str:
    digests = "".join(p.id + p.digest for p in (*recipe.problems, *recipe.eval_problems))
    return hashlib.sha256(digests.encode()).hexdigest()


def _check_same_data(directory: RunDir, recipe: Recipe) -> None:
    before, found = directory.read_run().get("dataset_hash"), _dataset_hash(recipe)
    if before != found:
        raise ConfigError(
            explain(
                f"the run {directory.path} was to be resumed on other problems.",
                f"found: the data set's hash is {found[:12]}, and was {str(before)[:12]}",
                "bring the data set back as it was, or start a new run",
            )
        )


def _write_identity(
    configured: Configured, directory: RunDir, recipe: Recipe, *, resume: bool
) -> None:
    if resume:
        _check_same_data(directory, recipe)
        directory.update_run(status="running", steps=recipe.steps, pid=os.getpid())
        return
    directory.write_run(
        {
            "id": directory.path.name,
            "created": now(),
            "status": "running",
            "plugin": configured.chosen.task.provider,
            "task": configured.chosen.task.full_name,
            "algo": configured.run.algo,
            "model": configured.run.model,
            "steps": recipe.steps,
            "seed": recipe.seed,
            "pid": os.getpid(),
            "command": sys.argv[1:],
            "config": dict(configured.options.values),
            "origin": dict(configured.options.origin),
            "versions": versions(configured.host),
            "dataset_hash": _dataset_hash(recipe),
            "problems": len(recipe.problems),
        }
    )


def versions(host: PluginHost) -> dict[str, str]:
    """Versions of Python, rlvr and every active plugin's distribution."""
    found = {"python": platform.python_version(), "rlvr": rlvr.__version__}
    for plugin in host.plugins:
        if plugin.status == "active" and plugin.distribution:
            found[plugin.distribution] = plugin.version
    return found


@contextmanager
def _interruptible() -> Iterator[None]:
    """First Ctrl-C (or SIGTERM) cancels the run; a second one stops the process at once."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    seen = 0

    def stop() -> None:
        nonlocal seen
        seen += 1
        if seen > 1:
            os._exit(130)
        print("\nrlvr: stopping after a checkpoint; Ctrl-C again stops at once", file=sys.stderr)
        task.cancel()

    signals = (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
