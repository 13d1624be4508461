"""Waveforms on request: recorded by both cocotb generations, of the simulation that failed."""

from __future__ import annotations

import json
import re

import pytest

from rlvr.errors import UnknownNameError, VerifierError
from rlvr_cvdp.waves.command import waves

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("simulator")]

WRONG = "module inc(input [7:0] a, output [7:0] y);\n  assign y = a + 8'd2;\nendmodule\n"
PARAMETRISED = """\
import os
import pytest
from GENERATION import get_runner

@pytest.mark.parametrize("p", range(6))
def test_runner(p):
    runner = get_runner("icarus")
    runner.build(sources=os.getenv("VERILOG_SOURCES").split(), hdl_toplevel="inc", always=True,
                 clean=True, timescale=("1ns", "1ns"), parameters={"P": p}, waves=False)
    runner.test(hdl_toplevel="inc", test_module="test_inc", waves=False)
"""
DESIGN = """\
module inc #(parameter P = 0) (input [7:0] a, output [7:0] y);
  assign y = P > 0 ? a : a + 8'd1;
endmodule
"""


def record(bench, tmp_path, text, *arguments, **changes):
    """Run the command on an answer given as a file; the folder that it wrote to."""
    dataset = bench.dataset(bench.row(**changes))
    answers = tmp_path / "answers.jsonl"
    lines = [{"id": "other"}, {"id": "cvdp_copilot_inc_0001", "files": {"rtl/inc.sv": text}}]
    answers.write_text("".join(json.dumps(line) + "\n" for line in lines))
    folder = tmp_path / "waves"
    given = ["--dataset", str(dataset), "--id", "cvdp_copilot_inc_0001", "--out", str(folder)]
    waves([*given, "--completions", str(answers), "--timeout-s", "20", *arguments])
    return folder


def test_a_failing_test_is_recorded(bench, tmp_path, capsys):
    """The VCD holds the ports and the values at which the test failed; the table names it."""
    folder = record(bench, tmp_path, WRONG, "--format", "vcd")
    assert [path.name for path in folder.iterdir()] == ["direct-1.vcd"]
    text = (folder / "direct-1.vcd").read_text()
    name = re.search(r"\$var wire 8 (\S+) y \[7:0\]", text)
    assert name is not None
    assert f"b10 {name[1]}" in text
    said = capsys.readouterr().out
    assert re.search(r"failed +direct +launch 1 +small .*AssertionError", said), said
    assert str(folder / "direct-1.vcd") in said


def test_the_default_form_is_fst(bench, tmp_path, capsys):
    """FST begins with its header block; --json has tests and paths."""
    folder = record(bench, tmp_path, bench.right, "--json")
    assert (folder / "direct-1.fst").read_bytes()[:1] == b"\0"
    shown = json.loads(capsys.readouterr().out)
    assert [test["status"] for test in shown["tests"]] == ["passed", "passed"]
    (wave,) = shown["waves"]
    assert (wave["launch"], wave["failed"]) == (1, False)


def test_a_harness_that_refuses_waves_and_many_launches(bench, tmp_path):
    """`waves=False` is overruled; three of five failing launches are kept, the passing one not."""
    runner = PARAMETRISED.replace("GENERATION", "cocotb_tools.runner")
    folder = record(bench, tmp_path, DESIGN, harness={"src/test_runner.py": runner})
    assert sorted(p.name for p in folder.iterdir()) == [
        "direct-2.fst",
        "direct-3.fst",
        "direct-4.fst",
    ]


@pytest.mark.network
def test_cocotb_1(bench, tmp_path):
    """The runner of cocotb 1.9 knows no WAVES variable and is recorded all the same."""
    runner = PARAMETRISED.replace("GENERATION", "cocotb.runner")
    test = bench.test.replace('unit="ns"', 'units="ns"')
    harness = {"src/test_runner.py": runner, "src/test_inc.py": test}
    folder = record(bench, tmp_path, DESIGN, "--format", "vcd", harness=harness)
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["direct-2.vcd", "direct-3.vcd", "direct-4.vcd"]
    assert "$enddefinitions" in (folder / "direct-2.vcd").read_text()


def test_only_simulations_that_hold_the_test(bench, tmp_path):
    """`--test` looks at that test alone: `large` passes with P=0 and is recorded there."""
    runner = PARAMETRISED.replace("GENERATION", "cocotb_tools.runner").replace("range(6)", "[0, 1]")
    text = DESIGN.replace("P > 0 ? a :", "P > 0 && a < 9 ? a :")
    harness = {"src/test_runner.py": runner}
    folder = record(bench, tmp_path, text, "--test", "large", harness=harness)
    assert [path.name for path in folder.iterdir()] == ["direct-1.fst"]
    with pytest.raises(UnknownNameError, match="holds a test named 'none', only large, small"):
        record(bench, tmp_path, text, "--test", "none", harness=harness)


def test_a_simulation_that_hangs(bench, tmp_path):
    """What a hanging simulation did up to its time limit is there."""
    text = WRONG.replace(
        "endmodule", "reg r = 0; always @(a) if (a == 3) forever r = ~r;\nendmodule"
    )
    folder = record(bench, tmp_path, text, "--format", "vcd", "--timeout-s", "2")
    assert [path.name for path in folder.iterdir()] == ["direct-1.vcd"]
    assert "#2" in (folder / "direct-1.vcd").read_text()


def test_an_answer_that_does_not_compile(bench, tmp_path):
    """There is nothing to record; the error says at which stage it was stopped, and where."""
    with pytest.raises(VerifierError, match=r"stage syntax: .*rtl/inc\.sv:[12](.|\n)*rlvr score"):
        record(bench, tmp_path, WRONG.replace(";", ""))


def test_what_was_asked_for_must_exist(bench, tmp_path):
    """Unknown problems and answers are usage mistakes that say what is missing."""
    dataset = str(bench.dataset(bench.row()))
    given = ["--dataset", dataset, "--out", str(tmp_path / "w")]
    with pytest.raises(UnknownNameError, match="no such problem"):
        waves([*given, "--id", "nothing", "--golden"])
    with pytest.raises(UnknownNameError, match=r"holds none of rtl/inc\.sv"):
        waves([*given, "--id", "cvdp_copilot_inc_0001", "--files", str(tmp_path)])
    with pytest.raises(UnknownNameError, match="no such file"):
        waves([*given, "--id", "cvdp_copilot_inc_0001", "--completions", "none.jsonl"])
