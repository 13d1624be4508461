"""Compares what a part declares with the methods it overrides, in the kit and in a run."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import lru_cache

import attrs
from attrs import frozen

from rlvr.border.calls import Border, shown
from rlvr.parts import (
    Advantage,
    Backend,
    Episode,
    LearningPart,
    Loss,
    Part,
    Policy,
    RewardFn,
    RewardWrapper,
    Task,
    Teacher,
    Tokenizer,
)


@frozen
class Declared:
    """
    One ability: what declares it, whether it is declared now, and the methods that it asks for.

    Attributes:
        name: The attribute, "capabilities.eval_loss" for a field of a record.
        is_on: Whether the part has it now; its options may say no.
        methods: What it asks for.
        is_needed: Whether the methods do nothing unless it is declared.
    """

    name: str
    is_on: bool
    methods: tuple[str, ...]
    is_needed: bool = True


def overrides(part: object, method: str) -> bool:
    """Whether a part has a method of its own in place of its kind's default."""
    return getattr(type(part), method) is not getattr(_kind(type(part)), method)


def check_declarations(part: object, kind: str) -> None:
    """
    Refuse a part whose declarations and methods differ.

    Raises:
        PartError: Names plugin, part and both sides.
    """
    promised = "what it declares it defines, and what it defines it declares"
    Border(part, kind, "its declarations", promised=promised).check(fault_of_declarations(part))


def fault_of_declarations(part: object) -> str:
    """What a part declares and does not define, or defines and does not declare; "": nothing."""
    if not isinstance(part, Part):
        return ""
    of = type(part).__qualname__
    if fault := _fault_of_values(part):
        return f"{of}.{fault}"
    if late := _never_awaited(type(part)):
        return f"{of}.{late}, which is async and never awaited: write it as a plain method"
    for one in _declared(part):
        own = [name for name in one.methods if overrides(part, name)]
        lacking = [name for name in one.methods if name not in own]
        if one.is_on and lacking:
            return f"{one.name} is declared, and {of} does not define {', '.join(lacking)}"
        if own and not one.is_on and one.is_needed and not _is_said(part, one.name, own):
            return f"{of} defines {', '.join(own)}, and does not declare {one.name}"
    return next(_others(part), "")


def _kind(cls: type) -> type:
    """The class in `rlvr.parts` that says what a part of this class may be asked."""
    return next(base for base in cls.__mro__ if base.__module__.startswith("rlvr.parts."))


def _fault_of_values(part: Part) -> str:
    """What is wrong with the values of flags and records, which a kind's defaults are."""
    for name, record in _promised_values(type(part)):
        if not isinstance(value := getattr(part, name), record):
            no = "neither True nor False" if record is bool else f"no rlvr.{record.__name__}"
            return f"{name} = {shown(value)}, which is {no}"
    return ""


@lru_cache  # a task gives an episode for each rollout, all of one class
def _promised_values(cls: type) -> list[tuple[str, type]]:
    """Names of flags and records that its kinds give a default, with the default's class."""
    kinds = [base for base in cls.__mro__ if base.__module__.startswith("rlvr.parts.")]
    defaults = [item for kind in reversed(kinds) for item in vars(kind).items()]
    typed = [(name, type(default)) for name, default in defaults]
    return [(name, record) for name, record in typed if record is bool or attrs.has(record)]


@lru_cache
def _never_awaited(cls: type) -> str:
    """The name of a method that is async, and plain in its kind: a coroutine is always true."""
    either = {"second_opinion"} if issubclass(cls, RewardFn) else set()
    for name, default in inspect.getmembers(_kind(cls), inspect.isfunction):
        if name.startswith("_") or name in either or inspect.iscoroutinefunction(default):
            continue
        if inspect.isasyncgenfunction(default):
            continue
        if inspect.iscoroutinefunction(getattr(cls, name)):
            return name
    return ""


def _declared(part: Part) -> Iterator[Declared]:
    if isinstance(part, Task):
        found = ("discover", "discovered")
        yield Declared("discovers_problems", part.discovers_problems, found)
        option = part.curriculum_option is not None
        yield Declared("curriculum_option", option, ("curriculum",), is_needed=False)
    if isinstance(part, Episode):
        tokens = ("next_tokens", "take_tokens")
        yield Declared("writes_tokens", part.writes_tokens, tokens)
    if isinstance(part, RewardFn):
        is_inner = isinstance(part, RewardWrapper) and part.inner.has_second_opinion
        is_on = part.has_second_opinion and not is_inner
        yield Declared("has_second_opinion", is_on, ("second_opinion",))
    if isinstance(part, Backend):
        can = part.capabilities
        yield Declared("capabilities.eval_loss", can.eval_loss, ("eval_loss",))
        yield Declared("capabilities.partial_rollouts", can.partial_rollouts, ("live_policy",))
    if isinstance(part, Teacher):
        tells = part.capabilities
        score = ("answer",) if tells.reads_data else ("score",)
        yield Declared("capabilities.reads_data", tells.reads_data, ("answer",))
        yield Declared("capabilities.has_scores", tells.has_scores, score)
        if not tells.reads_data:
            yield Declared("capabilities.has_states", tells.has_states, ("states",))
    if isinstance(part, Policy):
        yield Declared("can_export", part.can_export, ("export_weights",))
    if isinstance(part, Tokenizer):
        yield Declared("can_save", part.can_save, ("save",))
        yield Declared("has_bytes", False, ("bytes_of",))  # the default may be exact as well
    if isinstance(part, Advantage):
        yield Declared("refill_limit", part.refill_limit > 0, ("keep",), is_needed=False)
        needs = part.needs
        is_asked = bool(needs.annotations or needs.distributions or needs.provides)
        yield Declared("needs", is_asked, ("per_token",), is_needed=False)


def _others(part: Part) -> Iterator[str]:
    """What two methods, or fields of `needs`, have to do with each other."""
    of = type(part).__qualname__
    if isinstance(part, Task) and overrides(part, "prove") and not overrides(part, "probes"):
        yield f"{of} defines prove, which is asked of probes, and does not define probes"
    if isinstance(part, Task) and part.is_offline and part.discovers_problems:
        yield f"{of} is offline, so its trajectories exist already, and discovers problems"
    if isinstance(part, LearningPart):
        pair = [name for name in ("adapted", "with_memory") if overrides(part, name)]
        if len(pair) == 1:
            yield f"{of} defines {pair[0]} alone: adapted and with_memory need each other"
    if isinstance(part, Advantage) and (part.needs.outputs or not part.needs.logprobs):
        yield f"{of}.needs asks for outputs of the forward pass, which losses alone get"
    if isinstance(part, Loss):
        if part.needs.provides:
            yield f"{of}.needs says provides, which advantages alone can (per_token)"
        if not (part.needs.logprobs or part.needs.outputs):
            yield f"{of}.needs asks for no output of the forward pass: it could not train"


def _is_said(part: Part, name: str, methods: list[str]) -> bool:
    """
    Whether the part says of itself that the ability is off, as its options may.

    A flag says so by being set; a record of several fields where it is set with the object, by a
    property, or by a class below the one that defines the methods.
    """
    flag, _, field = name.partition(".")
    classes = type(part).__mro__[: type(part).__mro__.index(_kind(type(part)))]
    if flag in getattr(part, "__dict__", {}):
        return True
    owner = next((cls for cls in classes if flag in vars(cls)), None)
    if owner is None or not field or hasattr(type(vars(owner)[flag]), "__get__"):
        return owner is not None
    defining = next(cls for cls in classes if any(method in vars(cls) for method in methods))
    return classes.index(owner) < classes.index(defining)
