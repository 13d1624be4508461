"""What all contracts have in common: their tests are promises, so they may not be overridden."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

P = TypeVar("P")


class Contract:
    """
    Base of all contracts.

    A subclass gives factories and sets class attributes. Overriding one of the tests is refused,
    unless the override is marked `pytest.mark.xfail(reason=...)`: a known failure is told, not
    hidden.
    """

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
    The part, entered and left if it is an async context manager, as it is otherwise.

    What the recipe does for a run: parts that own containers, engines or servers are opened
    before use and closed afterwards, also when the body raises.
    """
    if isinstance(part, AbstractAsyncContextManager):
        async with part as entered:
            yield entered
    else:
        yield part


def not_given(contract: Contract, factory: str) -> NotImplementedError:
    """The error of a factory that the subclass forgot."""
    return NotImplementedError(f"{type(contract).__name__} must define {factory}")
