"""The contents of `run.json`, and the options that a resumed run must share with it."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import rlvr
from rlvr.assembly.build_part import build
from rlvr.assembly.configured import Configured
from rlvr.assembly.recipe import Recipe, build_context
from rlvr.border.promises import checkpoints_of
from rlvr.config.layers import DEFAULT
from rlvr.errors import CheckpointError, ConfigError, counted
from rlvr.log import get
from rlvr.parts import BuildContext
from rlvr.plugins.host import PluginHost
from rlvr.records.lineage import Lineage, record_of
from rlvr.records.run_directory import RunDir, now

log = get(__name__)

FREE_ON_RESUME = ("run.steps", "run.callbacks", "eval.every", "verify.", "checkpoint.", "parity.")
"""Options that a resumed run may change, with those of callbacks: they decide no update."""
_NAMED = 8


def check_unchanged(configured: Configured, before: dict[str, Any], directory: Path) -> None:
    """
    Refuse to resume with options that would make it another run.

    Raises:
        ConfigError: Names the options that changed, the first eight of them.
    """
    after = configured.options.values
    is_free: tuple[str, ...] = FREE_ON_RESUME
    if after["train.decay"] != "constant":  # the schedule of learning rates ends with the run
        is_free = tuple(key for key in FREE_ON_RESUME if key != "run.steps")
    others = {p.option_namespace for p in configured.chosen.parts() if p.kind != "callback"}
    told = {spec.option_namespace for spec in configured.host.callbacks()} - others
    is_free += tuple(f"{namespace}." for namespace in told)
    if changed := [key for key in _changed(configured, before) if not key.startswith(is_free)]:
        named = [f"{k} ({before.get(k)!r} -> {after.get(k)!r})" for k in changed[:_NAMED]]
        more = f" and {len(changed) - _NAMED} more" if len(changed) > _NAMED else ""
        raise ConfigError(
            f"the run {directory} was to be resumed with other options.",
            f"changed: {', '.join(named)}{more}",
            "leave them as they were, or start a new run",
        )


def check_ahead(configured: Configured, directory: Path) -> None:
    """
    Refuse to resume with fewer steps than the run's last checkpoint has.

    Raises:
        ConfigError: Names both, before anything in the run's folder changes.
    """
    spec, steps = configured.chosen.checkpointer, configured.run.steps
    assert spec is not None, "configure(needs='run') finds one"
    checkpointer = build(configured, spec, build_context(configured, directory))
    done = 0
    for one in checkpoints_of(checkpointer):
        if one.step > steps:
            with suppress(CheckpointError):  # of a damaged one nothing is known
                checkpointer.verify(one)
                done = one.step
    if done > steps:
        raise ConfigError(
            f"the run {directory} was to be resumed with run.steps={steps} "
            f"(from {configured.options.origin['run.steps']}).",
            f"found: it has done {counted(done, 'step')}",
            "give more steps, or leave them out to go on as it was begun",
        )


def _changed(configured: Configured, before: Mapping[str, Any]) -> list[str]:
    """Options with another value than before (the run's first), but new ones at their default."""
    values, origin = configured.options.values, configured.options.origin
    differs = [k for k in {*before, *values} if _plain(before.get(k)) != _plain(values.get(k))]
    told = [key for key in differs if key in before or origin[key] != DEFAULT]
    return sorted(told, key=lambda key: (not key.startswith("run."), key))


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def close_identity(directory: RunDir, outcome: str, step: int) -> None:
    """
    Write how the run ended; where that fails, the error that ended it is the one to show.

    A resume that was refused before it was marked as running leaves the record as it was.
    """
    if (directory.path / "run.json").exists():
        try:
            record = directory.read_run()
            if (record.get("status"), record.get("pid")) == ("running", os.getpid()):
                directory.update_run(status=outcome, finished=now(), step=step)
        except (ConfigError, OSError) as error:
            log.error("outcome_not_written", outcome=outcome, error=str(error))


def _dataset_hash(recipe: Recipe) -> str:
    digests = "".join(p.id + p.digest for p in (*recipe.problems, *recipe.eval_problems))
    return hashlib.sha256(digests.encode()).hexdigest()


def _check_same_data(directory: RunDir, recipe: Recipe) -> None:
    before, found = directory.read_run().get("dataset_hash"), _dataset_hash(recipe)
    if before != found:
        raise ConfigError(
            f"the run {directory.path} was to be resumed on other problems.",
            f"found: the data set's hash is {found[:12]}, and was {str(before)[:12]}",
            "bring the data set back as it was, or start a new run",
        )


def _with_changes(configured: Configured, directory: RunDir) -> dict[str, Any]:
    """The record with the options that this resume changes: the next one goes on with them."""
    record, options = directory.read_run(), configured.options
    config, origin = record["config"], record.get("origin", {})
    changed = [key for key in _changed(configured, config) if key in options.values]
    config |= {key: options.values[key] for key in changed}
    return {**record, "origin": {**origin, **{key: options.origin[key] for key in changed}}}


def write_identity(
    configured: Configured,
    directory: RunDir,
    recipe: Recipe,
    context: BuildContext,
    *,
    start: Lineage,
    resume: bool,
) -> None:
    """
    Write `run.json` of a run that begins; of a resumed one, check its data and mark it.

    `start` is what the model was trained on before.
    """
    if resume:
        _check_same_data(directory, recipe)
        told = {**record_of(start, recipe.problems), **_with_changes(configured, directory)}
        directory.write_run(
            {**told, "status": "running", "steps": recipe.steps, "pid": os.getpid()}
        )
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
            "model_spec": context.model,
            "steps": recipe.steps,
            "seed": recipe.seed,
            "pid": os.getpid(),
            "command": sys.argv[1:],
            "config": dict(configured.options.values),
            "origin": dict(configured.options.origin),
            "versions": versions(configured.host),
            "dataset": Path(configured.run.dataset).name or configured.chosen.task.full_name,
            "dataset_hash": _dataset_hash(recipe),
            "problems": len(recipe.problems),
            "batch_invariant": recipe.backend.capabilities.batch_invariant,
            **record_of(start, recipe.problems),
        }
    )


def versions(host: PluginHost) -> dict[str, str]:
    """Versions of Python, rlvr and every active plugin's distribution."""
    found = {"python": platform.python_version(), "rlvr": rlvr.__version__}
    for plugin in host.plugins:
        if plugin.status == "active" and plugin.distribution:
            found[plugin.distribution] = plugin.version
    return found
