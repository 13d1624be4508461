"""Given modules that write under a name that an answer chooses: evidence is out of reach."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("simulator", "place")]

RESULT = (
    '<testsuites name=\\"results\\"><testsuite name=\\"all\\"><testcase name=\\"small\\" '
    'classname=\\"test_inc\\"/><testcase name=\\"large\\" classname=\\"test_inc\\"/>'
    "</testsuite></testsuites>"
)
RESULTS = "/code/rundir/sim_build/test_runner.result.xml"
LOGGER = """\
module logger #(parameter NAME = "own.txt", parameter TEXT = "x", parameter MODE = "w")
  (input [7:0] a);
  integer fd;
  initial begin
    fd = $fopen(NAME, MODE);
    $fdisplay(fd, "%0s", TEXT);
    $fclose(fd);
  end
endmodule
"""
LATE = LOGGER.replace("initial begin", "final begin")
VARIABLE = """\
module logger(input [7:0] a);
  reg [8*64:1] name; string text; integer fd;
  initial begin name = "own.txt"; text = "x"; #2 fd = $fopen(name, "w"); $fdisplay(fd, text); end
endmodule
"""
STRING = VARIABLE.replace("reg [8*64:1] name; string text;", "string name, text;")
BUILT = LOGGER.replace("$fopen(NAME, MODE)", '$fopen({NAME, ".xml"}, "w")')
NET = """\
module logger #(parameter NAME = "own.txt", parameter TEXT = "x")(input [7:0] a);
  wire [31:0] fd = $fopen(NAME, "w");
  initial #1 $fdisplay(fd, "%0s", TEXT);
endmodule
"""
MEMORY = """\
module logger #(parameter NAME = "own.txt")(input [7:0] a);
  reg [7:0] m [0:3]; initial begin m[0] = a; #1 $writememh(NAME, m); end
endmodule
"""
DUMP = """\
module logger #(parameter NAME = "own.vcd")(input [7:0] a);
  initial begin $dumpfile(NAME); $dumpvars(0, logger); end
endmodule
"""
VECTOR = LOGGER.replace("parameter NAME =", "parameter [8*60:1] NAME =")
WRONG = "module inc(input [7:0] a, output [7:0] y);\n  assign y = a;\n{body}\nendmodule\n"
FORGE = f'logger #(.NAME("{RESULTS}"), .TEXT("{RESULT}")) u(a);'
DEEDS = {
    "parameter": (LOGGER, FORGE),
    "at the end": (LATE, FORGE),
    "append": (LOGGER, FORGE.replace(".TEXT", '.MODE("a"), .TEXT')),
    "relative": (LOGGER, FORGE.replace(RESULTS, "test_runner.result.xml")),
    "dots": (LOGGER, FORGE.replace(RESULTS, "/tmp/.." + RESULTS)),
    "defparam": (LOGGER, f'logger u(a); defparam u.NAME = "{RESULTS}", u.TEXT = "{RESULT}";'),
    "generate": (LOGGER, f"generate if (1) begin : g {FORGE} end endgenerate"),
    "loop": (LOGGER, f"genvar i; for (i = 0; i < 2; i = i + 1) begin : g {FORGE} end"),
    "concatenated": (BUILT, FORGE.replace(".xml", "", 1)),
    "vector parameter": (VECTOR, FORGE),
    "variable": (VARIABLE, f'logger u(a); initial #1 begin u.name = "{RESULTS}"; '
                           f'u.text = "{RESULT}"; end'),
    "string": (STRING, f'logger u(a); initial #1 begin u.name = "{RESULTS}"; '
                       f'u.text = "{RESULT}"; end'),
    "continuous assignment": (NET, FORGE),
    "the supervisor's notes": (LOGGER, 'logger #(.NAME("/rlvr/out/launches"), .TEXT("0 1")) u(a);'),
    "the wrapper's answer": (LOGGER, 'logger #(.NAME("/rlvr/run/reply.1"), .TEXT("0")) u(a);'),
    "the socket": (LOGGER, 'logger #(.NAME("/rlvr/control/record"), .TEXT("[]")) u(a);'),
    "its own descriptors": (LOGGER, 'genvar i; for (i = 3; i < 256; i = i + 1) begin : g logger '
                            '#(.NAME({"/proc/self/fd/", 8\'d48 + 8\'(i / 100), '
                            '8\'d48 + 8\'((i / 10) % 10), 8\'d48 + 8\'(i % 10)})) u(a); end'),
    "memory": (MEMORY, f'logger #(.NAME("{RESULTS}")) u(a);'),
    "waves": (DUMP, f'logger #(.NAME("{RESULTS}")) u(a);'),
}  # fmt: skip


def _problem(bench, own: str, **changes):
    env = bench.env.replace("/code/rtl/inc.sv", "/code/rtl/inc.sv /code/rtl/own.sv")
    harness = {"src/.env": env, **changes.pop("harness", {})}
    return bench.problem(harness=harness, context={"rtl/own.sv": own}, **changes)


@pytest.mark.one_of(
    3,
    *("append", "defparam", "concatenated", "vector parameter", "variable", "memory", "waves"),
    *("supervisor", "wrapper", "socket", "descriptors"),
)
@pytest.mark.parametrize(
    ("deed", "tests"),
    [*((deed, "share") for deed in DEEDS), ("parameter", "all"), ("at the end", "all")],
)
def test_a_given_module_forges_nothing(bench, deed, tests):
    """However its name is given, a wrong design does not pass, nor gets a share of the tests."""
    own, body = DEEDS[deed]
    reward = bench.rtl(WRONG.format(body=body), _problem(bench, own), tests=tests)
    assert reward.score01 == 0.0, reward.evidence
    assert reward.components["tests"] == 0.0
    assert reward.tests_passed == 0


BOTH = f'''
logger #(.NAME("{RESULTS}"), .TEXT("{RESULT}")) u(a);
logger #(.NAME("/code/rundir/told.log"), .TEXT("** TESTS=2 PASS=2 FAIL=0 SKIP=0 **")) w(a);
'''


@pytest.mark.parametrize("tests", ["all", "share"])
def test_results_and_log_forged_together_earn_nothing(bench, tests):
    """Both channels that files once were, written at the simulation's end: it won all before."""
    runner = bench.runner.replace("runner.test(", 'runner.test(log_file="/code/rundir/told.log", ')
    problem = _problem(bench, LATE, harness={"src/test_runner.py": runner})
    reward = bench.rtl(WRONG.format(body=BOTH), problem, tests=tests)
    assert (reward.score01, reward.components["tests"]) == (0.0, 0.0), reward.evidence
    right = bench.right.replace("endmodule", "  logger u(a);\nendmodule")
    assert bench.rtl(right, problem, tests=tests).score01 == 1.0


BLIND = """\
import os, subprocess
from cocotb_tools.config import libs_dir

def test_runner():
    env = {**os.environ, "COCOTB_TEST_MODULES": "test_inc", "COCOTB_TOPLEVEL": "inc",
           "PYGPI_PYTHON_BIN": os.sys.executable, "TOPLEVEL_LANG": "verilog",
           "COCOTB_RESULTS_FILE": "/code/rundir/results.xml"}
    os.system("iverilog -g2012 -o sim.vvp -s inc /code/rtl/inc.sv /code/rtl/own.sv")
    subprocess.run(["vvp", "-M", str(libs_dir), "-m", "libcocotbvpi_icarus", "sim.vvp", "-none"],
                   env=env)
    @BAD@
"""


@pytest.mark.parametrize(
    "bad",
    [
        f"open('/code/rundir/results.xml', 'w').write('''{RESULT}'''.replace(chr(92), ''))",
        f"open('/rlvr/out/1.xml', 'w').write('''{RESULT}'''.replace(chr(92), ''))",
        "open('/rlvr/out/launches', 'w').write('0 1' + chr(10))",
        "print('** TESTS=2 PASS=2 FAIL=0 SKIP=0')",
        "pass",
    ],
)
def test_files_and_prints_are_no_evidence(bench, bad):
    """Even a process that may write everywhere in the sandbox changes no result by writing."""
    problem = _problem(bench, "", harness={"src/test_runner.py": BLIND.replace("@BAD@", bad)})
    assert bench.rtl(WRONG.format(body=""), problem).score01 == 0.0


READER = """
def test_log():
    assert open("/code/rundir/sim_build/own.txt").read() == "x\\n"
"""


@pytest.mark.parametrize("own", [LOGGER, LATE, LOGGER.replace("NAME, MODE", '"own.txt"')])
def test_the_default_name_is_the_problems_own(bench, own):
    """A given module that writes its own log still does; the harness can read it."""
    runner = bench.runner + READER
    problem = _problem(bench, own, harness={"src/test_runner.py": runner})
    right = bench.right.replace("endmodule", "  logger u(a);\nendmodule")
    assert bench.rtl(right, problem).score01 == 1.0
    named = right.replace("logger u", 'logger #(.NAME("own.txt")) u')
    if "NAME, MODE" in own:
        assert bench.rtl(named, problem).score01 == 1.0


@pytest.mark.one_of(3)
@pytest.mark.parametrize("own", [LOGGER, STRING, VARIABLE, BUILT, NET, MEMORY, DUMP, VECTOR])
def test_honest_use_under_another_name_is_judged_as_it_is(bench, own):
    """What goes to the private folder disturbs nothing: right stays right, wrong stays wrong."""
    use = '  logger #(.NAME("mine.txt")) u(a);' if "parameter" in own else "  logger u(a);"
    problem = _problem(bench, own)
    right = bench.right.replace("endmodule", f"{use}\nendmodule")
    assert bench.rtl(right, problem).score01 == 1.0
    assert bench.rtl(right.replace("8'd1", "8'd2"), problem).score01 == 0.0


@pytest.mark.parametrize("how", ['"r"', '"r+"'])
def test_what_is_written_under_a_chosen_name_can_be_read_again(bench, how):
    """A module that writes a file and reads it back finds it: both names become the same one."""
    own = """\
module logger #(parameter NAME = "own.txt")(output reg [7:0] one);
  integer fd;
  initial begin
    one = 0;
    fd = $fopen(NAME, "w"); $fwrite(fd, "%c", 8'd1); $fclose(fd);
    fd = $fopen(NAME, @HOW@); one = $fgetc(fd); $fclose(fd);
  end
endmodule
"""
    right = bench.right.replace("a + 8'd1;", 'a + one;\n  wire [7:0] one;\n'
                                '  logger #(.NAME("mine.txt")) u(one);')  # fmt: skip
    assert bench.rtl(right, _problem(bench, own.replace("@HOW@", how))).score01 == 1.0


ROM = """\
module rom #(parameter FILE = "rtl/none.hex")(input [7:0] a, output [7:0] q);
  reg [7:0] m [0:255];
  initial $readmemh(FILE, m);
  assign q = m[a];
endmodule
"""
OPENED = """\
module rom #(parameter FILE = "rtl/none.hex")(input [7:0] a, output [7:0] q);
  reg [7:0] m [0:255]; integer fd, i, n;
  initial begin
    fd = $fopen(FILE, "r");
    for (i = 0; i < 256; i = i + 1) n = $fscanf(fd, "%h", m[i]);
  end
  assign q = m[a];
endmodule
"""
TABLE = "".join(f"{(n + 1) % 256:02x}\n" for n in range(256))
FROM = 'module inc(input [7:0] a, output [7:0] y);\n  rom #(.FILE("@FILE@")) u(a, y);\nendmodule\n'


HIDDEN = ("/src/golden.hex", "/code/src/golden.hex", "../src/golden.hex",
          "/code/rtl/../src/golden.hex", "/proc/self/root/src/golden.hex")  # fmt: skip
SHOWN = ("/code/rtl/golden.hex", "../../rtl/golden.hex")


@pytest.mark.one_of(4, "docker")
@pytest.mark.places("warm", "fresh", "rootfs", "docker")
def test_a_given_module_reads_the_harness_for_nobody(bench, in_turn):
    """A table of what the tests expect is no way to be right; what an answer is shown may be."""
    for name, own in in_turn([(name, own) for name in HIDDEN for own in (ROM, OPENED)]):
        problem = _problem(bench, own, harness={"src/golden.hex": TABLE})
        reward = bench.rtl(FROM.replace("@FILE@", name), problem)
        assert reward.score01 == 0.0, (name, own, reward.evidence)
    for name, own in in_turn([(name, own) for name in SHOWN for own in (ROM, OPENED)]):
        shown = bench.problem(
            harness={"src/.env": bench.env.replace("inc.sv", "inc.sv /code/rtl/own.sv")},
            context={"rtl/own.sv": own, "rtl/golden.hex": TABLE},
        )
        reward = bench.rtl(FROM.replace("@FILE@", name), shown)
        assert reward.score01 == 1.0, (name, own, reward.evidence)


ROM_OF_A_VARIABLE = """\
module rom(input [7:0] a, output [7:0] q);
  reg [8*64:1] name; reg [7:0] m [0:255];
  initial begin name = "rtl/none.hex"; #0 #0 $readmemh(name, m); end
  assign q = m[a];
endmodule
"""
VARIABLES = {
    "a vector": ROM_OF_A_VARIABLE,
    "a string": ROM_OF_A_VARIABLE.replace("reg [8*64:1] name;", "string name;"),
    "a part": ROM_OF_A_VARIABLE.replace("(name, m)", "(name[8*63:1], m)"),
    "what is put together": ROM_OF_A_VARIABLE.replace("(name, m)", '({"/src/", name[8*40:1]}, m)'),
    "what is formatted": ROM_OF_A_VARIABLE.replace("(name, m)", '($sformatf("%0s", name), m)'),
    "opened": OPENED.replace('#(parameter FILE = "rtl/none.hex")', "").replace(
        "reg [7:0] m", 'reg [8*64:1] name; initial name = "rtl/none.hex";\n  reg [7:0] m'
    ).replace("fd = $fopen(FILE", "#0 #0 fd = $fopen(name"),
    "opened as bytes": OPENED.replace('#(parameter FILE = "rtl/none.hex")', "").replace(
        "reg [7:0] m", 'reg [8*64:1] name; initial name = "rtl/none.hex";\n  reg [7:0] m'
    ).replace('fd = $fopen(FILE, "r")', '#0 #0 fd = $fopen(name, "rb")'),
    "opened in a mode that is chosen": OPENED.replace(
        '#(parameter FILE = "rtl/none.hex")', '#(parameter MODE = "r")'
    ).replace(
        "reg [7:0] m", 'reg [8*64:1] name; initial name = "rtl/none.hex";\n  reg [7:0] m'
    ).replace('fd = $fopen(FILE, "r")', "#0 #0 fd = $fopen(name, MODE)"),
    "an array": ROM_OF_A_VARIABLE.replace("reg [8*64:1] name;", "reg [8*64:1] names [0:1];")
    .replace("name = ", "names[0] = ").replace("(name, m)", "(names[0], m)"),
}  # fmt: skip
SETS = """\
module inc(input [7:0] a, output [7:0] y);
  rom u(a, y);
  initial u.@NAME@ = "@FILE@";
endmodule
"""


@pytest.mark.one_of(3, "opened in a mode", "a string")
@pytest.mark.parametrize("how", VARIABLES)
def test_a_given_module_reads_under_no_name_that_is_made_while_it_runs(bench, how):
    """An answer may write any variable: what stands in it is no name of the harness's files."""
    own = VARIABLES[how]
    problem = _problem(bench, own, harness={"src/golden.hex": TABLE})
    name = "names[0]" if "names[0]" in own else "name"
    files = ["golden.hex"] if "/src/" in own else ["/src/golden.hex"]
    if how == "a string":
        files += ["../src/golden.hex", "/proc/self/root/src/golden.hex"]
    for file in files:
        answer = SETS.replace("@NAME@", name).replace("@FILE@", file)
        reward = bench.rtl(answer, problem)
        assert reward.score01 == 0.0, (file, reward.evidence)


@pytest.mark.places("warm")
def test_an_answers_own_log_beside_a_given_module_that_opens_files(bench):
    """Its prints go nowhere, whatever number they go to; nothing is refused, nothing is written."""
    problem = _problem(bench, LOGGER, harness={"src/test_runner.py": bench.runner + READER})
    use = "logger u(a); integer f; initial #1 begin"
    honest = (
        f'{use} f = 1; $fdisplay(f, "seen"); end',
        f'{use} f = $fopen("mine.log", "w"); $fdisplay(f, "seen"); $fclose(f); end',
    )
    forger = f"{use} for (f = 32'h80000003; f < 32'h80000009; f = f + 1) $fdisplay(f, 5); end"
    for text in (*honest, forger, forger.replace("#1 ", "")):
        right = bench.right.replace("endmodule", f"{text}\nendmodule")
        reward = bench.rtl(right, problem)
        assert reward.score01 == 1.0, (text, reward.evidence)


HELD = """\
module held(input [7:0] a, output reg [7:0] q);
  always @* q = a;
endmodule
"""


@pytest.mark.places("warm")
def test_only_registers_of_the_answer_are_forced(bench):
    """A given module's register stays what that module says; its own text may force it."""
    env = bench.env.replace("/code/rtl/inc.sv", "/code/rtl/inc.sv /code/rtl/held.sv")
    text = (
        "module inc(input [7:0] a, output [7:0] y);\n  wire [7:0] q; held u(a, q);\n"
        "  assign y = q + 1;\n  initial begin #1 force {0} = a; #1 release {0}; end\nendmodule\n"
    )
    problem = bench.problem(context={"rtl/held.sv": HELD}, harness={"src/.env": env})
    assert "forces" in bench.rtl(text.format("u.q"), problem).evidence["why"]
    line = '`line 1 "/code/rtl/inc.sv" 0\n'
    lying = bench.rtl(f"{line}{text.format('u.q')}", problem)
    assert "forces" in lying.evidence["why"]
    itself = HELD.replace(
        "endmodule", "  initial begin #1 force q = a; #1 release q; end endmodule"
    )
    problem = bench.problem(context={"rtl/held.sv": itself}, harness={"src/.env": env})
    plain = text.replace("initial begin #1 force {0} = a; #1 release {0}; end", "")
    assert bench.rtl(plain, problem).score01 == 1.0
