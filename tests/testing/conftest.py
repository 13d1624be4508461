"""Runs a contract by hand, to see which of its promises a part breaks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest
from attrs import define, field

from rlvr.testing.contract import Contract

Part = TypeVar("Part")


class Broken(Protocol):
    """
    Names of the promises that a part does not hold, without `test_`.

    The contract is tried on what the factories make: `broken(LossContract, make_loss=MyLoss)`;
    where one promise is named, on that one alone.
    """

    def __call__(
        self, contract: type[Contract], promise: str = "", /, **names: Any
    ) -> set[str]: ...


@define
class Faults:
    """Decorates a part that has a planted fault with the promises that it breaks."""

    cases: list[tuple[Any, str]] = field(factory=list)

    def __call__(self, *promises: str) -> Callable[[Part], Part]:
        def plant(part: Part) -> Part:
            self.cases += [(part, promise) for promise in promises]
            return part

        return plant


def contract_of(contract: type[Contract], **names: Any) -> Any:
    """The contract with these factories and attributes."""
    plain = {n: staticmethod(value) if callable(value) else value for n, value in names.items()}
    return type("Case", (contract,), plain)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """The machine is shared and the tensors are tiny."""
    pytest.importorskip("torch").set_num_threads(1)


@pytest.fixture
def broken(tmp_path: Path) -> Broken:
    """Run a contract on a part, and tell what fails."""
    folders = count()

    def run(contract: type[Contract], promise: str = "", /, **names: Any) -> set[str]:
        contract = contract_of(contract, **names)
        failed = set()
        for name, test in inspect.getmembers(contract, inspect.isfunction):
            if not name.startswith("test_") or promise not in ("", name.removeprefix("test_")):
                continue
            for arguments in _cases(test, tmp_path, folders):
                case = contract()
                case.setup_method()
                try:
                    test(case, **arguments)
                except pytest.skip.Exception:
                    continue
                except (Exception, pytest.fail.Exception) as error:  # any failure counts
                    print(f"{name}: {error!r}"[:500])  # shown where a test of the kit fails
                    failed.add(name.removeprefix("test_"))
                finally:
                    case.teardown_method()  # what a planted fault changed in this process
        return failed

    return run


def _cases(test: Any, tmp_path: Path, folders: Iterator[int]) -> Iterator[dict[str, Any]]:
    sets: list[dict[str, Any]] = [{}]
    for mark in getattr(test, "pytestmark", []):
        if mark.name == "parametrize":
            sets = [{mark.args[0]: value} for value in mark.args[1]]
    for values in sets:
        if "tmp_path" in inspect.signature(test).parameters:
            folder = tmp_path / str(next(folders))
            folder.mkdir()
            values = {**values, "tmp_path": folder}
        yield values
