"""Proxy rewards: the compiler's word alone, at the first steps, never mixed with the tests'."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from rlvr import Problem, Reward, RewardFn, Trajectory
from rlvr.testing import require_tool
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.sandbox import Limits
from rlvr_cvdp.verify.compile_first import Gate, try_compile
from rlvr_cvdp.verify.compile_only_reward import as_proxy, is_compilable

WRONG = "module inc(input [7:0] a, output [7:0] y);\n  assign y = a;\nendmodule\n"
UNKNOWN_MODULE = "module inc(input [7:0] a, output [7:0] y);\n  nowhere u(a, y);\nendmodule\n"
BROKEN = "module inc(input [7:0] a, output [7:0] y;\nendmodule\n"


def proxied(bench: Any, kind: str, step: int = 0) -> RewardFn:
    reward: RewardFn = bench.reward(proxy=kind, proxy_steps=5).at_step(step, {})
    return reward


def judged(reward: RewardFn, problem: Problem, **files: str) -> Reward:
    answer = {f"rtl/{name}.sv": text for name, text in files.items()}
    outcome = asyncio.run(reward(problem, Trajectory(problem_id=problem.id, files=answer)))
    assert isinstance(outcome, Reward)
    return outcome


@pytest.mark.parametrize(
    ("gate", "kind", "value"),
    [
        (Gate(stage="compiled"), "compile", 0.5),
        (Gate(stage="parsed"), "compile", 0.3),
        (Gate(stage="broken"), "compile", 0.1),
        (Gate(message="its compilation does not end"), "compile", 0.1),
        (None, "compile", 0.0),
        (Gate(stage="compiled", lints=True), "lint", 0.5),
        (Gate(stage="compiled", lints=False), "lint", 0.3),
        (Gate(stage="parsed", lints=False), "lint", 0.3),
    ],
)
def test_the_stages_of_a_proxy(bench: Any, gate: Gate | None, kind: str, value: float) -> None:
    """By hand: format, syntax, and at most the weight of what compiles (or lints)."""
    full = Reward(value=0.1, score01=0.0, components={"tests": 0.0})

    reward = as_proxy(full, gate, bench.reward()._config, kind)

    assert (reward.value, reward.score01, reward.is_proxy) == (value, 0.0, True)
    assert set(reward.components) == {"format", "syntax", "proxy"}


def test_a_refused_answer_is_worth_nothing_to_a_proxy(bench: Any) -> None:
    """A cheat is a cheat at every step."""
    full = Reward(value=0.0, score01=0.0, evidence={"refused": ["two faces"]})

    assert as_proxy(full, Gate(stage="compiled"), bench.reward()._config, "compile").value == 0.0


def test_the_compiler_has_a_say_or_not() -> None:
    """A harness that names no sources cannot be compiled for; a hanging compile is the answer's."""
    assert not is_compilable(Gate())
    assert is_compilable(Gate(message="its compilation does not end"))
    assert is_compilable(Gate(stage="broken"))


@pytest.mark.parametrize(
    ("rc", "said", "decides"),
    [
        (2, "/code/rtl/inc.sv:2: syntax error\nI give up.\n", True),
        (2, "/code/rtl/inc.sv:1: Include file w.vh not found\n:2: syntax error\n", False),
        (1, ":2: error: Unknown module type: w\n1 error(s) during elaboration.\n", False),
        (139, ":2: syntax error\n", False),  # it crashed
    ],
)
def test_only_a_syntax_error_spares_the_harness(
    bench: Any, rc: int, said: str, decides: bool
) -> None:
    """A file to include may lie where the harness compiles, and be none here."""

    class Slot:
        async def run(self, argv: Any, **_: Any) -> Any:
            return SimpleNamespace(rc=rc, output=said, stopped="")

    slot: Any = Slot()
    limits = Limits.of(CvdpConfig())
    problem: Any = bench.problem().payload
    gate = asyncio.run(try_compile(problem, slot, limits, with_verilator=False))
    assert gate.decides is decides


def test_the_schedule_switches_to_the_tests_and_back_nowhere(bench: Any) -> None:
    """Steps 0 to 4 of five proxy steps; evaluations and later steps use the reward itself."""
    reward = bench.reward(proxy="compile", proxy_steps=5)

    assert [reward.at_step(step, {}) is reward for step in range(7)] == [False] * 5 + [True] * 2
    plain = bench.reward()
    assert plain.at_step(0, {}) is plain


@pytest.mark.usefixtures("simulator")
def test_a_wrong_answer_that_compiles_pleases_the_proxy_alone(bench: Any) -> None:
    """The tests are not run, and nothing claims that the answer is right."""
    problem = bench.problem()
    proxy = proxied(bench, "compile")

    wrong, right = judged(proxy, problem, inc=WRONG), judged(proxy, problem, inc=bench.right)

    assert wrong.value == right.value == 0.5
    assert wrong.score01 == right.score01 == 0.0
    assert wrong.is_proxy
    assert wrong.tests_total is None
    assert judged(proxied(bench, "compile", step=5), problem, inc=bench.right).score01 == 1.0


@pytest.mark.usefixtures("simulator")
def test_a_proxy_tells_stages_apart(bench: Any) -> None:
    """An unknown module parses, a missing bracket does not, and no answer at all is worth 0."""
    problem = bench.problem()
    proxy = proxied(bench, "compile")

    values = [
        judged(proxy, problem, inc=UNKNOWN_MODULE).value,
        judged(proxy, problem, inc=BROKEN).value,
        judged(proxy, problem).value,
    ]

    assert values == [0.3, 0.1, 0.0]


@pytest.mark.usefixtures("simulator")
def test_lint_is_verilators_word(bench: Any) -> None:
    """Right code passes; what Verilator refuses does not, though Icarus compiles it."""
    require_tool("verilator", "sudo apt-get install -y verilator")
    problem = bench.problem()
    unsynthesisable = (
        "module inc(input [7:0] a, output [7:0] y);\n  assign y = a + 8'd1;\n  reg r;\n"
        "  initial begin assign r = a[0]; deassign r; end\nendmodule\n"
    )

    lint = proxied(bench, "lint")

    assert judged(lint, problem, inc=bench.right).value == 0.5
    found = judged(lint, problem, inc=unsynthesisable)
    assert found.evidence["lints"] is False
    assert (found.value, found.components["syntax"]) == (0.3, 0.3)
    assert judged(proxied(bench, "compile"), problem, inc=unsynthesisable).value == 0.5


@pytest.mark.usefixtures("simulator")
def test_a_problem_without_plain_sources_gets_the_full_reward(bench: Any) -> None:
    """Where the compiler has no say, the tests have it: 0 is never invented."""
    env = "\n".join(x for x in bench.env.splitlines() if not x.startswith("VERILOG_SOURCES"))
    runner = bench.runner.replace('os.getenv("VERILOG_SOURCES").split()', '["/code/rtl/inc.sv"]')
    problem = bench.problem(harness={"src/.env": env + "\n", "src/test_runner.py": runner})

    reward = judged(proxied(bench, "compile"), problem, inc=bench.right)

    assert (reward.score01, reward.is_proxy) == (1.0, False)


@pytest.mark.usefixtures("simulator")
def test_no_kept_verdict_of_one_reward_answers_for_another(bench: Any) -> None:
    """Keys differ between the proxies and the full reward, and agree between equal schedules."""
    problem = bench.problem()
    answer = Trajectory(problem_id=problem.id, files={"rtl/inc.sv": bench.right})

    def key(reward: Any) -> str | None:
        found: str | None = reward.verdict_key(problem, answer)
        return found

    full = key(bench.reward())
    keys = {full, key(proxied(bench, "compile")), key(proxied(bench, "lint"))}

    assert len(keys) == 3
    assert key(proxied(bench, "compile", step=5)) == full
    assert key(bench.reward(curriculum="pass-rate")) == full
