"""Partial credit, against numbers worked by hand, and what a cheat would try with it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr_cvdp.results.share import (
    Counted,
    Item,
    count_tests,
    mean_share,
    most_tests,
    read_items,
)
from rlvr_cvdp.results.tests import TestResult

LOST = (TestResult(name="", status="error"),)


def launch(passed: int, failed: int = 0, skipped: int = 0) -> tuple[TestResult, ...]:
    statuses = ["passed"] * passed + ["failed"] * failed + ["skipped"] * skipped
    return tuple(TestResult(name=f"t{i}", status=s) for i, s in enumerate(statuses))


def item(name: str, launches: int = 1, *, passed: bool = True) -> Item:
    return Item(name=name, is_passed=passed, launches=launches)


def test_tests_of_all_launches_are_summed_and_skipped_ones_left_out():
    """(2 + 3) of (2 + 1 + 3 + 1) tests: 5/7; the three skipped ones are in neither number."""
    items = [item("r[0]", passed=False), item("r[1]", passed=False)]
    counted = count_tests([launch(2, 1, skipped=1), launch(3, 1, skipped=2)], items)
    assert (counted.passed, counted.total) == (5, 7)
    assert counted.share == pytest.approx(5 / 7)


def test_a_launch_without_results_counts_as_the_largest_one():
    """Of three launches of 10 tests one crashed: 10 + 4 of 30, not of 21."""
    items = [item("r[0]"), item("r[1]", passed=False), item("r[2]", passed=False)]
    counted = count_tests([launch(10), LOST, launch(4, 6)], items)
    assert (counted.passed, counted.total) == (14, 30)
    assert count_tests([LOST], [item("r", passed=False)], least=8).total == 8


def test_an_item_that_did_not_build_counts_as_a_launch_of_its_siblings():
    """`r[1]` broke before its two launches of 3 tests: 6 of 12."""
    items = [item("r[0]", 2), item("r[1]", 0, passed=False)]
    assert count_tests([launch(3), launch(3)], items) == Counted(passed=6, total=12)


def test_an_item_that_ended_at_its_first_launch_counts_all_of_its_siblings():
    """`r[1]` gave up after one of two launches: 3 + 3 + 2 of 12."""
    items = [item("r[0]", 2), item("r[1]", 1, passed=False)]
    counted = count_tests([launch(3), launch(3), launch(2, 1)], items)
    assert counted == Counted(passed=8, total=12)


def test_items_that_were_collected_and_never_ran_count():
    """One of four items ran and passed its 5 tests: 5 of 20."""
    names = [f"r[{i}]" for i in range(4)]
    counted = count_tests([launch(5)], [item("r[0]")], collected=names)
    assert counted == Counted(passed=5, total=20)


def test_items_of_a_service_without_simulations_are_tests():
    """A lint service's three items, of which one failed and one never ran: 1 of 3."""
    items = [item("lint", 0), item("wires", 0, passed=False)]
    counted = count_tests([], items, collected=["lint", "wires", "cells"], runs_cocotb=False)
    assert counted == Counted(passed=1, total=3)


def test_a_wrong_service_never_has_the_full_share():
    """All 4 tests passed and the service failed: 4 of 5. A service without tests is one."""
    items = [item("r", passed=False)]
    assert count_tests([launch(4)], items) == Counted(passed=4, total=5)
    assert count_tests([launch(4)], [item("r")], is_right=True) == Counted(passed=4, total=4)
    assert count_tests([], [], runs_cocotb=False, is_right=True) == Counted(passed=1, total=1)
    assert count_tests([], [], runs_cocotb=False) == Counted(passed=0, total=1)


def test_a_stopped_service_gets_no_share():
    """9 of 10 tests were seen to pass when time ran out: the numbers stay, the credit is 0."""
    counted = count_tests([launch(9, 1)], [item("r", passed=False)], is_stopped=True)
    assert (counted.passed, counted.total, counted.share) == (9, 10, 0.0)


def test_services_count_alike():
    """Half of the simulation, all of the lint: 3/4; with a third service that never ran: 1/2."""
    counts = [Counted(passed=20, total=40), Counted(passed=1, total=1)]
    assert mean_share(counts, 2) == pytest.approx(0.75)
    assert mean_share(counts, 3) == pytest.approx(0.5)
    assert mean_share([], 2) == 0.0


@given(
    sizes=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=2, max_size=6),
    ended=st.sets(st.integers(0, 5)),
    how=st.sampled_from(["crash", "no build", "finish"]),
)
def test_ending_launches_early_never_pays(sizes, ended, how):
    """However an answer ends some launches, its share is at most that of letting them run."""
    tests = max(p + f for p, f in sizes)
    honest = [launch(p, tests - p) for p, _ in sizes]
    names = [f"r[{i}]" for i in range(len(sizes))]
    items = [
        item(n, passed=all(t.status == "passed" for t in h))
        for n, h in zip(names, honest, strict=True)
    ]
    fair = count_tests(honest, items, collected=names, least=tests)
    cheating, ran = [], []
    for index, (name, tests_of) in enumerate(zip(names, honest, strict=True)):
        if index not in ended:
            cheating.append(tests_of)
            ran.append(items[index])
        elif how == "no build":
            ran.append(item(name, 0, passed=False))
        else:
            cheating.append(LOST if how == "crash" else launch(0, tests))
            ran.append(item(name, passed=False))
    cheat = count_tests(cheating, ran, collected=names, least=tests)
    assert cheat.share <= fair.share


def test_notes_of_the_probe_become_items():
    """Launches are counted from note to note; a failing tear-down fails an item that passed."""
    notes = [
        {"item": "a", "when": "call", "outcome": "passed", "launches": 2},
        {"item": "b", "when": "call", "outcome": "passed", "launches": 5},
        {"item": "b", "when": "teardown", "outcome": "failed", "launches": 5},
        {"item": "c", "when": "setup", "outcome": "failed", "launches": 5},
        {"item": "x.py", "when": "collect", "outcome": "failed", "launches": 5},
    ]
    assert read_items(notes) == (
        item("a", 2),
        item("b", 3, passed=False),
        item("c", 0, passed=False),
    )


def test_tests_are_counted_in_the_harness():
    """The largest file counts; parametrised and bare marks too, other functions do not."""
    text = (
        "import cocotb\n@cocotb.test()\nasync def a(dut): pass\n"
        "@cocotb.test\nasync def b(dut): pass\nasync def helper(dut): pass\n"
    )
    harness = {"src/test_a.py": text, "src/b.py": "import cocotb\n", "src/c.py": "cocotb ("}
    assert most_tests(harness) == 2
    assert most_tests({}) == 1
