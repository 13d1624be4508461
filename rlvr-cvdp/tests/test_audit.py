"""`rlvr audit --plugin cvdp` tells weak, flaky and sound harnesses apart, by real simulators."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

from rlvr import ConfigError, Probe, Trajectory
from rlvr.border.declared import overrides
from rlvr.cli.main import main
from rlvr_cvdp.audit.edits import edits

from .conftest import every_value

ALL = every_value(256)
ONE = ALL.replace("range(256)", "[0, 1]")
NONE = ALL.replace("== (a + 1) % 256", ">= 0")
ONCE = ("--repeats", "1")
"""For a test that is about other verdicts than those of more seeds."""
REDUNDANT = """\
module inc(input [7:0] a, output reg [7:0] y);
  // y <= a + 2
  always @(*) begin
    if (a == 8'd255) y = 8'd0;
    else y = a + 8'd1;
  end
endmodule
"""


def audit(folder: Path, *rows: dict[str, Any], mutants: int = 8, words: tuple[str, ...] = ()):
    """What the command says about rows, with a store of its own."""
    dataset = folder / "rows.jsonl"
    dataset.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["audit", "--plugin", "cvdp", "-q", "--dataset", str(dataset)]
    command += ["--mutants", str(mutants), "--json", *words]
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said):
        patch.setenv("RLVR_CACHE_DIR", str(folder / "cache"))
        patch.chdir(folder)
        assert main(command) == 0
    return json.loads(said.getvalue())["problems"]


def with_test(bench, text: str, **changes: Any) -> dict[str, Any]:
    return bench.row(harness={"src/test_inc.py": text}, **changes)


@pytest.mark.integration
@pytest.mark.usefixtures("simulator")
def test_strong_and_weak_harnesses_are_told_apart(bench, tmp_path):
    """All values tested: strong. Two values: mutants survive. No check at all: a stub passes."""
    rows = [
        with_test(bench, ALL, id="cvdp_copilot_all_0001"),
        with_test(bench, ONE, id="cvdp_copilot_one_0001", targets={"rtl/inc.sv": REDUNDANT}),
        with_test(bench, NONE, id="cvdp_copilot_none_0001"),
    ]
    strong, weak, blind = audit(tmp_path, *rows, mutants=2, words=ONCE).values()

    assert strong["reference"] == "accepted"
    assert (strong["strength"], strong["reasons"]) == (1.0, [])
    assert strong["kinds"].keys() >= {
        "empty", "copied-prompt", "stub", "constant-outputs", "constant", "operator",
    }  # fmt: skip
    assert weak["weak"]
    assert 0.0 < weak["strength"] < 0.9
    assert any("mutants" in reason for reason in weak["reasons"])
    assert all(entry["note"].startswith("rtl/inc.sv line ") for entry in weak["survivors"])
    assert "accepts constant-outputs" in blind["reasons"]
    assert blind["strength"] < 0.5


@pytest.mark.one_of(2)
@pytest.mark.integration
@pytest.mark.usefixtures("simulator")
@pytest.mark.parametrize("where", ["parametrisation", "test"])
def test_what_hangs_on_the_seed_is_flaky(bench, tmp_path, where):
    """Seed 2 draws 0.96 where 1 and 3 draw less than 0.5: in pytest's own process and in cocotb."""
    if where == "parametrisation":
        runner = bench.runner.replace("import os\n", "import os\nimport random\nimport pytest\n")
        runner = runner.replace(
            "def test_runner():",
            '@pytest.mark.parametrize("drawn", [random.random()])\ndef test_runner(drawn):\n'
            "    assert drawn < 0.5",
        )
        row = bench.row(harness={"src/test_runner.py": runner})
    else:
        text = ALL.replace("import cocotb\n", "import cocotb\nimport random\n", 1)
        row = with_test(bench, text.replace("range(256):", "range(4):\n        random.random()"))
        drawn = "    random.seed()\n    assert random.random() < 0.5\n    for a in"
        row["harness"]["files"]["src/test_inc.py"] = row["harness"]["files"][
            "src/test_inc.py"
        ].replace("    for a in", drawn)
    (found,) = audit(tmp_path, row, mutants=0).values()

    assert found["verdicts"] == {"1": 1.0, "2": 0.0, "3": 1.0}
    assert found["flaky"]
    assert found["weak"]


@pytest.mark.integration
@pytest.mark.usefixtures("simulator")
def test_references_of_another_file_and_the_given_text(bench, tmp_path):
    """A data set without solutions is audited with `cvdp.references`; the given text is judged."""
    row, other = (
        with_test(
            bench,
            ALL,
            id=f"cvdp_copilot_inc_000{number}",
            targets={"rtl/inc.sv": ""},
            context={"rtl/inc.sv": bench.right.replace("8'd1", "8'd2")},
        )
        for number in (1, 2)
    )
    solutions = tmp_path / "solutions.jsonl"
    solutions.write_text(json.dumps({"id": row["id"], "files": {"rtl/inc.sv": bench.right}}))

    words = (*ONCE, f"cvdp.references={solutions}")
    found, without = audit(tmp_path, row, other, mutants=2, words=words).values()

    assert (without["reference"], without["initial"], without["strength"]) == (
        "none", "rejected", None,
    )  # fmt: skip
    assert (found["reference"], found["initial"], found["strength"]) == ("accepted", "rejected", 1)


def test_a_reference_of_the_data_set_goes_before_that_of_the_file(bench, tmp_path):
    """The file fills gaps; it replaces nothing."""
    path = tmp_path / "solutions.jsonl"
    path.write_text(json.dumps({"id": "cvdp_copilot_inc_0001", "files": {"rtl/inc.sv": "other"}}))
    task = bench.task(references=str(path))
    (problem,) = task.problems("all")
    assert task.reference(problem).files == {"rtl/inc.sv": bench.right}
    empty = bench.task(bench.row(targets={"rtl/inc.sv": ""}), references=str(path))
    (problem,) = empty.problems("all")
    assert empty.reference(problem).files == {"rtl/inc.sv": "other"}


@pytest.mark.parametrize("text", [None, "{", '{"id": "a"}', '{"id": 1, "files": {}}', "[1]"])
def test_a_bad_file_of_references_is_named_with_its_line(bench, tmp_path, text):
    """No such file, no JSON, no files: said with the option, never a traceback."""
    path = tmp_path / "solutions.jsonl"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=r"cvdp\.references"):
        list(bench.task(references=str(path)).problems("all"))


@pytest.mark.usefixtures("simulator")
def test_probes_are_drawn_by_seed_and_more_are_only_added(bench):
    """Equal seeds draw equal mutants, another seed others; a larger count adds to the end."""
    task = bench.task(bench.row(targets={"rtl/inc.sv": REDUNDANT}))
    (problem,) = task.problems("all")

    def mutants(count: int, seed: int) -> list[Probe]:
        return [p for p in task.probes(problem, count=count, seed=seed) if p.is_mutant]

    few, many, other = mutants(5, 1), mutants(12, 1), mutants(12, 2)
    assert len(few) == 5
    assert many[:5] == few
    assert many != other
    assert len({p.kind for p in few}) == 5, "one of each kind before a second of any"
    assert len({p.trajectory.files["rtl/inc.sv"] for p in many}) == 12
    assert all("// y <= a + 2" in p.trajectory.files["rtl/inc.sv"] for p in many)


@pytest.mark.usefixtures("simulator")
def test_what_does_not_compile_is_no_mutant(bench):
    """A signal where a constant must stand: no verifier would let it pass, so it proves nothing."""
    text = "module inc(input [7:0] a, output [7:0] y);\n  localparam K = 1;\n"
    text += "  localparam J = K + 0;\n  assign y = a + J;\nendmodule\n"
    task = bench.task(bench.row(targets={"rtl/inc.sv": text}))
    (problem,) = task.problems("all")
    drawn = task.probes(problem, count=99, seed=1)
    found = {p.trajectory.files["rtl/inc.sv"] for p in drawn if p.is_mutant}
    broken = text.replace("J = K", "J = a")
    assert broken in {edit.apply(text) for edit in edits(text)}
    assert broken not in found
    assert len(found) > 5


@pytest.mark.usefixtures("simulator")
def test_task_and_reward_offer_what_the_audit_asks(bench):
    """The task has probes and proofs, and an equivalent answer is known as one."""
    task = bench.task(bench.row(targets={"rtl/inc.sv": REDUNDANT}))
    reward = bench.reward()
    assert overrides(task, "probes")
    assert overrides(task, "prove")
    (problem,) = task.problems("all")

    def probe(text: str) -> Probe:
        return Probe(
            kind="x", trajectory=Trajectory(problem_id=problem.id, files={"rtl/inc.sv": text})
        )

    same = REDUNDANT.replace("a == 8'd255", "1'b0")
    assert task.prove(problem, probe(same)) is True
    assert task.prove(problem, probe(REDUNDANT.replace("8'd1", "8'd2"))) is False
    assert task.prove(problem, probe("garbage")) is None
    right = Trajectory(problem_id=problem.id, files={"rtl/inc.sv": REDUNDANT})
    keys = {reward.with_seed(seed).verdict_key(problem, right) for seed in (1, 2, 3)}
    assert len(keys) == 3
    assert reward.verdict_key(problem, right) == reward.with_seed(1).verdict_key(problem, right)
