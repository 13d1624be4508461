"""Counts a service's tests and those that passed, for partial credit."""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from rlvr_cvdp.results.tests import TestResult


@frozen(kw_only=True)
class Item:
    """An item of pytest: whether it passed, and how many simulations it launched."""

    name: str
    is_passed: bool
    launches: int

    @property
    def function(self) -> str:
        """Its name without parameters: items of one function launch alike."""
        return self.name.partition("[")[0]


@frozen(kw_only=True)
class Counted:
    """Tests that passed, of those that count; `is_stopped`: a limit ended the service."""

    passed: int = 0
    total: int = 0
    is_stopped: bool = False

    @property
    def share(self) -> float:
        """Partial credit from 0 to 1; none after a stop: nobody knows what was still to run."""
        return self.passed / self.total if self.total and not self.is_stopped else 0.0


def mean_share(counts: Sequence[Counted], services: int) -> float:
    """The mean of the services' shares; a service that did not run because another failed has 0."""
    return sum(count.share for count in counts) / max(services, len(counts), 1)


def read_items(notes: Sequence[Mapping[str, Any]]) -> tuple[Item, ...]:
    """
    The items that the probe noted, each once.

    A note holds the number of launches up to its time; an item passed where none of its notes
    (set-up, call, tear-down) says otherwise.
    """
    passed: dict[str, bool] = {}
    launches: dict[str, int] = {}
    before = 0
    for note in notes:
        if note.get("when") == "collect":
            continue
        name = str(note["item"])
        passed[name] = passed.get(name, True) and note["outcome"] in ("passed", "skipped")
        launches[name] = launches.get(name, 0) + int(note["launches"]) - before
        before = int(note["launches"])
    return tuple(Item(name=n, is_passed=passed[n], launches=launches[n]) for n in passed)


def count_tests(
    launches: Sequence[Sequence[TestResult]],
    items: Sequence[Item],
    *,
    collected: Sequence[str] = (),
    least: int = 1,
    runs_cocotb: bool = True,
    is_right: bool = False,
    is_stopped: bool = False,
) -> Counted:
    """
    Count the tests of a service so that an answer cannot gain by ending tests early.

    Skipped tests do not count: the harness skips them whatever the answer is. A launch without
    results counts as many tests as the largest launch, all failed; so does each launch that a
    failing item did not come to and another item of its function did, and each item that was
    collected and did not run. A service that is wrong although no test of it failed, or that has
    no tests, counts as one test more.

    Args:
        launches: The tests of each launch.
        items: pytest's items that ran; one that launched nothing and passed counts as one test.
        collected: Names of all items that pytest collected.
        least: Tests that the largest launch holds at least (`most_tests`).
        runs_cocotb: Whether the service must launch simulations; where not, an item is one test.
        is_right: Whether nothing at all is wrong with the service.
        is_stopped: Whether it was stopped from outside.
    """
    passed = total = 0
    sizes = [sum(test.counts for test in tests) for tests in launches]
    is_lost = [any(test.status == "error" for test in tests) for tests in launches]
    seen = [size for size, lost in zip(sizes, is_lost, strict=True) if not lost]
    full = max([least, *seen]) if runs_cocotb or launches else 1
    for tests, size, lost in zip(launches, sizes, is_lost, strict=True):
        total += full if lost else size
        passed += 0 if lost else sum(test.status == "passed" for test in tests)
    most: dict[str, int] = {}
    for item in items:
        most[item.function] = max(most.get(item.function, 0), item.launches)
    usual = max([1, *most.values()])
    for item in items:
        if item.is_passed:
            passed += item.launches == 0
            total += item.launches == 0
        else:
            expected = most[item.function] or 1
            total += (expected - item.launches) * full
    ran = {item.name for item in items}
    for name in set(collected) - ran:
        expected = most.get(name.partition("[")[0], usual) or 1
        total += expected * full
    if not total or (passed == total and not is_right):
        passed, total = passed + is_right, total + 1
    return Counted(passed=passed, total=total, is_stopped=is_stopped)


def most_tests(harness: Mapping[str, str]) -> int:
    """Functions marked as cocotb tests in the largest of a harness's files, at least 1."""
    texts = [text for path, text in harness.items() if path.endswith(".py") and "cocotb" in text]
    return max([1, *(_marked(text) for text in texts)])


@functools.lru_cache(maxsize=1024)
def _marked(text: str) -> int:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return 0  # pytest will say so
    return sum(_is_test(node) for node in ast.walk(tree))


def _is_test(node: ast.AST) -> bool:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    marks = [mark.func if isinstance(mark, ast.Call) else mark for mark in node.decorator_list]
    return any(ast.unparse(mark) in ("cocotb.test", "cocotb.decorators.test") for mark in marks)
