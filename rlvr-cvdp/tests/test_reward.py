"""Stages, weights, shares, seeds, keys; and the contracts that every task and reward must hold."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from attrs import evolve

from rlvr import BuildContext, ConfigError, Trajectory
from rlvr.testing import PluginContract, RewardContract, TaskContract
from rlvr.testing.tools import require_tool
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.launch import service
from rlvr_cvdp.task import CvdpTask
from rlvr_cvdp.verify import second_opinion
from rlvr_cvdp.verify.reward import CvdpReward

HALF = (
    "module inc(input [7:0] a, output [7:0] y);\n  assign y = (a == 255) ? 1 : a + 1;\nendmodule\n"
)
PORTS = "module inc(input [7:0] a, output [7:0] y);\n"
STAGES = {
    "none": ("I do not know.", 0.0),
    "format": ("```verilog\nmodule inc(input a\n```", 0.1),
    "syntax": (f"```verilog\n{PORTS}  missing m(.a(a));\nendmodule\n```", 0.3),
    "compilation": (f"```verilog\n{PORTS}  assign y = a;\nendmodule\n```", 0.5),
}


@pytest.mark.integration
@pytest.mark.usefixtures("simulator")
@pytest.mark.parametrize("stage", STAGES)
def test_value_is_the_weight_of_the_highest_stage(bench, stage):
    """Nothing 0, code 0.1, parses 0.3, compiles 0.5; every stage is reported."""
    text, value = STAGES[stage]
    reward = bench.judge(text)
    assert reward.value == pytest.approx(value), reward
    assert reward.score01 == 0.0
    assert list(reward.components) == ["format", "syntax", "compilation", "tests"]
    assert max(reward.components.values()) == pytest.approx(value)


@pytest.mark.integration
@pytest.mark.usefixtures("simulator")
def test_a_right_answer_has_every_component(bench):
    """The right answer earns 1.0, with what a person needs to believe it."""
    reward = bench.judge(f"```verilog\n{bench.right}```")
    assert dict(reward.components) == {
        "format": 0.1, "syntax": 0.3, "compilation": 0.5, "tests": 1.0,
    }  # fmt: skip
    assert (reward.value, reward.score01) == (1.0, 1.0)
    assert (reward.tests_passed, reward.tests_total) == (2, 2)
    assert reward.evidence["seeds"] == ["1"]
    assert reward.evidence["stopped_at_first_failure"] is False
    assert "cocotb 2" in reward.evidence["stack"]
    assert reward.evidence["tools"]["iverilog"]
    assert reward.cost_s > 0


@pytest.mark.integration
@pytest.mark.usefixtures("simulator")
def test_share_of_passed_tests(bench):
    """Half of the tests lie half-way between compilation and the top; score01 stays 0."""
    share = bench.rtl(HALF, tests="share")
    assert share.value == pytest.approx(0.75)
    assert share.components["tests"] == pytest.approx(0.5)
    assert (share.tests_passed, share.tests_total, share.score01) == (1, 2, 0.0)
    every = bench.rtl(HALF)
    assert every.value == pytest.approx(0.5)
    stopped = [one.evidence["stopped_at_first_failure"] for one in (every, share)]
    assert stopped == [True, False]


@pytest.mark.integration
@pytest.mark.usefixtures("simulator")
def test_compilation_is_optional(bench):
    """Without that stage what compiles earns no more than what parses."""
    reward = bench.judge(STAGES["compilation"][0], compilation=False)
    assert "compilation" not in reward.components
    assert reward.value == pytest.approx(0.3)
    assert bench.rtl(HALF, compilation=False, tests="share").value == pytest.approx(0.65)


@pytest.mark.integration
@pytest.mark.usefixtures("simulator")
def test_verilator_may_judge_the_syntax(bench):
    """With cvdp.syntax=verilator its lint decides that stage, and never the tests."""
    require_tool("verilator")
    text = STAGES["format"][0]
    assert bench.judge(text, syntax="verilator").value == pytest.approx(0.1)
    odd = bench.right.replace("assign y", "wire unused;\n  assign y")
    assert bench.rtl(odd, syntax="verilator").score01 == 1.0


@pytest.mark.integration
@pytest.mark.usefixtures("simulator")
def test_a_verdict_over_several_seeds(bench):
    """Right means right with each seed; seeds reach cocotb, pytest and `random.seed()` alike."""
    test = bench.test + (
        "\n\n@cocotb.test()\nasync def drawn(dut):\n    import os, random, time\n"
        "    random.seed(time.time())\n    first = random.random()\n    random.seed()\n"
        "    assert random.random() == first\n"
        '    assert os.environ["COCOTB_RANDOM_SEED"] != "2"\n'
    )
    problem = bench.problem(harness={"src/test_inc.py": test})
    assert bench.rtl(bench.right, problem, seeds=("1", "3")).score01 == 1.0
    assert bench.rtl(bench.right, problem, seeds=("1", "2")).score01 == 0.0


def test_weights_must_not_fall():
    """Weights that would make a later stage worth less are refused."""
    with pytest.raises(ConfigError, match="must not fall"):
        CvdpConfig(format_weight=0.6)
    assert CvdpConfig(compile_weight=0.0, compilation=False).compile_weight == 0.0
    with pytest.raises(ConfigError, match="whole numbers"):
        CvdpConfig(seeds=("x",))
    with pytest.raises(ConfigError, match="whole numbers"):
        CvdpConfig(seeds=())


@pytest.mark.integration
@pytest.mark.usefixtures("simulator")
def test_keys_change_with_all_that_decides(bench, monkeypatch):
    """Answer, problem, seeds, limits, weights and tool versions each make another key."""
    problem = bench.problem()
    right = Trajectory(problem_id=problem.id, files={"rtl/inc.sv": bench.right})
    text = Trajectory.from_text(problem.id, f"```verilog\n{bench.right}```")
    commented = Trajectory(problem_id=problem.id, files={"rtl/inc.sv": "// x\n" + bench.right})
    key = bench.reward().verdict_key(problem, right)
    assert bench.reward().verdict_key(problem, text) == key
    others = [
        bench.reward().verdict_key(problem, commented),
        bench.reward().verdict_key(evolve(problem, digest="x"), right),
        bench.reward(seeds=("2",)).verdict_key(problem, right),
        bench.reward(timeout_s=3.0).verdict_key(problem, right),
        bench.reward(tests_weight=2.0).verdict_key(problem, right),
    ]
    monkeypatch.setattr("rlvr_cvdp.toolchain.toolchain.tool_version", lambda path: "99")
    others.append(bench.reward().verdict_key(problem, right))
    assert len({key, *others}) == 7


def test_the_digest_follows_harness_context_and_targets(bench):
    """A changed harness, context or target is another problem to the verdict store."""
    digests = {
        bench.problem(**changes).digest
        for changes in (
            {},
            {"harness": {"src/extra.py": "x = 1"}},
            {"context": {"rtl/b.sv": "module b; endmodule"}},
            {"targets": {"rtl/c.sv": ""}},
        )
    }
    assert len(digests) == 4


def test_seeds_of_the_generations():
    """Cocotb 2 gets the seed itself; cocotb 1 its own variable."""
    assert service.cocotb_seed(2, "7") == {"COCOTB_RANDOM_SEED": "7"}
    assert service.cocotb_seed(1, "7") == {"RANDOM_SEED": "1007"}


class TestPlugin(PluginContract):
    """The light module."""

    module = "rlvr_cvdp.plugin"


class TestStarterTask(TaskContract):
    """The embedded starter set."""

    max_judged = 2

    def make_task(self) -> CvdpTask:
        return CvdpTask(CvdpConfig(), BuildContext())

    def make_reward(self) -> CvdpReward:
        for tool in ("bwrap", "iverilog"):
            require_tool(tool)
        return CvdpReward(CvdpConfig(timeout_s=20.0), BuildContext())


@pytest.mark.integration
class TestReward(RewardContract):
    """The reward on the small problem."""

    @pytest.fixture(autouse=True)
    def _bench(self, bench, simulator, monkeypatch, tmp_path):
        self.bench, self.patch, self.folder = bench, monkeypatch, tmp_path
        self.problem = bench.problem()
        # Verilator, which compiles for seconds, is a judge in test_second_opinion.py
        monkeypatch.setattr(second_opinion, "passes_verilated", AsyncMock(return_value=None))

    def make_reward(self) -> CvdpReward:
        return self.bench.reward()

    def _case(self, text: str):
        return self.problem, Trajectory.from_text(self.problem.id, text)

    def right(self):
        return self._case(f"```verilog\n{self.bench.right}```")

    def wrong(self):
        return [self._case(STAGES["syntax"][0]), self._case(STAGES["compilation"][0])]

    def cheats(self):
        final = 'final $fdisplay($fopen("/code/rundir/sim_build/test_runner.result.xml"), "<x/>");'
        return [self._case(f"```verilog\n{PORTS}{final}\nendmodule\n```")]

    def make_broken_reward(self) -> CvdpReward:
        fake = Path(self.folder) / "broken" / "bwrap"
        fake.parent.mkdir()
        fake.write_text("#!/bin/sh\nexit 1\n")
        fake.chmod(0o755)
        self.patch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
        return self.bench.reward()
