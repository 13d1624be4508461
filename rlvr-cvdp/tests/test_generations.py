"""Harnesses of both cocotb generations: the shim for 2, a stack of its own for 1."""

from __future__ import annotations

import sys

import pytest

from rlvr import PrerequisiteError, VerifierError
from rlvr_cvdp.toolchain import cocotb_stacks

OLD = """\
import cocotb
from cocotb.binary import BinaryValue
from cocotb.clock import Clock
from cocotb.result import TestFailure
from cocotb.sim_time_utils import get_sim_time
from cocotb.triggers import Timer

@cocotb.coroutine
async def drive(dut):
    dut.a.value = 7
    await Timer(1, units="ns")

@cocotb.test()
async def old_names(dut):
    await cocotb.fork(Clock(dut.a, 5, units="ns").start())
    await drive(dut)
    assert dut.y.value.integer == 8
    assert dut.y.value.binstr == "00001000"
    assert dut.y.value[0].integer in (0, 1)
    assert dut.y.value[0].binstr in ("0", "1")
    assert issubclass(TestFailure, Exception)
    assert get_sim_time("ns") >= 1
"""


@pytest.mark.integration
@pytest.mark.usefixtures("simulator")
def test_old_names_work_on_cocotb_2(bench):
    """Names that cocotb 2.0 dropped work for harnesses written before it, odd clocks too."""
    test = OLD.replace(
        '    await cocotb.fork(Clock(dut.a, 5, units="ns").start())\n',
        '    assert Clock(dut.a, 5, units="ns").period_high == 2\n    cocotb.fork(drive(dut))\n',
    )
    runner = bench.runner.replace("always=True", 'defines={"SIMULATION": None}, always=True')
    harness = {"src/test_inc.py": test, "src/test_runner.py": runner}
    reward = bench.rtl(bench.right, bench.problem(harness=harness))
    assert reward.score01 == 1.0, reward.evidence
    assert "cocotb 2" in reward.evidence["stack"]


@pytest.mark.integration
@pytest.mark.network
@pytest.mark.usefixtures("simulator")
def test_a_harness_of_cocotb_1_runs_on_cocotb_1(bench):
    """`from cocotb.runner` picks the stack of generation 1, which is made at first need."""
    runner = bench.runner.replace("cocotb_tools.runner", "cocotb.runner")
    test = bench.test.replace('unit="ns"', 'units="ns"')
    test += (
        '\n\n@cocotb.test()\nasync def version(dut):\n    assert cocotb.__version__ == "1.9.2"\n'
    )
    harness = {"src/test_inc.py": test, "src/test_runner.py": runner}
    problem = bench.problem(harness=harness)
    reward = bench.rtl(bench.right, problem)
    assert reward.score01 == 1.0, reward.evidence
    assert "cocotb 1.9.2" in reward.evidence["stack"]
    assert bench.rtl(bench.right.replace("8'd1", "8'd2"), problem).score01 == 0.0


def test_a_stack_that_may_not_be_made_is_a_prerequisite(bench, monkeypatch, tmp_path):
    """Without provisioning the error names the command that makes the stack."""
    monkeypatch.setenv("RLVR_CACHE_DIR", str(tmp_path / "cache"))
    runner = bench.runner.replace("cocotb_tools.runner", "cocotb.runner")
    record = bench.problem(harness={"src/test_runner.py": runner}).payload
    with pytest.raises(PrerequisiteError, match="rlvr cvdp setup"):
        cocotb_stacks.stack_for(record, provision=False)


def test_a_stack_that_cannot_be_made_is_a_prerequisite(monkeypatch, tmp_path):
    """A failing pip is told in its own words; nothing that looks complete is left."""
    monkeypatch.setenv("RLVR_CACHE_DIR", str(tmp_path / "cache"))
    base = tmp_path / "python"  # one without pip, which takes seconds to put into an environment
    base.write_text(f'#!/bin/sh\nexec {sys.executable} "$@" --without-pip\n')
    base.chmod(0o755)
    monkeypatch.setattr(sys, "_base_executable", str(base))
    with pytest.raises(PrerequisiteError, match=r"No module named pip(.|\n)*rlvr cvdp setup"):
        cocotb_stacks.provision_stack(1)
    assert cocotb_stacks.managed_stack(1) is None
    monkeypatch.setenv("RLVR_CACHE_DIR", "/proc/nowhere")
    with pytest.raises(PrerequisiteError, match="cannot write"):
        cocotb_stacks.provision_stack(1)


def test_packages_that_no_stack_holds(bench):
    """The error for a harness that slipped past the list names the package."""
    from attrs import evolve

    record = evolve(bench.problem().payload, needs=("surely_not_there",))
    with pytest.raises(VerifierError, match="surely_not_there"):
        cocotb_stacks.stack_for(record, provision=False)


def test_the_running_environment_is_stack_2():
    """rlvr-cvdp depends on cocotb 2.0: no other stack is needed for today's harnesses."""
    stack = cocotb_stacks.running_stack()
    assert stack is not None
    assert stack.versions["cocotb"].startswith("2.0.")
    assert stack.lacks(("cocotb", "surely_not_there")) == ["surely_not_there"]
