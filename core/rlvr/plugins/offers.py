"""The hooks that yield records, which record each yields, and how they are listed."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import attrs

import rlvr.specs as specs

OFFERS: dict[str, type[Any]] = {
    "rlvr_tasks": specs.TaskSpec,
    "rlvr_rewards": specs.RewardSpec,
    "rlvr_curricula": specs.CurriculumSpec,
    "rlvr_samplers": specs.SamplerSpec,
    "rlvr_losses": specs.LossSpec,
    "rlvr_advantages": specs.AdvantageSpec,
    "rlvr_algorithms": specs.AlgorithmSpec,
    "rlvr_backends": specs.BackendSpec,
    "rlvr_teachers": specs.TeacherSpec,
    "rlvr_checkpointers": specs.CheckpointerSpec,
    "rlvr_callbacks": specs.CallbackSpec,
    "rlvr_checks": specs.Check,
    "rlvr_commands": specs.CommandSpec,
}
"""Offering hook to the record it yields, in the order in which offers are listed."""


def label(hook: str) -> str:
    """The word for a hook's records: `tasks` for `rlvr_tasks`."""
    return hook.removeprefix("rlvr_")


def checked(hook: str, yielded: object, provider: str) -> list[Any]:
    """
    The records that one plugin yielded from one hook, each marked with its provider.

    Raises:
        TypeError: It is no iterable, or holds something else than the hook's record.
        ValueError: One name twice.
    """
    expected = OFFERS[hook]
    if inspect.iscoroutine(yielded):
        yielded.close()
    if isinstance(yielded, str | bytes) or not isinstance(yielded, Iterable):
        raise TypeError(
            f"{hook} gave {type(yielded).__name__}, expected an iterable of {expected.__name__}"
        )
    records: dict[str, Any] = {}
    for record in yielded:
        if not isinstance(record, expected):
            raise TypeError(f"{hook} yielded {type(record).__name__}, expected {expected.__name__}")
        if record.name in records:
            raise ValueError(f"{hook} yielded the name {record.name!r} twice")
        records[record.name] = attrs.evolve(record, provider=provider)
    return list(records.values())
