"""Official rows, agentic or not, become problems; what cannot is named with its reason."""

from __future__ import annotations

import json

import pytest

from rlvr import ConfigError
from rlvr_cvdp.datasets.patch import apply_patch
from rlvr_cvdp.datasets.rows import Unsupported, parse_row, read_rows


def test_both_forms_give_the_same_kind_of_problem(bench):
    """An agentic row, its solution a patch without a header, reads as a non-agentic one does."""
    one, other = parse_row(bench.row()), parse_row(bench.agentic_row())
    assert one.targets == other.targets == ("rtl/inc.sv",)
    assert one.services == other.services
    assert other.reference["rtl/inc.sv"].startswith("module inc")
    assert other.reference["rtl/inc.sv"].endswith("endmodule\n")
    assert one.digest() == other.digest()


def test_patches_change_what_is_there():
    """Hunks apply in order, keep what is between, and do not fit a different text."""
    before = "a\nb\nc\nd\ne\nf\ng\n"
    diff = "@@ -1,2 +1,3 @@\n a\n+x\n b\n@@ -6,2 +7,1 @@\n f\n-g\n"
    assert apply_patch(before, diff) == "a\nx\nb\nc\nd\ne\nf\n"
    assert apply_patch("", "@@ -0,0 +1,2 @@\n+p\n+q\n\\ No newline at end of file") == "p\nq"
    assert apply_patch("a\n", "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n") == "b\n"
    with pytest.raises(ValueError, match="does not fit"):
        apply_patch(before, "@@ -1,1 +1,1 @@\n-z\n+y\n")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"id": "cvdp_agentic_heavy_x_0001"}, "heavy"),
        ({"categories": ["cid010", "easy"]}, "comprehension"),
        ({"targets": {}}, "no file to write"),
        ({"targets": {"src/conftest.py": ""}}, "outside rtl, verif and docs"),
        ({"targets": {"rtl/../src/x.py": ""}}, "outside rtl, verif and docs"),
        ({"context": {"../x.sv": ""}}, "outside its tree"),
        ({"harness": {"docker-compose.yml": None}}, "no docker-compose.yml"),
        ({"harness": {"docker-compose.yml": "services: [1"}}, "not YAML"),
        ({"harness": {"docker-compose.yml": "services:\n"}}, "names no services"),
        ({"harness": {"docker-compose.yml": "services:\n  a:\n    image: x/y\n"}}, "image x/y"),
        ({"harness": {"Dockerfile": "FROM __VERIF_EDA_IMAGE__\n"}}, "commercial"),
        ({"harness": {"src/.env": None}}, "env file ./src/.env"),
        ({"harness": {"src/.env": "SIM = verilator\n"}}, "simulator verilator"),
        ({"harness": {"src/test_runner.py": None, "src/test_inc.py": None}}, "no Python"),
    ],
)
def test_rows_that_cannot_be_verified_say_why(bench, changes, reason):
    """Each reason for leaving a row out is one that a person can read."""
    task = bench.task(bench.row(**changes))
    assert list(task.problems("all")) == []
    assert reason in next(iter(task.unsupported().values()))


def test_a_missing_harness_is_named(bench):
    """A row without a harness yields no problem and is listed."""
    row = bench.row()
    row["harness"] = {}
    assert bench.task(row).unsupported() == {"cvdp_copilot_inc_0001": "it has no harness"}


def test_broken_lines_are_named_by_number(bench):
    """A line that is not JSON, not a row, or a repeated id is reported; the rest is read."""
    good = json.dumps(bench.row())
    path = bench.dataset(good, "{broken", "[1, 2]", '{"id": 5}', '{"id": "x"}', good, "")
    rows = list(read_rows(path))
    assert [row.id for row in rows if not isinstance(row, Unsupported)] == ["cvdp_copilot_inc_0001"]
    named = {row.id: row.reason for row in rows if isinstance(row, Unsupported)}
    assert set(named) == {"line 2", "line 3", "line 4", "x", "line 6"}
    assert "not JSON" in named["line 2"]
    assert "came before" in named["line 6"]


def test_no_line_stops_the_others(tmp_path, bench):
    """A byte order mark is no mistake; what json itself chokes on is one line's reason."""
    lines = [json.dumps(bench.row()), "[" * 100_000, '{"id": ' + "9" * 5000 + "}"]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8-sig")

    first, *broken = read_rows(path)

    assert not isinstance(first, Unsupported)
    assert [row.id for row in broken] == ["line 2", "line 3"]


def test_a_missing_data_set_is_an_error_of_the_person(bench):
    """A path that is not there says so, with what was expected."""
    with pytest.raises(ConfigError, match="cannot read the data set"):
        list(read_rows(bench.folder / "nowhere.jsonl"))


def test_splits(bench):
    """A row that declares a split is in it alone; one that does not is in all of them."""
    test_row = {**bench.row(id="b"), "split": "test"}
    task = bench.task(bench.row(id="a"), test_row)
    assert [p.id for p in task.problems("train")] == ["a"]
    assert [p.id for p in task.problems("test")] == ["a", "b"]
    assert [p.id for p in task.problems("all")] == ["a", "b"]


def test_a_missing_tool_is_a_reason(bench, monkeypatch):
    """A synthesis service without yosys is listed with the command that installs it."""
    compose = bench.compose + (
        "  synth:\n    image: __OSS_PNR_IMAGE__\n    env_file: ./src/.env\n"
        "    command: pytest /src/synth.py\n"
    )
    synth = 'import subprocess\ndef test(): subprocess.run("yosys -V", shell=True)\n'
    row = bench.row(harness={"docker-compose.yml": compose, "src/synth.py": synth})
    monkeypatch.setenv("PATH", "/nowhere")
    reasons = bench.task(row).unsupported()
    assert "apt-get install -y yosys" in reasons["cvdp_copilot_inc_0001"]


@pytest.mark.integration
@pytest.mark.usefixtures("simulator")
def test_given_files_that_the_simulator_cannot_read_are_a_reason(bench):
    """Where a file that comes with the problem does not parse here, no answer could pass."""
    env = bench.env.replace("/code/rtl/inc.sv", "/code/rtl/inc.sv /code/rtl/given.sv")
    row = bench.row(harness={"src/.env": env}, context={"rtl/given.sv": "module given(;"})
    (reason,) = bench.task(row).unsupported().values()
    assert "iverilog" in reason
    assert "given.sv:1" in reason
    fine = {"rtl/given.sv": "module given; other o(); endmodule\n"}
    assert not bench.task(bench.row(harness={"src/.env": env}, context=fine)).unsupported()
