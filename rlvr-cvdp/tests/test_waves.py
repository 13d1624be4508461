"""Waveforms on request: recorded by both cocotb generations, of the simulation that failed."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from rlvr import Message, PrerequisiteError, Problem, Segment, UnknownNameError, VerifierError
from rlvr_cvdp.commands.completions import read_completion
from rlvr_cvdp.commands.waves import waves
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.hdl.clocks import Clocking
from rlvr_cvdp.hdl.ports import header_of
from rlvr_cvdp.netlist.twin import twin_problem
from rlvr_cvdp.sandbox import open_sandbox
from rlvr_cvdp.waves.ports import Trace, agree, read_trace
from rlvr_cvdp.waves.record import record_waves
from rlvr_cvdp.waves.replay import replay_problem

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("simulator")]

WRONG = "module inc(input [7:0] a, output [7:0] y);\n  assign y = a + 8'd2;\nendmodule\n"
PARAMETRISED = """\
import os
import pytest
from GENERATION import get_runner

@pytest.mark.parametrize("p", range(5))
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
    """`waves=False` is overruled; three of four failing launches are kept, the passing one not."""
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
    runner = PARAMETRISED.replace("GENERATION", "cocotb_tools.runner").replace("range(5)", "[0, 1]")
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


def sampled(index, text, **changes):
    """A line of `rlvr eval --out`, or of a run's `trajectories/`: one sample."""
    said = {"author": "policy", "text": f"```verilog\n{text}```", "tokens": [1, 2]}
    segments = [
        {"author": "prompt", "text": "Write the module inc.", "tokens": [7]},
        {**said, "logprobs": [-0.5, -0.25]},
    ]
    line = {"step": 0, "id": "cvdp_copilot_inc_0001", "index": index, "finish": "stop", "seed": 0}
    line |= {"temperature": 1.0, "policy_version": 0, "policy_digest": "", "prompt_cut": 0}
    return {**line, "error": "", "segments": segments, "outcome": {"kind": "reward"}, **changes}


def written(tmp_path, *lines):
    """A file of these lines."""
    path = tmp_path / "samples.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_sample_of_an_evaluation(bench, tmp_path, capsys):
    """`--sample` counts a problem's lines from 0, as their index does; stderr names the judge."""
    other = sampled(0, "", id="other")
    samples = written(tmp_path, other, sampled(0, bench.right), sampled(1, WRONG))
    given = ["--dataset", str(bench.dataset(bench.row())), "--id", "cvdp_copilot_inc_0001"]
    given += ["--completions", str(samples), "--out", str(tmp_path / "w"), "--json"]
    said = {}
    for number in (0, 1):
        picked = ["--sample", str(number)] if number else []
        assert waves([*given, *picked, "--sandbox", "bubblewrap", "--rootfs", "host"]) == 0
        shown = capsys.readouterr()
        said[number] = {test["status"] for test in json.loads(shown.out)["tests"]}
        assert re.search(r"^judged with bubblewrap, host, iverilog \d", shown.err, re.MULTILINE)
    assert said == {0: {"passed"}, 1: {"failed"}}


def asked(name):
    """The problem whose answers are looked for."""
    return Problem(id=name, prompt=[Message(role="user", content="Write it.")])


def test_lines_of_every_sort_are_answers(tmp_path):
    """Segments, the files that an episode left, files and text are read alike, whole or not."""
    name = "cvdp_copilot_inc_0001"
    left = sampled(1, WRONG, files={"rtl/inc.sv": "module inc;"})
    broken = [sampled(9, "", segments=[{"author": "policy", "text": "", "tokens": []}])]
    broken += [{"id": name, "files": {"rtl/inc.sv": 1}}, {"id": name}, [name], name]
    plain = [{"id": name, "files": {"rtl/inc.sv": "x"}}, {"id": name, "completion": "y"}]
    path = written(tmp_path, *broken, sampled(0, WRONG), left, *plain)
    found = [read_completion(path, asked(name), number) for number in range(4)]
    assert found[0].completion == f"```verilog\n{WRONG}```"
    assert found[0].segments[0] == Segment(
        author="prompt", text="Write the module inc.", tokens=[7]
    )
    assert found[0].logprobs.tolist() == [0.0, -0.5, -0.25]
    assert [each.files for each in found] == [
        None,
        {"rtl/inc.sv": "module inc;"},
        {"rtl/inc.sv": "x"},
        None,
    ]
    assert found[3].completion == "y"


def test_a_sample_that_is_not_there(tmp_path, capsys):
    """The error says how many there are, or what is wrong with the only line."""
    name = "cvdp_copilot_inc_0001"
    path = written(tmp_path, sampled(0, WRONG), sampled(1, WRONG))
    for number in (2, -1):
        with pytest.raises(UnknownNameError, match=rf"--sample {number}, and 2 answers(.|\n)* 1$"):
            read_completion(path, asked(name), number)
    with pytest.raises(UnknownNameError, match="and 1 answer to it"):
        read_completion(written(tmp_path, sampled(0, WRONG)), asked(name), 1)
    with pytest.raises(UnknownNameError, match=r"line 1: neither .completion. as text"):
        read_completion(written(tmp_path, {"id": name}), asked(name))
    with pytest.raises(UnknownNameError, match=r"no line with \"id\" 'nothing'"):
        read_completion(path, asked("nothing"))
    with pytest.raises(SystemExit):
        waves(["--id", name, "--golden", "--sample", "1", "--out", str(tmp_path)])
    assert "--sample picks a line of --completions" in capsys.readouterr().err


@pytest.mark.one_of(3, "docker")
@pytest.mark.places("fresh", "rootfs", "docker")
def test_every_sandbox_records(bench, place, tmp_path):
    """Fresh, on a root and in a container: the waveform that the command's warm sandbox leaves."""
    sandbox = open_sandbox(CvdpConfig(**bench.place))
    record = bench.problem().payload

    async def recorded():
        async with sandbox:
            return await record_waves(
                record,
                {"rtl/inc.sv": WRONG},
                bench.settings(sandbox, record),
                out=tmp_path / "w",
                form="vcd",
            )

    (wave,) = asyncio.run(recorded()).waves
    assert (wave.launch, wave.is_failed) == (1, True)
    assert "$enddefinitions" in wave.path.read_text()


def test_the_sandbox_that_is_asked_for(bench, tmp_path, monkeypatch):
    """An image picks docker, as in a run; without a daemon nothing is recorded elsewhere."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    for arguments in (["--sandbox", "docker"], ["--image", "some/image:1"]):
        with pytest.raises(PrerequisiteError, match="no daemon"):
            record(bench, tmp_path, WRONG, *arguments)


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


VCD = """\
$timescale 1ns $end
$scope module inc $end
$var wire 8 $ a [7:0] $end
$var wire 8 " y [7:0] $end
$scope module u $end $var wire 1 # y $end $upscope $end
$upscope $end
$enddefinitions $end
$dumpvars
b0 $
bx "
$end
#1
b101 $
b110 "
"""
OTHERS = {
    "itself": (VCD, True),
    "a value where the other has x": (VCD.replace("bx", "b1"), True),
    "a finer time": (VCD.replace("1ns", "10ps").replace("#1", "#100"), True),
    "passing through": (VCD.replace("#1", '#1\nb1 "'), True),
    "leading zeros": (VCD.replace("b101", "b00000101"), True),
    "another value": (VCD.replace("b110", "b111"), False),
    "x where the other has a value": (VCD.replace("b110", "bx10"), False),
    "later": (VCD.replace("b110", "#2\nb110"), False),
    "another width": (VCD.replace("8 $", "9 $"), False),
    "a width that no memory holds": (VCD.replace("8 $", "9" * 12 + " $"), False),
}
BROKEN = {
    "cut off": VCD.partition("$enddefinitions")[0],
    "no such port": VCD.replace(" a ", " b "),
    "no unit": VCD.replace("$timescale 1ns $end", ""),
    "no time": VCD.replace("#1", "#" + "9" * 5000),
    "another module": VCD.replace("module inc", "module dec"),
    "empty": "",
}


@pytest.mark.parametrize("name", OTHERS)
def test_ports_of_two_waveforms(name):
    """Equal at all times, whatever unit and width a simulator writes; x in the first is open."""
    text, is_equal = OTHERS[name]
    golden, other = read_trace(VCD, "inc", ["a", "y"]), read_trace(text, "inc", ["a", "y"])
    assert golden.known == {"a", "y"}
    assert agree(golden, other) is is_equal


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_waveform_is_none(name):
    """What cannot be read is compared with nothing."""
    assert read_trace(BROKEN[name], "inc", ["a", "y"]) is None


def test_inputs_of_any_width_are_played(bench):
    """Thousands of bits: more digits than Python turns into a number at once."""
    text = "module inc(input [16383:0] a, output [16383:0] y); assign y = ~a; endmodule\n"
    record = bench.problem(targets={"rtl/inc.sv": text}).payload
    twin = twin_problem(record, record.reference)
    changes = {"a": ((0, "0"), (1000, "1" * 16384)), "y": ((0, "1" * 16384), (1000, "0"))}
    trace = Trace(widths={"a": 16384, "y": 16384}, changes=changes)
    made = replay_problem(twin, header_of(text, "inc"), Clocking(), [trace])
    (replay,) = json.loads(made.harness["src/replay.json"])
    assert replay["varied"] == {"a": ["0x0", ""]}
    assert [step[0]["a"] for step in replay["steps"]] == ["0x0", hex(2**16384 - 1)]
    assert replay_problem(twin, header_of(text, "inc"), Clocking(clocks=("a",)), [trace]) is None
