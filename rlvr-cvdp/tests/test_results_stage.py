"""The stage that stopped an answer, told from what is known of its verification."""

from __future__ import annotations

import pytest
from attrs import frozen

from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.launch.service import _why
from rlvr_cvdp.problem import Service
from rlvr_cvdp.results.launches import Launch
from rlvr_cvdp.results.messages import ToolMessage, read_messages
from rlvr_cvdp.results.stage import Stage, failed_stage
from rlvr_cvdp.results.tests import TestResult
from rlvr_cvdp.sandbox import Finished, Limits

FAILED = TestResult(name="small", status="failed", message="AssertionError: y is 3")
PASSED = TestResult(name="large", status="passed")
LOST = TestResult(name="", status="error", message="the simulation left no results")
ERRORS = read_messages("/code/rtl/a.sv:2: error: Unknown module type: m\n")


@frozen(kw_only=True)
class End:
    """The end of a service."""

    name: str = "direct"
    stopped: str = ""
    why: str = "it went wrong"
    builds: tuple[str, ...] = ("ok",)
    launch_codes: tuple[int, ...] = (0,)
    tests: tuple[TestResult, ...] = (PASSED,)
    messages: tuple[ToolMessage, ...] = ()


CASES = {
    "tests": (End(tests=(FAILED, PASSED)), "", "1 of 2 tests failed, first small: Assertion"),
    "syntax": (End(builds=("syntax",), messages=ERRORS), "", "does not parse: rtl/a.sv:2: error"),
    "elaboration": (End(builds=("ok", "elaboration"), messages=ERRORS), "", "not elaborate: rtl/a"),
    "build": (End(builds=("killed 139",)), "", "the compiler ended with killed 139"),
    "timeout": (End(stopped="time"), "", "it went wrong"),
    "output": (End(stopped="output"), "", "it went wrong"),
    "disk": (End(stopped="disk"), "", "it went wrong"),
    "processes": (End(stopped="processes"), "", "it went wrong"),
    "simulation": (End(launch_codes=(139,), tests=(LOST,)), "", "it went wrong"),
    "lint": (End(builds=(), launch_codes=(), tests=()), "verilator", "it went wrong"),
    "synthesis": (End(builds=(), launch_codes=(), tests=()), "yosys", "it went wrong"),
}


@pytest.mark.parametrize("stage", CASES)
def test_stage_and_sentence(stage):
    """Each way a service ends has its stage, and the sentence names service and cause."""
    end, tool, words = CASES[stage]
    found = failed_stage(services=[End(why=""), end], tools={"direct": tool})
    assert found is not None
    assert found.stage == Stage(stage)
    assert found.why.startswith("direct: ")
    assert words in found.why


RIGHT = Launch(rc=0, tests=(PASSED,), summary=(1, 0))
WRONG = Launch(rc=0, tests=(FAILED,), summary=(0, 1))


@pytest.mark.parametrize(
    ("runs_cocotb", "launches", "summaries", "words"),
    [
        (True, [RIGHT], [(1, 1, 0, 0)], ""),
        (True, [], [], "it exited with 0 and ran no simulation"),
        (False, [], [], ""),
        (False, [WRONG], [(1, 0, 1, 0)], "it exited with 0, but a simulation's results say other"),
        (True, [RIGHT], [], "it exited with 0, but cocotb's summaries do not agree"),
        (True, [RIGHT], [(1, 1, 0, 0)] * 2, "it exited with 0, but cocotb's summaries do not agr"),
    ],
)
def test_a_service_is_right_where_all_that_it_left_says_so(runs_cocotb, launches, summaries, words):
    """Its exit status alone says nothing."""
    service = Service(name="direct", command=(), runs_cocotb=runs_cocotb)
    finished = Finished(rc=0, stopped="", output="", summaries=(), seconds=0.0)
    why = _why(service, finished, launches, summaries, (), Limits.of(CvdpConfig()))
    assert why[: len(words)] == words
    assert bool(why) is bool(words)


def test_a_slow_compilation_and_a_hanging_simulation_are_timeouts():
    """Neither is a build or a simulation that broke."""
    for end in (End(stopped="time"), End(launch_codes=(0, 152), tests=(LOST,))):
        found = failed_stage(services=[end])
        assert found is not None
        assert found.stage is Stage.TIMEOUT


def test_what_stopped_it_before_the_harness():
    """No files, refused text, and a compile that decides; in this order."""
    found = [
        failed_stage(why_none="it holds no code", refused=["x"], services=[End()]),
        failed_stage(refused=["silences the linter"], unparsed=ERRORS),
        failed_stage(unparsed=ERRORS),
    ]
    assert [(f.stage.value, f.why) for f in found if f] == [
        ("extraction", "it holds no code"),
        ("policy", "silences the linter"),
        ("syntax", "it does not parse: rtl/a.sv:2: error: Unknown module type: m"),
    ]


def test_a_right_answer_was_stopped_nowhere():
    """No stage, where every service is right."""
    assert failed_stage(services=[End(why=""), End(why="", name="lint")]) is None
