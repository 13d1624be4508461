"""A small problem in the official format, and the shortest way from an answer to its reward."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from rlvr.parts import BuildContext
from rlvr.testing.tools import require_tool
from rlvr.types import Problem, Reward, Trajectory
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.reward import CvdpReward
from rlvr_cvdp.task import CvdpTask

COMPOSE = """\
services:
  direct:
    image: __OSS_SIM_IMAGE__
    volumes:
      - ./src/:/src/:ro
    working_dir: /code/rundir
    env_file: ./src/.env
    command: pytest -o cache_dir=/rundir/harness/.cache /src/test_runner.py -v
"""
ENV = """\
SIM             = icarus
TOPLEVEL_LANG   = verilog
VERILOG_SOURCES = /code/rtl/inc.sv
TOPLEVEL        = inc
MODULE          = test_inc
PYTHONPATH      = /src
"""
RUNNER = """\
import os
from cocotb_tools.runner import get_runner

def test_runner():
    runner = get_runner(os.getenv("SIM", "icarus"))
    runner.build(
        sources=os.getenv("VERILOG_SOURCES").split(),
        hdl_toplevel=os.getenv("TOPLEVEL"),
        always=True,
        clean=True,
        timescale=("1ns", "1ns"),
        log_file="sim.log",
    )
    runner.test(hdl_toplevel=os.getenv("TOPLEVEL"), test_module=os.getenv("MODULE"))
"""
TEST = """\
import cocotb
from cocotb.triggers import Timer

@cocotb.test()
async def small(dut):
    for a in range(4):
        dut.a.value = a
        await Timer(1, unit="ns")
        assert int(dut.y.value) == a + 1

@cocotb.test()
async def large(dut):
    dut.a.value = 255
    await Timer(1, unit="ns")
    assert int(dut.y.value) == 0
"""
RIGHT = """\
module inc(input [7:0] a, output [7:0] y);
  assign y = a + 8'd1;
endmodule
"""


def make_row(**changes: Any) -> dict[str, Any]:
    """The small problem as an official row; `harness` and `context` are merged, others replace."""
    harness = {
        "docker-compose.yml": COMPOSE,
        "src/.env": ENV,
        "src/test_runner.py": RUNNER,
        "src/test_inc.py": TEST,
        **changes.get("harness", {}),
    }
    return {
        "id": changes.get("id", "cvdp_copilot_inc_0001"),
        "categories": changes.get("categories", ["cid003", "easy"]),
        "input": {
            "prompt": "Write the module inc: y is a plus 1.",
            "context": changes.get("context", {}),
        },
        "output": {"response": "", "context": changes.get("targets", {"rtl/inc.sv": RIGHT})},
        "harness": {"files": {k: v for k, v in harness.items() if v is not None}},
    }


@frozen
class Bench:
    """Judges answers to rows; `judge` takes model text or files."""

    folder: Path
    right: str = RIGHT
    env: str = ENV
    runner: str = RUNNER
    test: str = TEST
    compose: str = COMPOSE

    def row(self, **changes: Any) -> dict[str, Any]:
        return make_row(**changes)

    def dataset(self, *rows: Mapping[str, Any] | str) -> Path:
        path = self.folder / "rows.jsonl"
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        path.write_text("\n".join(lines) + "\n")
        return path

    def task(self, *rows: Mapping[str, Any] | str, **options: Any) -> CvdpTask:
        context = BuildContext(dataset=self.dataset(*(rows or (self.row(),))))
        return CvdpTask(CvdpConfig(**options), context)

    def problem(self, **changes: Any) -> Problem:
        task = self.task(self.row(**changes))
        found = list(task.problems("all"))
        assert found, task.unsupported()
        return found[0]

    def reward(self, **options: Any) -> CvdpReward:
        settings = {"timeout_s": 20.0, **options}
        return CvdpReward(CvdpConfig(**settings), BuildContext(dataset=self.folder / "rows.jsonl"))

    def judge(
        self, answer: str | Mapping[str, str], problem: Problem | None = None, **options: Any
    ) -> Reward:
        problem = problem or self.problem()
        if isinstance(answer, str):
            trajectory = Trajectory.from_text(problem.id, answer)
        else:
            trajectory = Trajectory(problem_id=problem.id, files=answer)
        return asyncio.run(self.reward(**options)(problem, trajectory))

    def rtl(self, text: str, problem: Problem | None = None, **options: Any) -> Reward:
        """Judge an answer that is the text of rtl/inc.sv."""
        return self.judge({"rtl/inc.sv": text}, problem, **options)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Rows, problems and rewards without any tool."""
    return Bench(tmp_path)


@pytest.fixture
def simulator() -> None:
    """The test needs the real sandbox and simulator."""
    for tool in ("bwrap", "iverilog", "vvp"):
        require_tool(tool, "sudo apt-get install -y bubblewrap iverilog")
