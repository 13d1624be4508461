"""The base of all contracts, whose tests may not be overridden, and helpers of the kit."""

from __future__ import annotations

import asyncio
import inspect
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from rlvr.errors import ConfigError
from rlvr.testing.process import Shared

if TYPE_CHECKING:
    from rlvr.parts import Part

P = TypeVar("P")


class Contract:
    """
    Base of all contracts.

    A subclass gives factories and sets class attributes. Overriding one of the tests is refused,
    unless the override is marked `pytest.mark.xfail(reason=...)`: a known failure is told, not
    hidden.
    """

    def setup_method(self) -> None:
        """Remember what the process shares: pytest calls it before each test."""
        self._before = Shared()

    def teardown_method(self) -> None:
        """Restore it, so that the next test sees that a part changes it again."""
        if (before := getattr(self, "_before", None)) is not None:  # a subclass may have its own
            before.restore()

    def repeatable(self) -> Any:
        """JSON values of the part that a new process has to get again; None: there are none."""
        return None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, value in vars(cls).items():
            inherited = any(
                name in vars(base)
                for base in cls.__mro__[1:]
                if base.__module__.startswith("rlvr.testing.")
            )
            if name.startswith("test_") and inherited and not _has_reasoned_xfail(value):
                raise TypeError(
                    f"{cls.__name__}.{name} overrides a promise of the contract. Where it cannot "
                    "hold yet, mark the override pytest.mark.xfail(reason=...)."
                )


def _has_reasoned_xfail(test: Any) -> bool:
    marks = getattr(test, "pytestmark", [])
    return any(mark.name == "xfail" and mark.kwargs.get("reason") for mark in marks)


@asynccontextmanager
async def opened(part: P) -> AsyncIterator[P]:
    """
    The part, open while the block runs and closed afterwards, also when the block raises.

    A run does the same: parts may own containers, engines or servers. A part that is no async
    context manager is given as it is.
    """
    # here, not above: they need numpy, and a PluginContract promises a light import
    from rlvr.assembly.build_part import entered
    from rlvr.parts import Part

    if isinstance(part, AbstractAsyncContextManager):
        async with AsyncExitStack() as stack:
            yield await entered(stack, part, part.kind if isinstance(part, Part) else "part")
    else:
        yield part


def on_open(
    factory: str, *, needs_torch: bool = False
) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """
    Make a test of a coroutine function `(self, part, fixtures...)`.

    The factory's part is open meanwhile. With `needs_torch` the test is skipped without torch.
    """

    def decorate(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        own, _part, *fixtures = inspect.signature(test).parameters.values()

        @wraps(test)
        def run(self: Any, **given: Any) -> None:
            async def body() -> None:
                async with opened(getattr(self, factory)()) as part:
                    await test(self, part, **given)

            if needs_torch:
                # here: rlvr.testing.tools needs pytest, and a plugin's tests may use `opened` alone
                from rlvr.testing.tools import require_torch

                require_torch()
            asyncio.run(body())

        del run.__wrapped__  # pytest takes parameters for fixtures: it is to see these alone
        run.__signature__ = inspect.Signature([own, *fixtures])  # type: ignore[attr-defined]
        return run

    return decorate


class NoVerdictError(AssertionError):
    """A reward gave no verdict, or a wrong key of it: no fault of the task that it judged."""


async def judged(reward: Any, problem: Any, trajectory: Any) -> Any:
    """
    The outcome of a reward, whose `__call__` may be a plain function or a coroutine.

    Raises:
        NoVerdictError: It returned what a run refuses, or raised a ConfigError.
    """
    from rlvr.verification.verdict import fault_of_outcome  # here: it needs numpy

    try:
        found = reward(problem, trajectory)
        found = await found if inspect.isawaitable(found) else found
    except ConfigError as error:  # which refuses no answer: a run counts it as a failure to judge
        raise NoVerdictError(f"a verdict, or VerifierError; it raised {error!r}") from error
    if fault := fault_of_outcome(found):
        raise NoVerdictError(f"the reward gave {fault}")
    return found


def check_part(part: object, base: type[Part]) -> None:
    """Fail unless the part derives from the base class of its kind and no name is misspelt."""
    # here, not above: rlvr.parts needs numpy, and a PluginContract promises a light import
    from rlvr.parts.base import NearMissWarning, Part, check_class, check_object

    assert isinstance(part, base), f"{part!r} does not derive from rlvr.{base.__name__}"
    with warnings.catch_warnings():
        warnings.simplefilter("error", NearMissWarning)
        for cls in type(part).__mro__:
            if issubclass(cls, Part):
                check_class(cls)
        check_object(part)


def check_declarations(part: object) -> None:
    """Fail unless the part's declarations and methods agree; a run would refuse it."""
    from rlvr.border.declared import fault_of_declarations

    fault = fault_of_declarations(part)
    assert not fault, fault


def same(what: str, found: Any, wanted: Any) -> None:
    """Fail in words unless both are equal; `what` names what was found."""
    assert found == wanted, f"{what}: {found!r:.100}, not {wanted!r:.100}"


def close(what: str, found: Any, wanted: Any, most: float) -> None:
    """Fail in words unless numbers of one shape differ by at most so much."""
    import numpy as np  # here: a PluginContract promises a light import

    one, other = np.asarray(found, float), np.asarray(wanted, float)
    same(f"{what}, the shape", one.shape, other.shape)
    gap = float(np.abs(one - other).max(initial=0.0))
    assert gap <= most, f"{what}: the largest difference is {gap:.3g}, at most {most:g} is allowed"


def differing(one: Any, other: Any) -> str:
    """The fields in which two records of one kind differ, as a list in words."""
    names = [field.name for field in attrs.fields(type(one))]
    return ", ".join(name for name in names if getattr(one, name) != getattr(other, name))


def not_given(contract: Contract, factory: str) -> NotImplementedError:
    """The error of a contract's factory that the subclass does not define."""
    return NotImplementedError(f"{type(contract).__name__} must define {factory}")
