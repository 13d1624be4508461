"""What a reward's evidence says about real answers: stage, tests, messages; in both generations."""

from __future__ import annotations

import json

import pytest

from rlvr.testing.tools import require_tool

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("simulator")]

PORTS = "module inc(input [7:0] a, output [7:0] y);\n"
HANG = "  reg r = 0;\n  always @(a) if (a == 3) forever r = ~r;\n"
NO_LOG = '        log_file="sim.log",\n'
CASES = {
    "extraction": ("", "it holds none of the files"),
    "syntax": (f"{PORTS}  assign y = a +;\nendmodule\n", "rtl/inc.sv:2: error: syntax error"),
    "elaboration": (f"{PORTS}  missing m(.a(a));\nendmodule\n", "rtl/inc.sv:2: error: Unknown mod"),
    "tests": (
        f"{PORTS}  assign y = a == 255 ? 1 : a + 1;\nendmodule\n",
        "1 of 2 tests failed, first large: AssertionError: assert int(dut.y.value) == 0",
    ),
    "policy": (f'{PORTS}  final $fdisplay($fopen("x.py"), a);\nendmodule\n', "$fopen"),
    "timeout": (f"{PORTS}  assign y = a + 1;\n{HANG}endmodule\n", "time"),
}


@pytest.mark.parametrize("stage", CASES)
def test_stage_of_real_answers(bench, stage):
    """Each answer is stopped where it should be, and the sentence names the cause."""
    text, words = CASES[stage]
    reward = bench.rtl(text, timeout_s=1.0)
    assert reward.evidence["stage"] == stage, reward.evidence
    assert words in reward.evidence["stage_why"]
    assert json.dumps(dict(reward.evidence))


def test_a_right_answer_has_tests_and_no_stage(bench):
    """All tests are listed, with simulated time; there is nothing to complain about."""
    evidence = bench.rtl(bench.right).evidence
    assert (evidence["stage"], evidence["stage_why"], evidence["messages"]) == ("", "", [])
    tests = [(t["name"], t["status"], t["sim_time_ns"]) for t in evidence["tests"]]
    assert tests == [("small", "passed", 4.0), ("large", "passed", 1.0)]


def test_messages_of_a_build_that_the_harness_makes(bench):
    """A build of the harness that fails is told with file and line, though the gate could not."""
    runner = bench.runner.replace("always=True", 'defines={"BROKEN": 1}, always=True')
    text = bench.right.replace("endmodule", "`ifdef BROKEN\n  wire w = nowhere;\n`endif\nendmodule")
    evidence = bench.rtl(text, bench.problem(harness={"src/test_runner.py": runner})).evidence
    assert evidence["stage"] == "elaboration"
    places = [(m["file"], m["line"], m["severity"]) for m in evidence["messages"]]
    assert ("rtl/inc.sv", 4, "error") in places
    assert [(t["name"], t["status"], t["launch"]) for t in evidence["tests"]] == [
        ("test_runner", "error", 0)
    ]


@pytest.mark.parametrize("log", [NO_LOG, ""], ids=["own log", "shared output"])
def test_messages_find_their_launch(bench, log):
    """Two launches of one item, of which the second fails: its messages are those of its log."""
    runner = (
        bench.runner.replace(NO_LOG, log)
        .replace("    runner.build", "    for p in (0, 7):\n        runner.build")
        .replace("always=True", 'parameters={"P": p}, always=True')
        .replace(
            "    runner.test(", f"        runner.test({'log_file=f`sim{p}.log`, ' * bool(log)}"
        )
        .replace("`", '"')
    )
    text = bench.right.replace("inc(", "inc #(parameter P = 0) (").replace(
        "a + 8'd1", "a + 8'd1 + P"
    )
    problem = bench.problem(harness={"src/test_runner.py": runner})
    evidence = bench.rtl(text, problem, tests="share").evidence
    tests = [(t["launch"], t["name"], t["status"], t["line"]) for t in evidence["tests"]]
    assert tests == [
        (1, "small", "passed", 4),
        (1, "large", "passed", 11),
        (2, "small", "failed", 9),
        (2, "large", "failed", 15),
    ]
    assert evidence["tests"][2]["message"].startswith("AssertionError: assert int(dut.y.value)")


@pytest.mark.network
def test_cocotb_1(bench):
    """1.9's results hold no messages: they come from the log."""
    runner = bench.runner.replace("cocotb_tools.runner", "cocotb.runner")
    test = bench.test.replace('unit="ns"', 'units="ns"')
    problem = bench.problem(harness={"src/test_inc.py": test, "src/test_runner.py": runner})
    evidence = bench.rtl(CASES["tests"][0], problem, tests="share").evidence
    small, large = evidence["tests"]
    assert (small["status"], small["message"]) == ("passed", "")
    assert (large["status"], large["file"], large["line"]) == ("failed", "src/test_inc.py", 15)
    assert large["message"].startswith("AssertionError")
    assert evidence["stage"] == "tests"


def test_a_lint_service(bench):
    """What Verilator says in a lint service is told, and the stage is lint."""
    require_tool("verilator")
    lint = (
        "import subprocess\n\ndef test_lint():\n"
        '    said = subprocess.run("verilator --lint-only -Wall /code/rtl/inc.sv", shell=True)\n'
        "    assert said.returncode == 0, 'not clean'\n"
    )
    service = bench.compose.partition("services:\n")[2]
    service = service.replace("direct:", "lint:").replace("test_runner.py", "lint.py")
    harness = {"docker-compose.yml": bench.compose + service, "src/lint.py": lint}
    problem = bench.problem(harness=harness)
    assert bench.rtl(bench.right, problem).score01 == 1.0
    text = bench.right.replace("assign", "wire spare;\n  assign")
    reward = bench.rtl(text, problem, tests="share")
    evidence = reward.evidence
    assert evidence["stage"] == "lint"
    assert "rtl/inc.sv:2" in evidence["stage_why"]
    assert evidence["messages"][0]["code"].startswith("UNUSED")
    last = evidence["tests"][-1]
    assert (last["service"], last["name"], last["status"]) == ("lint", "test_lint", "failed")
    assert "not clean" in last["message"]
    assert reward.components["tests"] == pytest.approx(0.5)
