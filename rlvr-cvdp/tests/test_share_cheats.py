"""Partial credit with the real tools: what an answer ends early, it does not gain from."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("simulator")]

PARAMETRISED = """\
import os
import pytest
from cocotb_tools.runner import get_runner

@pytest.mark.parametrize("p", range(4))
def test_runner(p):
    runner = get_runner("icarus")
    runner.build(sources=os.getenv("VERILOG_SOURCES").split(), hdl_toplevel="inc", always=True,
                 clean=True, timescale=("1ns", "1ns"), parameters={"P": p})
    runner.test(hdl_toplevel="inc", test_module="test_inc")
"""
LOOP = """\
import os
from cocotb_tools.runner import get_runner

def test_runner():
    runner = get_runner("icarus")
    for p in range(4):
        runner.build(sources=os.getenv("VERILOG_SOURCES").split(), hdl_toplevel="inc", always=True,
                     timescale=("1ns", "1ns"), parameters={"P": p})
        runner.test(hdl_toplevel="inc", test_module="test_inc")
"""
ONE = LOOP.replace("for p in range(4):", "for p in [2]:")


def design(value: str, more: str = "") -> str:
    """The module with a parameter P, an output and whatever else."""
    head = "module inc #(parameter P = 0) (input [7:0] a, output [7:0] y);\n"
    return f"{head}  assign y = {value};\n{more}\nendmodule\n"


HALF = "P > 1 ? a : a + 8'd1"
"""Right for P = 0 and 1, all wrong for 2 and 3: 4 of 8 tests."""
ENDS = {
    "finish at once": "initial if (P > 1) $finish;",
    "finish later": "initial if (P > 1) #2 $finish;",
    "fatal": 'initial if (P > 1) $fatal(1, "x");',
    "hang": "reg r = 0; initial if (P > 1) forever r = ~r;",
    "no elaboration": "generate if (P > 1) missing m(); endgenerate",
}


def share(bench, text: str, runner: str, limit_s: float = 20.0):
    """Passed and counted tests, and the share that the reward is made from."""
    problem = bench.problem(harness={"src/test_runner.py": runner})
    reward = bench.rtl(text, problem, tests="share", timeout_s=limit_s)
    return reward.tests_passed, reward.tests_total, reward.components["tests"]


@pytest.mark.parametrize("runner", [PARAMETRISED, LOOP], ids=["items", "loop"])
def test_an_honest_half(bench, runner):
    """Four launches of two tests, of which two fail wholly: 4 of 8, however they are launched."""
    assert share(bench, design(HALF), runner) == (4, 8, 0.5)
    assert share(bench, design("a + 8'd1"), runner) == (8, 8, 1.0)


@pytest.mark.one_of(3)
@pytest.mark.parametrize(
    ("end", "runner"),
    [*((end, PARAMETRISED) for end in ENDS), ("fatal", LOOP), ("no elaboration", LOOP)],
    ids=[*ENDS, "fatal in a loop", "no elaboration in a loop"],
)
def test_ending_failing_launches_early_does_not_pay(bench, end, runner):
    """A launch that ends itself, hangs or does not build counts all of its tests as failed."""
    limit_s = 1.2 if end == "hang" else 20.0
    passed, total, earned = share(bench, design(HALF, ENDS[end]), runner, limit_s)
    assert (passed, total) == (4, 8)
    assert earned <= 0.5  # 0 where the hanging ones used up the service's time


def test_failing_early_hides_no_later_launch(bench):
    """A runner that loops goes on after a failing launch: 1 of 8, not 1 of 2."""
    text = design("P > 0 ? a : a == 255 ? 8'd1 : a + 8'd1")
    assert share(bench, text, LOOP) == (1, 8, 0.125)


@pytest.mark.parametrize("end", ["finish at once", "hang", "no elaboration"])
def test_a_single_launch_that_ends_early_has_no_share(bench, end):
    """What never left results passed nothing, of as many tests as the harness holds."""
    limit_s = 0.6 if end == "hang" else 20.0
    passed, total, earned = share(bench, design("a", ENDS[end]), ONE, limit_s)
    assert (passed, total, earned) == (0, 2, 0.0)


def test_skipped_and_left_out_tests_do_not_count(bench):
    """A skipped test is in neither number; nor is one that the runner's filter leaves out."""
    test = bench.test + "\n@cocotb.test(skip=True)\nasync def never(dut):\n    assert False\n"
    problem = bench.problem(harness={"src/test_inc.py": test})
    half = bench.rtl(
        bench.right.replace("a + 8'd1", "a == 255 ? 8'd1 : a + 8'd1"), problem, tests="share"
    )
    assert (half.tests_passed, half.tests_total) == (1, 2)
    runner = bench.runner.replace(
        'test_module=os.getenv("MODULE")', 'test_module="test_inc", testcase="small"'
    )
    problem = bench.problem(harness={"src/test_runner.py": runner, "src/test_inc.py": test})
    only = bench.rtl(bench.right, problem)
    assert (only.score01, only.tests_passed, only.tests_total) == (1.0, 1, 1), only.evidence
    statuses = [(t["name"], t["status"]) for t in only.evidence["tests"]]
    assert statuses == [("small", "passed"), ("large", "skipped"), ("never", "skipped")]


def test_an_item_without_a_simulation_is_a_test(bench):
    """A failing item that never launched weighs as much as a launch, here two tests: 2 of 4."""
    runner = bench.runner + "\ndef test_plain():\n    assert False, 'plain'\n"
    passed, total, _ = share(bench, bench.right, runner)
    assert (passed, total) == (2, 4)
