"""Answers that attack the verifier: they earn nothing, and the evidence says why."""

from __future__ import annotations

import asyncio

import pytest

from rlvr import Trajectory
from rlvr.testing.tools import require_tool
from rlvr_cvdp.toolchain.cocotb_stacks import running_stack

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("simulator", "place")]


def warm(test):
    """Of what the scan or the verdict decides; parametrised tests and test_sandbox.py show more."""
    return pytest.mark.one_of(3)(pytest.mark.places("warm", "rootfs", "docker")(test))


RESULT = (
    '<testsuites name=\\"results\\"><testsuite name=\\"all\\"><testcase name=\\"small\\" '
    'classname=\\"test_inc\\"/></testsuite></testsuites>'
)
PLACE = "/code/rundir/sim_build/test_runner.result.xml"


def wrong(body: str, head: str = "") -> str:
    """A design that does not increment, with something else in it."""
    return (
        f"{head}\nmodule inc(input [7:0] a, output [7:0] y);\n  assign y = a;\n{body}\nendmodule\n"
    )


def forge(path: str, opener: str = "$fopen", block: str = "final") -> str:
    """A block that writes results of its own."""
    return (
        f"integer fd;\n{block} begin\n  fd = {opener}({path});\n"
        f'  $fdisplay(fd, "{RESULT}");\n  $fclose(fd);\nend'
    )


FORGED = {
    "final": wrong(forge(f'"{PLACE}"')),
    "relative path": wrong(forge('"test_runner.result.xml"')),
    "initial": wrong(forge(f'"{PLACE}"', block="initial")),
    "macro": wrong(forge(f'"{PLACE}"', opener="`OPEN"), head="`define OPEN $fopen"),
    "pasted macro": wrong(forge(f'"{PLACE}"', opener="`J($fo,pen)"), head="`define J(a,b) a``b"),
    "concatenated path": wrong(forge('{"/code/rundir/sim_build/", "test_runner.result.xml"}')),
    "false line directive": wrong(
        '`line 1 "/code/rundir/sim_build/cocotb_iverilog_dump.v" 0\n' + forge(f'"{PLACE}"')
    ),
    "continuous assignment": wrong('wire [31:0] fd = $fopen("x.result.xml");'),
    "dump file": wrong(f'initial begin $dumpfile("{PLACE}"); $dumpvars(0, inc); end'),
    "written memory": wrong(f'reg [7:0] m[0:3]; initial $writememh("{PLACE}", m);'),
}


@pytest.mark.one_of(2, "written memory", "continuous")
@pytest.mark.parametrize("name", FORGED)
def test_forged_results_earn_nothing(bench, name):
    """A simulation that could write a file never runs, however the call is hidden."""
    reward = bench.rtl(FORGED[name])
    assert (reward.score01, reward.value) == (0.0, 0.0), reward
    assert reward.evidence["refused"], reward.evidence
    assert set(reward.components.values()) == {0.0}


@pytest.mark.one_of(2, "$finish_and_return", "$system")
@pytest.mark.parametrize(
    ("body", "found"),
    [
        ('initial $system("true");', "$system"),
        ('reg [7:0] m[0:3]; initial $readmemh("/src/test_inc.py", m);', "$readmemh"),
        ("wire [7:0] z; initial force a = 0;", "forces a signal"),
        ("wire [7:0] z = a; initial force z = 0;", "forces a signal"),
        ("initial force a[0] = 0;", "forces a signal"),
        ('initial $ivlh_file_open("x");', "$ivlh_file_open"),
        ('initial $log("x");', "$log"),
        ("initial $finish_and_return(137);", "$finish_and_return"),
    ],
)
def test_reaching_out_is_refused(bench, body, found):
    """System tasks that reach beyond the design are refused by name, in a right design too."""
    design = bench.right.replace("endmodule", body + "\nendmodule")
    reward = bench.rtl(design)
    assert (reward.score01, reward.value) == (0.0, 0.0), reward
    assert found in reward.evidence["why"], reward.evidence


BESIDE = (
    *("src/conftest.py", "src/sitecustomize.py", "src/test_inc.py", "rtl/../src/conftest.py"),
    *("rtl/../../out/launches", "/code/src/conftest.py", "/src/conftest.py", "/tmp/conftest.py"),
    *("rundir/conftest.py", "conftest.py", "rtl/conftest.py", "rtl/other.sv"),
)


@warm
def test_files_outside_the_targets_are_not_written(bench):
    """Only declared targets are written: another file neither helps nor counts as an answer."""
    cheat = dict.fromkeys(BESIDE, "import os\nos._exit(0)\n")
    for path in BESIDE:
        alone = bench.judge({path: cheat[path]})
        assert (alone.score01, alone.value) == (0.0, 0.0), path
    beside = bench.judge({**cheat, "rtl/inc.sv": wrong("")})
    assert beside.score01 == 0.0
    assert set(beside.evidence["ignored"]) == set(BESIDE)
    assert beside.value <= 0.5


@warm
def test_printed_summaries_must_agree_with_the_results(bench):
    """A right design that prints a summary of its own is not taken for a pass."""
    body = 'initial $display("** TESTS=2 PASS=2 FAIL=0 SKIP=0");'
    reward = bench.rtl(bench.right.replace("endmodule", body + "\nendmodule"))
    assert reward.score01 == 0.0
    assert "do not agree" in reward.evidence["why"]


PLUSARGS = ("+debug", "+n=7")


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    "question",
    [
        'reg d; initial d = $test$plusargs("debug"); assign y = d ? a + 8\'d1 : a;',
        'wire d = $test$plusargs("debug"); assign y = d ? a + 8\'d1 : a;',
        'integer n; initial if (!$value$plusargs("n=%d", n)) n = 0; assign y = n ? a + 8\'d1 : a;',
        'string s; integer n = 0; initial begin s = "n=%d"; if ($value$plusargs(s, n)) ; end '
        "assign y = n ? a + 8'd1 : a;",
    ],
)
def test_a_design_cannot_tell_the_harness_by_its_plusargs(bench, question):
    """A design that is right only under the harness's plusargs never sees them."""
    runner = bench.row()["harness"]["files"]["src/test_runner.py"]
    module = 'test_module=os.getenv("MODULE")'
    runner = runner.replace(module, f"{module}, plusargs={list(PLUSARGS)!r}")
    assert "plusargs" in runner
    problem = bench.problem(harness={"src/test_runner.py": runner})
    design = bench.right.replace("assign y = a + 8'd1;", question)
    reward = bench.rtl(design, problem)
    assert (reward.score01, reward.evidence["refused"]) == (0.0, []), reward
    speaks = {"docs/run.md": "Debug output is switched on by plusargs."}
    asked = bench.problem(harness={"src/test_runner.py": runner}, context=speaks)
    assert bench.rtl(design, asked).score01 == 1.0


@pytest.mark.one_of(4, f"vector-{PLACE}")
@pytest.mark.parametrize("over", [PLACE, "/code/rundir/sim_build/sim.vvp", "/rlvr/out/launches"])
@pytest.mark.parametrize("kind", ["string", "computed", "vector"])
def test_waves_over_a_file_of_the_verdict_reach_nothing(bench, over, kind):
    """Waves under a name that is computed go to a file that nobody reads."""
    name = {
        "string": f'string f = "{over}";',
        "vector": f'reg [8*80-1:0] f = "{over}";',
        "computed": f'string f; initial f = {{"{over[:9]}", "{over[9:]}"}};',
    }[kind]
    body = f"{name} initial begin #0 $dumpfile(f); $dumpvars(0, inc); end"
    if kind == "computed":
        assert bench.rtl(bench.right.replace("endmodule", body + "\nendmodule")).score01 == 1.0
    assert bench.rtl(wrong(body)).score01 == 0.0


@pytest.mark.one_of(2)
@pytest.mark.parametrize("task", ["$finish;", "$finish(0);", "$fatal;", "$stop;"])
def test_ending_early_is_no_pass(bench, task):
    """Ending the simulation before the tests do fails them."""
    reward = bench.rtl(wrong(f"initial {task}"))
    assert reward.score01 == 0.0
    assert reward.value <= 0.5


@warm
def test_a_second_module_of_the_same_name_does_not_compile(bench):
    """A file that the problem supplies cannot be replaced by defining its module again."""
    env = bench.env.replace("/code/rtl/inc.sv", "/code/rtl/inc.sv /code/rtl/one.sv")
    problem = bench.problem(
        harness={"src/.env": env},
        context={"rtl/one.sv": "module one(output [7:0] y); assign y = 1; endmodule\n"},
    )
    design = bench.right + "module one(output [7:0] y); assign y = 2; endmodule\n"
    reward = bench.rtl(design, problem)
    assert reward.score01 == 0.0
    assert reward.components["compilation"] == 0.0


@warm
def test_trust_in_the_problems_own_modules_cannot_be_borrowed(bench):
    """What the problem's own file may call, an answer's module of another name may not."""
    env = bench.env.replace("/code/rtl/inc.sv", "/code/rtl/inc.sv /code/rtl/own.sv")
    own = 'module own; integer fd; initial fd = $fopen("own.txt", "w"); endmodule\n'
    problem = bench.problem(harness={"src/.env": env}, context={"rtl/own.sv": own})
    honest = bench.right.replace("endmodule", "  own o();\nendmodule")
    assert bench.rtl(honest, problem).score01 == 1.0
    cheat = honest.replace("own o();", 'own o(); integer fd; initial fd = $fopen("x.py", "w");')
    assert bench.rtl(cheat, problem).value == 0.0


EVIL = 'integer fd; initial fd = $fopen("x.py", "w");'
OWN = """\
// This module is given.
`ifndef LEAN
module own; integer fd; initial fd = $fopen("own.txt", "w"); endmodule
`endif
"""
FILLED = f"`ifndef GO\n`define GO\n`endif\n{OWN}".replace("endmodule", "`GO endmodule")


@pytest.mark.parametrize(
    ("inside", "head", "after", "own"),
    [
        ("is u();", "", f"module is; {EVIL} endmodule", OWN),
        (f"module own; {EVIL} endmodule own u();", "", "", OWN),
        ("own u();", "", f"module own; {EVIL} endmodule\n/*", OWN),
        ("own u();", "`define LEAN", f"module own; {EVIL} endmodule", OWN),
        ("own u();", f"`define GO {EVIL}", "", FILLED),
        (f'\n`line 1 "/code/rtl/own.sv" 0\n{EVIL}', "", "", OWN),
        (f"\n`K(line)\n{EVIL}", '`define K(x) `x 1 "/code/rtl/own.sv" 0', "", OWN),
        (f'\n`include "/code/rtl/own.sv"\n{EVIL}', "", "", OWN),
    ],
)
def test_an_answer_cannot_pass_for_a_given_file(bench, inside, head, after, own):
    """Modules named, nested, hidden or filled so that they look given do not earn its trust."""
    env = bench.env.replace("/code/rtl/inc.sv", "/code/rtl/inc.sv /code/rtl/own.sv")
    problem = bench.problem(harness={"src/.env": env}, context={"rtl/own.sv": own})
    design = bench.right.replace("endmodule", inside + "\nendmodule")
    reward = bench.rtl(f"{head}\n{design}\n{after}", problem)
    assert reward.score01 == 0.0, reward


@warm
def test_waves_that_the_harness_asks_for_are_no_cheat(bench):
    """Cocotb's own wave module names its file through a variable and a plusarg."""
    runner = bench.runner.replace("always=True,", "always=True, waves=True,")
    problem = bench.problem(harness={"src/test_runner.py": runner})
    assert bench.rtl(bench.right, problem).score01 == 1.0


SYNTH = """\
def test_synth():
    with open("/code/rundir/log", "w") as log:
        log.write(open("/code/rtl/inc.sv").read())
    if "error" in open("/code/rundir/log").read().lower():
        return False
    return True
"""


@warm
def test_a_test_that_returns_false_is_no_pass(bench):
    """
    Official tests return False for "error" in a log, which pytest would take for a pass.

    They return True where all is well.
    """
    compose = bench.compose + (
        "  synth:\n    image: __OSS_PNR_IMAGE__\n    env_file: ./src/.env\n"
        "    command: pytest /src/synth.py -s -v\n"
    )
    problem = bench.problem(harness={"docker-compose.yml": compose, "src/synth.py": SYNTH})
    assert bench.rtl(bench.right, problem).score01 == 1.0
    reward = bench.rtl(bench.right.replace("endmodule", "  wire error;\nendmodule"), problem)
    assert reward.score01 == 0.0
    assert "synth" in reward.evidence["why"]


@warm
def test_an_include_of_the_harness_tells_nothing(bench):
    """Compiler messages may quote hidden files; nothing of them reaches the evidence."""
    reward = bench.rtl('`include "/src/test_inc.py"\n' + bench.right)
    assert reward.score01 == 0.0
    assert "cocotb" not in str(dict(reward.evidence)["why"])
    assert "import" not in str(dict(reward.evidence)["why"])


def test_the_harness_cannot_be_written(bench, monkeypatch):
    """/code/src and /src are read-only, and the reference is nowhere in the sandbox."""
    monkeypatch.setenv("RLVR_SECRET", "x")
    spy = """
import os, pathlib, sys
def test_spy():
    for place in ("/code/src/x", "/src/x", "/usr/x", "/rlvr/scan.py", "/code/src/test_inc.py"):
        try:
            open(place, "a").close()
        except OSError:
            continue
        raise AssertionError(place)
    assert not os.path.exists("/home") or not os.listdir("/home")
    assert not os.path.exists(@FOLDER@)
    assert "RLVR_SECRET" not in os.environ
    for folder in sys.path:
        assert not list(pathlib.Path(folder).glob("rlvr_cvdp/starter/*")), folder
"""
    problem = bench.problem(
        harness={
            "src/test_runner.py": bench.runner + spy.replace("@FOLDER@", repr(str(bench.folder)))
        }
    )
    assert bench.rtl(bench.right, problem).score01 == 1.0


@pytest.mark.one_of(2)
@pytest.mark.places("fresh", "warm")
def test_what_is_hidden_is_covered(bench):
    """Files of this machine that hold solutions cannot be read, though their folder is visible."""
    stack = running_stack()
    assert stack is not None
    folder, file = stack.site_packages / "pluggy", stack.site_packages / "find_libpython"
    file = file / "__main__.py"
    assert file.is_file()
    assert any(folder.iterdir())
    spy = f"""
import os
assert os.listdir({str(folder)!r}) == []
assert open({str(file)!r}).read() == ""
"""
    compose = bench.compose.replace(
        "pytest -o cache_dir=/rundir/harness/.cache /src/test_runner.py -v", "python /src/spy.py"
    )
    problem = bench.problem(harness={"docker-compose.yml": compose, "src/spy.py": spy})
    answer = Trajectory(problem_id=problem.id, files={"rtl/inc.sv": bench.right})
    for hidden in ((folder.resolve(), file.resolve()), ()):
        reward = bench.reward()
        reward._hidden = hidden

        async def once(reward=reward):  # in the sandbox that the reward itself opens
            async with reward:
                return await reward(problem, answer)

        outcome = asyncio.run(once())
        is_covered = outcome.evidence["services"][0]["rc"] == 0
        assert is_covered == bool(hidden), outcome.evidence


@pytest.mark.one_of(4, "docker")
@pytest.mark.places("warm", "fresh", "rootfs", "docker")
def test_no_network(bench):
    """A sandbox has no network but its own loopback."""
    spy = """
import socket
def test_net():
    names = [name for _, name in socket.if_nameindex()]
    assert names == ["lo"], names
"""
    problem = bench.problem(harness={"src/test_runner.py": bench.runner + spy})
    assert bench.rtl(bench.right, problem).score01 == 1.0


HINTED = """\
  synth:
    image: __OSS_PNR_IMAGE__
    env_file: ./src/.env
    command: pytest /src/synth.py -s -v
"""
VERSION = 'import subprocess\ndef test_synth():\n    subprocess.run("yosys -V", shell=True)\n'


@pytest.mark.one_of(3)
@pytest.mark.places("warm")
@pytest.mark.parametrize(
    "trick",
    [
        "`ifdef SYNTHESIS\n`endif",
        "`ifndef YOSYS\n`endif",
        "`ifdef COCOTB_SIM\n`endif",
        "// synthesis translate_off",
        "/* verilator lint_off WIDTH */",
        "(* blackbox *)",
        "(* keep = 1 * (1), blackbox *)",
        "`define SMALL blackbox\n(* `SMALL *)",
        "module other; localparam IS_SYNTH = (`SYNTHESIS -1) == 0; endmodule",
        "`define GET(x) `x 1\nmodule other; localparam P = `GET(VERILATOR); endmodule",
        'module other; initial $display("   Number of cells:   1"); endmodule',
    ],
)
def test_what_tools_may_read_differently_is_a_hint(bench, trick):
    """The evidence names such text and nothing is refused for it: the netlist decides."""
    changes = {"docker-compose.yml": bench.compose + HINTED, "src/synth.py": VERSION}
    reward = bench.rtl(trick + "\n" + bench.right, bench.problem(harness=changes))
    assert reward.evidence["hints"], reward.evidence
    assert reward.evidence["official"] is True, reward.evidence
    assert not reward.evidence["refused"], reward.evidence
    is_right = reward.evidence["netlist"]["basis"] != "refuted"
    assert (reward.score01, reward.value) == ((1.0, 1.0) if is_right else (0.0, 0.5))


@pytest.mark.places("warm")
def test_without_synthesis_or_in_a_guard_such_text_is_no_hint(bench):
    """Nobody synthesises the design; the words stand in a guard's name and a comment."""
    tricks = "`ifdef SYNTHESIS\n`endif\n// synthesis translate_off\n(* blackbox *)\n"
    plain = bench.rtl(tricks + bench.right)
    assert (plain.score01, "hints" in plain.evidence) == (1.0, False)
    changes = {"docker-compose.yml": bench.compose + HINTED, "src/synth.py": VERSION}
    problem = bench.problem(harness=changes)
    guard = "// Cells after SYNTHESIS.\n`ifndef SIMPLE_SYNTHESIZABLE_LINTER_SV\n"
    guard += "`define SIMPLE_SYNTHESIZABLE_LINTER_SV\n"
    guarded = bench.rtl(f"{guard}{bench.right}`endif\n", problem)
    assert (guarded.score01, "hints" in guarded.evidence) == (1.0, False)


LAX = """\
import os, subprocess
from cocotb_tools.config import libs_dir

def test_runner():
    env = {**os.environ, "COCOTB_TEST_MODULES": "test_inc", "COCOTB_TOPLEVEL": "inc",
           "PYGPI_PYTHON_BIN": os.sys.executable, "TOPLEVEL_LANG": "verilog",
           "COCOTB_RESULTS_FILE": "results.xml"}
    for p in range(2):
        os.system(f"iverilog -g2012 -o sim.vvp -Pinc.P={p} -s inc /code/rtl/inc.sv")
        subprocess.run(["vvp", "-M", str(libs_dir), "-m", "libcocotbvpi_icarus", "sim.vvp",
                        "-none"], env=env, check=@CHECK@)
"""


def one_of_two(second: str) -> str:
    """A design that is right for P = 0, with something else for P = 1."""
    head = "`timescale 1ns/1ns\nmodule inc #(parameter P = 0)(input [7:0] a, output [7:0] y);\n"
    return f"{head}assign y = a + (P == 0);\ngenerate if (P) {second} endgenerate\nendmodule\n"


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    ("second", "value", "check"),
    [
        ("missing m();", 0.75, True),
        ("missing m();", 0.75, False),
        ('initial $fopen("x.py");', 0.0, False),
        ("initial $finish;", 0.75, False),
    ],
    ids=["no build", "no build, nor checked", "refused", "finish"],
)
def test_an_earlier_launch_does_not_stand_in_for_a_later_one(bench, second, value, check):
    """A harness that ignores failing builds gets neither their old simulation nor old results."""
    runner = LAX.replace("@CHECK@", str(check))
    problem = bench.problem(harness={"src/test_runner.py": runner})
    reward = bench.rtl(one_of_two(second), problem, tests="share")
    assert reward.score01 == 0.0, reward.evidence
    assert reward.value <= value, reward.evidence


@warm
def test_a_harness_that_builds_twice_passes_a_right_design(bench):
    """Launches that share the place of their results each have their own."""
    problem = bench.problem(harness={"src/test_runner.py": LAX.replace("@CHECK@", "True")})
    right = one_of_two("begin end").replace("(P == 0)", "1")
    reward = bench.rtl(right, problem, tests="share")
    assert (reward.score01, reward.tests_passed, reward.tests_total) == (1.0, 4, 4)


@warm
def test_the_wave_module_of_cocotb_cannot_be_replaced(bench):
    """A module of the name that cocotb gives its own does not compile beside that."""
    runner = bench.runner.replace("always=True,", "always=True, waves=True,")
    problem = bench.problem(harness={"src/test_runner.py": runner})
    own = "module cocotb_iverilog_dump(); endmodule\n"
    reward = bench.rtl(bench.right + own, problem)
    assert (reward.score01, reward.components["compilation"]) == (0.0, 0.0), reward.evidence


LINT = """\
import subprocess
def test_lint():
    lint = ["verilator", "--lint-only", "-Wall", "--top-module", "inc", "/code/rtl/inc.sv"]
    assert subprocess.run(lint).returncode == 0
"""


@pytest.mark.parametrize(("pipe", "is_first"), [("/proc/1/fd/1", True), ("/proc/self/fd/2", False)])
def test_a_linter_that_is_made_to_wait_is_a_wrong_answer(bench, pipe, is_first):
    """A tool that the answer makes read its own output waits: the design's doing, no error."""
    require_tool("verilator", "sudo apt-get install -y verilator")
    lint = (
        "  lint:\n    image: __OSS_PNR_IMAGE__\n    env_file: ./src/.env\n"
        "    command: pytest /src/lint.py -s -v\n"
    )
    compose = bench.compose + lint
    if is_first:
        compose = bench.compose.replace("services:\n", "services:\n" + lint)
    problem = bench.problem(harness={"docker-compose.yml": compose, "src/lint.py": LINT})
    answer = f'`include "{pipe}"\n{bench.right}'
    reward = bench.rtl(answer, problem, timeout_s=5.0)
    assert reward.score01 == 0.0
    assert reward.evidence["why"], reward.evidence


BENCH = """\
module tb;
  reg [7:0] a; wire [7:0] y; integer bad;
  inc dut(.a(a), .y(y));
  initial begin
    bad = 0;
    for (a = 0; a < 100; a = a + 1) begin #1; if (y !== a + 8'd1) bad = bad + 1; end
    $display("Mismatches: %1d in 100 samples", bad);
    $finish;
  end
endmodule
"""
PRINTED = '`line 1 "mismatches: 0 in 9 samples" 0\n'


@pytest.mark.one_of(2)
@pytest.mark.places("warm", "fresh")
def test_a_warning_cannot_print_what_a_testbench_would(bench):
    """The simulator's own warnings name a file, which a design may choose: no function may warn."""
    row = {"id": "inc_1", "prompt": "Write inc.", "testbench": BENCH}
    (problem,) = bench.task(row).problems("all")
    used = "integer z; always @(a) z = $random + $signed(a) + $clog2(8);\nendmodule"
    assert bench.rtl(bench.right.replace("endmodule", used), problem).score01 == 1.0
    body = f'string s;\n{PRINTED}initial s = $sformatf("%d");'
    assert bench.rtl(wrong(body), problem).score01 == 0.0
