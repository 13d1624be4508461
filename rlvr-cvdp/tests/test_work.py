"""Shaped reward is paid for work: the module, something new, the ports; stubs are counted."""

from __future__ import annotations

import pytest

from rlvr.run.metrics import of_groups
from rlvr.types import ScoredGroup, Trajectory

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("simulator", "place")]

WRONG = "module inc(input [7:0] a, output [7:0] y);\n  assign y = a ^ 3;\nendmodule\n"
GIVEN = """\
module inc(input [7:0] a, output [7:0] y);
  wire [7:0] t = a;
  assign y = t; // to be done
endmodule
"""
STUB = "module inc(input [7:0] a, output [7:0] y); assign y = 0; endmodule\n"

NEW = {
    "a lone macro": ("`define x\n", 0.0),
    "an include guard": ("`ifndef INC\n`define INC\n`endif\n", 0.0),
    "a module of another name": ("module foo(input [7:0] a, output [7:0] y); endmodule\n", 0.0),
    "comments": ("// module inc(input [7:0] a, output [7:0] y); endmodule\n", 0.0),
    "a condition that is off": (f"`ifdef NOPE\n{WRONG}`endif\n", 0.0),
    "a condition inside of one": (f"`ifndef A\n`ifdef B\n{WRONG}`endif\n`endif\n", 0.0),
    "its name in a string": ('`define S "module inc"\n', 0.0),
    "a macro that nobody uses": ("`define M module inc; endmodule\n", 0.0),
    "a package": ("package inc_pkg; endpackage\n", 0.0),
    "an interface of its name": ("interface inc(input [7:0] a, output [7:0] y); endinterface\n", 0),
    "no ports": ("module inc; endmodule\n", 0.1),
    "one port": ("module inc(input [7:0] a); endmodule\n", 0.1),
    "ports of another case": ("module inc(input [7:0] A, output [7:0] Y); endmodule\n", 0.1),
    "a slip": (WRONG.replace("assign", "asign ="), 0.1),
    "ports named in the body": ("module inc; reg [7:0] a, y; endmodule\n", 0.3),
    "no such part": (WRONG.replace("endmodule", "part p(); endmodule"), 0.3),
    "turned round": ("module inc(output [7:0] a, input [7:0] y); assign a = y; endmodule\n", 0.3),
    "a narrow port": (WRONG.replace("[7:0] y", "[3:0] y"), 0.3),
    "wrong": (WRONG, 0.5),
    "a macro for the keyword": (f"`define M module\n{WRONG.replace('module', '`M', 1)}", 0.5),
    "a condition that is on": (f"`ifndef NOPE\n{WRONG}`endif\n", 0.5),
    "a helper first": (f"module one; endmodule\n{WRONG}", 0.5),
}
AGAIN = {
    "as given": GIVEN,
    "other blanks": GIVEN.replace("  ", "\t\t").replace("\n", "\r\n"),
    "other comments": "/* new */\n" + GIVEN.replace("// to be done", "// done"),
    "other names": GIVEN.replace(" t ", " tmp ").replace("= t;", "= tmp;"),
    "escaped names": GIVEN.replace(" t ", " \\t  ").replace("= t;", "= \\t ;"),
    "unused names": GIVEN.replace("endmodule", "  wire z; localparam Z = 3;\nendmodule"),
    "another module": GIVEN + "module other(input q); endmodule\n",
    "attributes": "(* keep *) " + GIVEN,
    "brackets": GIVEN.replace("y = t", "y = ((t))"),
    "an empty block": GIVEN.replace("endmodule", "generate begin end endgenerate endmodule"),
    "macros": "`define T t\n" + GIVEN.replace("y = t", "y = `T"),
    "no use of a condition": "`ifdef X\nwire q;\n`endif\n" + GIVEN,
    "a time unit": "`default_nettype wire\n" + GIVEN,
}


@pytest.mark.places("warm")
@pytest.mark.parametrize("name", NEW)
def test_a_stage_is_paid_for_what_an_answer_did(bench, name):
    """Format wants the module, syntax its ports' names, compilation the ports."""
    text, value = NEW[name]
    reward = bench.rtl(text)
    assert reward.value == value, reward.evidence
    assert max(reward.components.values()) == value


@pytest.mark.places("warm")
@pytest.mark.parametrize("name", AGAIN)
def test_the_given_design_again_is_no_work(bench, name):
    """Blanks, comments, names and what changes nothing do not make a new answer."""
    problem = bench.problem(context={"rtl/inc.sv": GIVEN})
    reward = bench.rtl(AGAIN[name], problem)
    assert reward.value == 0.0, reward.evidence
    shared = bench.rtl(AGAIN[name], problem, tests="share")
    assert shared.value == 0.0, shared.evidence


def test_a_changed_design_counts(bench):
    """Beside the given design a wrong one is paid for its stages, and a right one in full."""
    problem = bench.problem(context={"rtl/inc.sv": GIVEN})
    assert bench.rtl(WRONG, problem).value == 0.5
    assert bench.rtl(bench.right, problem).value == 1.0
    assert bench.rtl("`define x\n", problem).value == 0.0


@pytest.mark.places("warm")
@pytest.mark.parametrize(
    ("files", "value"),
    [
        ({"rtl/inc.sv": WRONG}, 0.0),
        ({"rtl/inc.sv": WRONG, "rtl/defs.vh": "// nothing\n"}, 0.0),
        ({"rtl/defs.vh": "`define N 3\n"}, 0.0),
        ({"rtl/inc.sv": WRONG, "rtl/defs.vh": "`define N 3\n"}, 0.5),
        ({"rtl/inc.sv": WRONG.rstrip(), "rtl/defs.vh": "`define N 3"}, 0.5),
    ],
)
def test_every_file_to_write_must_be_there(bench, files, value):
    """Of several targets none may be missing or empty; a header needs no module."""
    problem = bench.problem(targets={"rtl/inc.sv": "", "rtl/defs.vh": ""})
    assert bench.judge(files, problem).value == value


@pytest.mark.places("warm")
def test_files_without_a_last_line_end_count(bench):
    """Several files go through the preprocessor together, each for itself."""
    env = bench.env.replace("/code/rtl/inc.sv", "/code/rtl/inc.sv /code/rtl/one.sv")
    targets = {"rtl/inc.sv": "", "rtl/one.sv": ""}
    problem = bench.problem(harness={"src/.env": env}, targets=targets)
    one = "module one(input a); endmodule"
    assert bench.judge({"rtl/inc.sv": WRONG.rstrip(), "rtl/one.sv": one}, problem).value == 0.5
    assert bench.judge({"rtl/inc.sv": WRONG.rstrip(), "rtl/one.sv": "// one"}, problem).value == 0.0


@pytest.mark.places("warm")
def test_stubs_are_counted_and_may_be_paid_less(bench):
    """A stub compiles: `cvdp.stub_stage` says what that is worth, a metric how many there are."""
    problem = bench.problem()
    for stub in (STUB, STUB.replace("assign y = 0;", ""), STUB.replace("= 0", "= a & 0")):
        assert bench.rtl(stub, problem).value == 0.5
        for stage, value in (("syntax", 0.3), ("format", 0.1)):
            assert bench.rtl(stub, problem, stub_stage=stage).value == value
    answers = (STUB, WRONG, bench.right)
    rewards = [bench.rtl(text, problem, stub_stage="syntax") for text in answers]
    assert [reward.value for reward in rewards] == [0.3, 0.5, 1.0]
    trajectories = tuple(Trajectory.from_text(problem.id, "x") for _ in answers)
    group = ScoredGroup(problem=problem, trajectories=trajectories, outcomes=tuple(rewards))
    assert of_groups([group])["reward/stub_share"] == pytest.approx(1 / 3)


@pytest.mark.places("warm")
def test_the_proxy_pays_for_work_too(bench):
    """Early training by the compiler alone pays neither an empty module nor the given one."""
    problem = bench.problem(context={"rtl/inc.sv": GIVEN})
    reward = bench.reward(proxy="compile", proxy_steps=1)
    import asyncio

    async def ask(text):
        async with reward:
            judge = reward.scheduled(0, {})
            answer = Trajectory(problem_id=problem.id, files={"rtl/inc.sv": text})
            return (await judge(problem, answer)).value

    assert asyncio.run(ask(GIVEN)) == 0.0
    assert asyncio.run(ask("module inc; endmodule\n")) == 0.1
    assert asyncio.run(ask(WRONG)) == 0.5
