"""Answers that make a tool wait are wrong, soon; what a known answer fails too is no verdict."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from unittest.mock import Mock

import pytest
from attrs import evolve

from rlvr import Problem, Reward, Trajectory, VerifierError
from rlvr.testing.tools import require_tool
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.episodes.tools import Tools
from rlvr_cvdp.sandbox.processes.watch import LimitMonitor
from rlvr_cvdp.sandbox.records import Limits
from rlvr_cvdp.verify.control import RIGHT, own_problem
from rlvr_cvdp.verify.verdict import verify

PIPES = [
    "/proc/self/fd/1",
    "/proc/self/fd/2",
    "/dev/stdout",
    "/dev/stderr",
    "/proc/1/fd/1",
    "/proc/thread-self/fd/1",
    "/rlvr/run/ask",
    "/rlvr/run/reply.1",
    "/proc/self/fd/../fd/2",
]
HARMLESS = ["/dev/stdin", "/dev/tty", "/proc/kmsg", "/dev/null", "/proc/self/fd/0"]
MACRO = '`define WHERE "{pipe}"\n`include `WHERE\n'
PASTED = '`define J(a, b) `include a``b\n`J("{pipe}",)\n'
PLAIN = '`include "{pipe}"\n'
CHAIN = '`define A "{pipe}"\n`define B `A\n`include `B\n'


def _without_reference(bench, **changes) -> Problem:
    """The problem as the published rows are: nobody gives its solution."""
    problem = bench.problem(**changes)
    return evolve(problem, payload=evolve(problem.payload, reference={}))


@pytest.mark.integration
@pytest.mark.usefixtures("simulator", "place")
@pytest.mark.parametrize("known", ["reference", "nothing"])
def test_a_text_that_includes_a_pipe_through_a_macro_is_wrong(bench, known):
    """No list of words knows the file; the tool waits, a known answer does not: wrong, soon."""
    problem = bench.problem() if known == "reference" else _without_reference(bench)
    begun = time.monotonic()
    reward = bench.rtl(MACRO.format(pipe="/proc/self/fd/2") + bench.right, problem)
    assert (reward.score01, reward.components["syntax"]) == (0.0, 0.0), reward.evidence
    assert time.monotonic() - begun < 60


INCLUDES = [text.format(pipe=pipe) for text, pipe in [
    *((MACRO, pipe) for pipe in [*PIPES, *HARMLESS]),
    *((text, pipe) for text in (PASTED, CHAIN, PLAIN) for pipe in (*PIPES[:1], *PIPES[6:])),
]]  # fmt: skip


@pytest.mark.one_of(4)
@pytest.mark.integration
@pytest.mark.usefixtures("simulator")
@pytest.mark.places("warm", "fresh", "rootfs", "docker")
def test_no_file_to_include_makes_a_verification_fail(bench, in_turn):
    """Whatever the text asks the compiler to read, it comes to a verdict."""
    problem = bench.problem()
    asked = {text: (text + bench.right, problem) for text in in_turn(INCLUDES)}
    for text, reward in bench.together(asked).items():
        assert isinstance(reward, Reward), (text, reward)
        assert reward.evidence["why"] or reward.score01 == 1.0, text


SLEEPS = "    import time; time.sleep(60)\n    runner = get"


@pytest.mark.integration
@pytest.mark.usefixtures("simulator", "place")
@pytest.mark.parametrize("known", ["reference", "nothing"])
def test_a_harness_that_waits_whatever_the_answer_is_no_verdict(bench, known):
    """The reference, or an answer that does nothing, waits too: nobody is blamed for it."""
    harness = {"src/test_runner.py": bench.runner.replace("    runner = get", SLEEPS)}
    if known == "reference":
        problem = bench.problem(harness=harness)
    else:
        problem = _without_reference(bench, harness=harness)
    with pytest.raises(VerifierError, match="waits"):
        bench.rtl(bench.right, problem, idle_s=0.5)


CATCH = """\
import os, signal, sys, time
if "@MARK@" in open("/code/rtl/inc.sv").read():
    @DO@
"""
DEEDS = {
    "waits": ("time.sleep(60)", "waits"),
    "is killed": ("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
    "cannot be imported": ("__import__('surely_not_there')", "surely_not_there"),
    "cannot be run": ("os._exit(127)", "cannot be run"),
    "stops pytest": ("os._exit(4)", "pytest could not run"),
    "ends all": ("os.kill(-1, signal.SIGTERM)", ""),
}


@pytest.mark.one_of(4, "rootfs")
@pytest.mark.integration
@pytest.mark.usefixtures("simulator")
@pytest.mark.places("warm", "fresh", "rootfs", "docker")
def test_what_only_this_answer_brings_about_is_its_own_fault(bench, in_turn):
    """However a verification ends: where a known answer comes to a verdict, the answer is wrong."""
    cases = [(deed, known) for deed in DEEDS for known in ("reference", "nothing")]
    evil, right = {}, {}
    for deed, known in in_turn(cases):
        runner = CATCH.replace("@MARK@", "EVIL").replace("@DO@", DEEDS[deed][0]) + bench.runner
        given = bench.problem if known == "reference" else partial(_without_reference, bench)
        problem = given(harness={"src/test_runner.py": runner})
        evil[deed, known] = (f"// EVIL\n{bench.right}", problem)
        right[deed, known] = (bench.right, problem)
    for (deed, known), reward in bench.together(evil).items():
        words = DEEDS[deed][1]
        assert isinstance(reward, Reward), (deed, known, reward)
        assert reward.score01 == 0.0, (deed, known)
        assert words in reward.evidence["why"]
        if words:
            assert (reward.evidence["stage"], reward.evidence["control"]) == ("sandbox", True)
    assert {each.score01 for each in bench.together(right).values()} == {1.0}


@pytest.mark.one_of(4)
@pytest.mark.places("warm", "fresh", "rootfs", "docker")
@pytest.mark.integration
@pytest.mark.usefixtures("simulator", "place")
def test_a_machine_that_fails_once_costs_no_answer_its_reward(bench, monkeypatch):
    """An answer that is disturbed once, and not with the known answer, is judged once more."""
    problem = bench.problem()

    async def judge() -> tuple[float, bool]:
        reward = await bench.judged.opened(bench.reward())
        slot, seen = reward._sandbox.slot, []

        def failing(stack):
            seen.append(1)
            if len(seen) == 1:
                raise VerifierError("the machine failed")
            return slot(stack)

        monkeypatch.setattr(reward._sandbox, "slot", failing)
        answer = Trajectory(problem_id=problem.id, files={"rtl/inc.sv": bench.right})
        outcome = await reward(problem, answer)
        return outcome.score01, outcome.evidence["control"]

    assert bench.judged.run(judge()) == (1.0, True)


@pytest.mark.integration
@pytest.mark.usefixtures("simulator")
def test_an_earlier_right_answer_is_the_known_one(bench):
    """Without a reference, what was right before shows that the harness still comes to an end."""
    body = CATCH.replace("@MARK@", "a + 8'd1").replace("@DO@", "pass\nelse:\n    time.sleep(60)")
    problem = _without_reference(bench, harness={"src/test_runner.py": body + bench.runner})
    right = Trajectory(problem_id=problem.id, files={"rtl/inc.sv": bench.right})
    waits = Trajectory(
        problem_id=problem.id, files={"rtl/inc.sv": bench.right.replace("a + 8'd1", "1 + a")}
    )

    async def judge() -> list[float]:
        reward = await bench.judged.opened(bench.reward())
        with pytest.raises(VerifierError, match="waits"):
            await reward(problem, waits)
        return [(await reward(problem, answer)).score01 for answer in (right, waits)]

    assert bench.judged.run(judge()) == [1.0, 0.0]


@pytest.mark.one_of(2)
@pytest.mark.integration
@pytest.mark.usefixtures("simulator", "place")
@pytest.mark.places("warm")  # a linter waits in fresh ones too in test_cheats.py
@pytest.mark.parametrize("tool", ["verilator", "yosys"])
def test_a_linter_or_synthesizer_that_waits_is_wrong(bench, tool):
    """The other tools of a harness, waiting for a pipe through a macro, are the answer's doing."""
    require_tool(tool, f"sudo apt-get install -y {tool}")
    command = {
        "verilator": "verilator --lint-only -Wno-fatal --top-module inc /code/rtl/inc.sv",
        "yosys": "yosys -p 'read_verilog -sv /code/rtl/inc.sv; synth -top inc'",
    }[tool]
    lint = f'import os\ndef test_lint():\n    assert os.system("{command}") == 0\n'
    compose = bench.compose.replace(
        "services:\n",
        "services:\n  lint:\n    image: __OSS_PNR_IMAGE__\n    env_file: ./src/.env\n"
        "    command: pytest /src/lint.py -s -v\n",
    )
    problem = _without_reference(
        bench, harness={"docker-compose.yml": compose, "src/lint.py": lint}
    )
    assert bench.rtl(bench.right, problem).score01 == 1.0
    for pipe in ("/proc/self/fd/1", "/dev/stdin"):
        reward = bench.rtl(MACRO.format(pipe=pipe) + bench.right, problem)
        assert reward.score01 == 0.0 or pipe == "/dev/stdin"


WRONG = "module inc(input [7:0] a, output [7:0] y);\n  assign y = a;\n{body}\nendmodule\n"
BOMB = "`define M0 a\n" + "".join(
    f"`define M{n} {'+'.join([f'`M{n - 1}'] * 10)}\n" for n in range(1, 10)
)
EATERS = {
    "reads its input": "integer c; initial begin c = $fgetc(32'h8000_0000); #0 c = $fgetc(0); end",
    "reads lines of its input": "reg [99:0] s; integer n; initial n = $fgets(s, 32'h8000_0000);",
    "stops for a prompt": "initial begin #1 $stop; end",
    "stops at once": "initial $stop(2);",
    "a loop without time": "initial forever ;",
    "a loop of events": "event e; always @(e) -> e; initial #1 -> e; reg q = 0; always #0 q = ~q;",
    "a loop of signals": "wire w; assign w = ~(w === 1'b1) & (a !== 8'hxx);",
    "a large loop of generate": "genvar i; generate for (i = 0; i < 9999999; i = i + 1) "
    "begin : g wire [99:0] w = i; end endgenerate",
    "a tree of instances": "endmodule\nmodule t #(parameter N = 40)(); generate if (N) begin "
    "t #(N - 1) l(); t #(N - 1) r(); end endgenerate endmodule module m; t u();",
    "macros of macros": "endmodule\n" + BOMB + "module m(input a, output y); assign y = `M9;",
    "a deep expression": f"wire w = {'(' * 40000}a{')' * 40000};",
    "a long expression": f"wire [7:0] w = a{' + a' * 100000};",
    "deep blocks": f"initial {'begin ' * 30000}{' end' * 30000}",
    "a function of itself": "function automatic integer f(input integer n); f = f(n + 1) + 1; "
    "endfunction initial $display(f(0));",
    "a constant function of itself": "function automatic integer f(input integer n); "
    "f = f(n + 1) + f(n + 2); endfunction localparam P = f(0); wire [P:0] w;",
    "a wide vector": "reg [30000000:0] v; wire [30000000:0] w = v * v; initial v = a ** 99;",
    "a large memory": "reg [1023:0] m [0:99999999]; initial m[5] = a;",
    "a string that grows": 'string s; initial begin s = "x"; forever s = {s, s}; end',
    "a queue that grows": "int q[$]; initial forever q.push_back(1);",
    "threads without end": "integer i; initial forever fork begin #1000; end join_none",
    "prints without end": 'initial forever $display("%0s", {4000{"x"}});',
    "a crash": "initial begin : b disable b; $display(b.c.d.e[3]); end assign a.b.c = $unsigned;",
    "a table without end": "primitive p(o, i); output o; input i; table\n"
    + "0 : 0;\n" * 20000
    + "endtable endprimitive",
    "ends as if killed": "initial begin $finish_and_return(137); end",
    "an include of itself": '`include "inc.sv"\n`include "/code/rtl/inc.sv"',
}
TIGHT = {"timeout_s": 0.4, "idle_s": 1.0, "memory_mb": 800}


@pytest.mark.one_of(
    8, "loop of generate", "ends as if killed", "stops for a prompt", "a string that grows"
)
@pytest.mark.integration
@pytest.mark.usefixtures("simulator", "place")
@pytest.mark.places("warm")
@pytest.mark.parametrize("what", EATERS)
def test_what_crashes_or_eats_a_tool_is_a_wrong_answer(bench, what):
    """However a tool ends on an answer's text, a verdict comes and it is 0; the next is judged."""
    reward = bench.rtl(WRONG.format(body=EATERS[what]), **TIGHT, output_mb=2)
    assert reward.score01 == 0.0, reward.evidence


@pytest.mark.one_of(12, "ends as if killed", "an include of itself")
@pytest.mark.integration
@pytest.mark.usefixtures("simulator", "place")
@pytest.mark.places("warm", "fresh")
@pytest.mark.parametrize("what", EATERS)
def test_what_crashes_or_eats_a_tool_is_an_agents_own_error(bench, what):
    """In an agent's tools too: each says how it ended, and the next one works."""
    config = CvdpConfig(**TIGHT, **bench.place)
    text = WRONG.format(body=EATERS[what])
    honest = 'module tb; initial $display("honest"); endmodule\n'

    async def play() -> str:
        tools = Tools(bench.problem().payload, await bench.judged.sandbox(config), config)
        files = {"rtl/inc.sv": text}
        for tool in (tools.compile, tools.lint, tools.stat, tools.simulate):
            ran = await tool(files, ["rtl/inc.sv"])
            assert ran.ok or ran.output, tool
        return (await tools.simulate({"verif/tb.sv": honest}, ["verif/tb.sv"])).output

    assert "honest" in bench.judged.run(play())


@pytest.mark.integration
@pytest.mark.network
@pytest.mark.usefixtures("simulator", "place")
@pytest.mark.places("fresh", "warm")
@pytest.mark.parametrize("generation", [1, 2])
def test_our_own_problem_is_judged_right_in_both_generations(bench, generation):
    """The control of problems without a reference is right, and can be wrong, with each cocotb."""
    problem = own_problem(generation)

    async def judge() -> list[bool]:
        async with bench.reward() as reward:
            sandbox = reward._sandbox
            judged = [
                await verify(
                    problem,
                    {"rtl/inc.sv": text},
                    bench.settings(sandbox, problem, 60.0),
                    seeds=("1",),
                )
                for text in (RIGHT, RIGHT.replace("8'd1", "8'd2"))
            ]
            return [verdict.is_right for verdict in judged]

    assert asyncio.run(judge()) == [True, False]


def _limits(**changes) -> Limits:
    defaults = {"wall_s": 100, "cpu_s": 10, "idle_s": 3, "memory_mb": 9999, "processes": 9}
    return Limits(**{**defaults, "file_mb": 1, "disk_mb": 1, "output_mb": 1, **changes})


def _watched(monkeypatch, tmp_path, looks, **changes) -> str:
    """What a watch says of (time, processor time, busy) looks; the last word of it."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    current = [(0.0, True)]
    gone = 2**22  # above every process id: what a look reads of it takes no time
    process = Mock(pid=gone, is_crowded=lambda most: False, activity=lambda: current[0])
    watch = LimitMonitor(tmp_path, _limits(**changes), process)
    said = ""
    for at, cpu_s, is_busy in looks:
        now[0], current[0] = at, (cpu_s, is_busy)
        said = said or watch.excess()
    return said


@pytest.mark.parametrize(
    ("looks", "said"),
    [
        ([(n, 0.0, False) for n in range(1, 5)], "idle"),
        ([(n, 0.0, True) for n in range(1, 50)], ""),  # waits for a processor: a busy machine
        ([(n / 2, 0.02 * n, False) for n in range(1, 50)], ""),  # computes a little all the time
        ([(n / 2, 0.002 * n, False) for n in range(1, 50)], "idle"),  # only looks around
        ([(1, 0.0, False), (90, 0.0, False), (90.5, 0.0, False)], ""),  # nobody looked meanwhile
        ([(1, 9.9, True), (2, 10.1, True)], "time"),
        ([(n / 2, 0.02 * n, False) for n in range(1, 250)], "wall"),
        ([(n / 2, 0.02 * n, True) for n in range(1, 450)], ""),
    ],
)
def test_idle_slow_and_busy_are_told_apart(monkeypatch, tmp_path, looks, said):
    """Waiting, computing too long, and a machine that gives too little are three things."""
    assert _watched(monkeypatch, tmp_path, looks) == said


def test_an_idle_limit_of_zero_is_none(monkeypatch, tmp_path):
    """`cvdp.idle_s=0` leaves only the time that goes by."""
    looks = [(n, 0.0, False) for n in range(1, 120)]
    assert _watched(monkeypatch, tmp_path, looks, idle_s=0) == "wall"
