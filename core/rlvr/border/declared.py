"""Compare what a part declares with the methods it overrides, in the contract kit and in a run."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from functools import lru_cache, singledispatch

import attrs
import numpy as np
from attrs import frozen

from rlvr.border.calls import Border, shown
from rlvr.parts import (
    Advantage,
    Backend,
    Episode,
    LearningPart,
    Loss,
    Policy,
    RewardFn,
    RewardWrapper,
    Task,
    Teacher,
    Tokenizer,
)

_FIELDS = {
    "bool": bool,
    "int": int | np.integer,
    "str": str,
    "float | None": int | float | np.number | None,
    "tuple[float, ...] | None": tuple | None,
}
"""Classes of a record's field, by its annotation."""


@frozen
class Declared:
    """
    An ability: the attribute that declares it, its present value, and the methods it requires.

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
    at = Border(part, kind, "its declarations", promised=promised)
    at.check(at.call(fault_of_declarations, part))


def fault_of_declarations(part: object) -> str:
    """The first difference between what a part declares and what it defines; "" for none."""
    cls = type(part)
    of = cls.__qualname__
    if fault := _fault_of_values(part, _flags_and_records(cls)):  # type: ignore[arg-type]
        return f"{of}.{fault}"
    if late := _never_awaited(cls):  # type: ignore[arg-type]  # mypy: no class is hashable
        return f"{of}.{late}, which is async and never awaited: write it as a plain method"
    for one in _declared(part):
        if isinstance(one, str):
            return one
        own = [name for name in one.methods if overrides(part, name)]
        lacking = [name for name in one.methods if name not in own]
        if one.is_on and lacking:
            return f"{one.name} is declared, and {of} does not define {', '.join(lacking)}"
        if own and not one.is_on and one.is_needed and not _is_said(part, one.name, own):
            return f"{of} defines {', '.join(own)}, and does not declare {one.name}"
    fault = _fault_of_values(part, _numbers_and_texts(cls))  # type: ignore[arg-type]
    return f"{of}.{fault}" if fault else ""


def _kind(cls: type) -> type:
    """The class in `rlvr.parts` that defines this kind of part, else the class itself."""
    return next((base for base in cls.__mro__ if base.__module__.startswith("rlvr.parts.")), cls)


def _fault_of_values(part: object, promised: Iterable[tuple[str, type]]) -> str:
    """The first value of another class than its kind's default."""
    for name, record in promised:
        wanted = int | np.integer if record is int else record
        if not isinstance(value := getattr(part, name), wanted):
            words = {bool: "neither True nor False", int: "no whole number", str: "no text"}
            no = words.get(record, f"no rlvr.{record.__name__}")
            return f"{name} = {shown(value)}, which is {no}"
        for one in attrs.fields(record) if attrs.has(record) else ():
            if not isinstance(found := getattr(value, one.name), _FIELDS.get(one.type, object)):
                return f"{name}.{one.name} = {shown(found)}, and {one.type} was expected"
        if record is Tokenizer and (fault := fault_of_declarations(value)):
            return f"{name}: {fault}"
    return ""


@lru_cache  # a task gives an episode for each rollout, all of one class
def _flags_and_records(cls: type) -> list[tuple[str, type]]:
    """Names of flags and records that its kinds give a default, with the default's class."""
    defaults = [item for kind in _kinds(cls) for item in vars(kind).items()]
    typed = [(name, type(default)) for name, default in defaults]
    return [(name, record) for name, record in typed if record is bool or attrs.has(record)]


@lru_cache
def _numbers_and_texts(cls: type) -> list[tuple[str, type]]:
    """Names of attributes that are an int or a str in its kinds."""
    plain: dict[str, type] = {"int": int, "str": str}
    said = [item for kind in _kinds(cls) for item in inspect.get_annotations(kind).items()]
    return [(name, plain[kind]) for name, kind in said if kind in plain]


def _kinds(cls: type) -> list[type]:
    return [base for base in reversed(cls.__mro__) if base.__module__.startswith("rlvr.parts.")]


@lru_cache
def _never_awaited(cls: type) -> str:
    """The name of a method that is async, and plain in its kind: a coroutine is always true."""
    for name, default in inspect.getmembers(_kind(cls), inspect.isfunction):
        if name.startswith("_") or inspect.iscoroutinefunction(default):
            continue
        if inspect.isasyncgenfunction(default):
            continue
        if inspect.iscoroutinefunction(getattr(cls, name)):
            return name
    return ""


@singledispatch
def _declared(part: object) -> Iterator[Declared | str]:
    """By kind of part: the abilities that it may declare, and faults between two of its methods."""
    yield from ()


@_declared.register
def _of_task(part: Task) -> Iterator[Declared | str]:
    of = type(part).__qualname__
    found = ("discover", "discovered")
    yield Declared("discovers_problems", part.discovers_problems, found)
    option = part.curriculum_option is not None
    yield Declared("curriculum_option", option, ("curriculum",), is_needed=False)
    if overrides(part, "prove") and not overrides(part, "probes"):
        yield f"{of} defines prove, which is asked of probes, and does not define probes"
    if part.is_offline and part.discovers_problems:
        yield f"{of} is offline, so its trajectories exist already, and discovers problems"


@_declared.register
def _of_episode(part: Episode) -> Iterator[Declared | str]:
    yield Declared("writes_tokens", part.writes_tokens, ("next_tokens", "take_tokens"))


@_declared.register
def _of_reward(part: RewardFn) -> Iterator[Declared | str]:
    yield Declared("has_second_opinion", part.has_second_opinion, ("second_opinion",))


@_declared.register
def _of_wrapper(part: RewardWrapper) -> Iterator[Declared | str]:
    of, has = type(part).__qualname__, part.inner.has_second_opinion
    if part.has_second_opinion != (has or overrides(part, "second_opinion")):
        inner = "has" if has else "lacks"
        yield f"{of}.has_second_opinion = {part.has_second_opinion}; the reward inside {inner} it"


@_declared.register
def _of_backend(part: Backend) -> Iterator[Declared | str]:
    can = part.capabilities
    yield Declared("capabilities.eval_loss", can.eval_loss, ("eval_loss",))
    yield Declared("capabilities.partial_rollouts", can.partial_rollouts, ("live_policy",))


@_declared.register
def _of_teacher(part: Teacher) -> Iterator[Declared | str]:
    tells = part.capabilities
    score = ("answer",) if tells.reads_data else ("score",)
    yield Declared("capabilities.reads_data", tells.reads_data, ("answer",))
    yield Declared("capabilities.has_scores", tells.has_scores, score)
    if not tells.reads_data:
        yield Declared("capabilities.has_states", tells.has_states, ("states",))


@_declared.register
def _of_policy(part: Policy) -> Iterator[Declared | str]:
    yield Declared("can_export", part.can_export, ("export_weights",))
    yield Declared("makes_rollouts", part.makes_rollouts, ("rollout",))
    # One that makes whole rollouts gives no tokens.
    if not part.makes_rollouts and (fault := _fault_of_values(part, [("tokenizer", Tokenizer)])):
        yield f"{type(part).__qualname__}.{fault}"


@_declared.register
def _of_tokenizer(part: Tokenizer) -> Iterator[Declared | str]:
    yield Declared("can_save", part.can_save, ("save",))
    yield Declared("has_bytes", False, ("bytes_of",))  # the default may be exact as well


@_declared.register
def _of_learning_part(part: LearningPart) -> Iterator[Declared | str]:
    pair = [name for name in ("adapted", "with_memory") if overrides(part, name)]
    if len(pair) == 1:
        of = type(part).__qualname__
        yield f"{of} defines {pair[0]} alone: adapted and with_memory need each other"


@_declared.register
def _of_advantage(part: Advantage) -> Iterator[Declared | str]:
    needs = part.needs
    if part.refill_limit < 0:
        yield f"{type(part).__qualname__}.refill_limit = {part.refill_limit}, which is below 0"
    yield Declared("refill_limit", part.refill_limit > 0, ("keep",), is_needed=False)
    is_asked = bool(needs.annotations or needs.distributions or needs.provides)
    yield Declared("needs", is_asked, ("per_token",), is_needed=False)
    yield from _of_learning_part(part)
    if needs.outputs or not needs.logprobs:
        of = type(part).__qualname__
        yield f"{of}.needs asks for outputs of the forward pass, which losses alone get"


@_declared.register
def _of_loss(part: Loss) -> Iterator[Declared | str]:
    of = type(part).__qualname__
    yield from _of_learning_part(part)
    if part.needs.provides:
        yield f"{of}.needs says provides, which advantages alone can (per_token)"
    if not (part.needs.logprobs or part.needs.outputs):
        yield f"{of}.needs asks for no output of the forward pass: it could not train"


def _is_said(part: object, name: str, methods: list[str]) -> bool:
    """
    Whether the part itself switches the ability off, as its options may.

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
