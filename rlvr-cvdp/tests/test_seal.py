"""Names that an answer chose in a compiled simulation, without a sandbox around it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rlvr.testing import require_tool
from rlvr_cvdp.inside import rlvr_seal

READS = """\
module given #(parameter NAME = "own.txt");
  reg [7:0] seen[0:1];
  initial begin $readmemh(NAME, seen); $display("%h", seen[0]); end
endmodule
"""
WRITES = """\
module given #(parameter NAME = "own.txt");
  wire [31:0] fd = $fopen(NAME, "w");
  initial #1 $fdisplay(fd, "written");
endmodule
"""
ANSWER = 'module top; given #(.NAME("chosen.txt")) one(); endmodule\n'


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What a simulation prints after its given file was sealed, in a folder of its own."""
    require_tool("iverilog", "sudo apt-get install -y iverilog")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rlvr_seal, "SEALED", str(tmp_path / "sealed"))

    def _run(given: str) -> str:
        Path("given.sv").write_text(given)
        Path("answer.sv").write_text(ANSWER)
        build = ["iverilog", "-g2012", "-s", "top", "-o", "sim", "given.sv", "answer.sv"]
        subprocess.run(build, check=True)
        rlvr_seal.seal("sim", {"given.sv": given}, ())
        return subprocess.run(["vvp", "sim"], check=True, capture_output=True, text=True).stdout

    return _run


@pytest.mark.integration
def test_a_name_that_leads_elsewhere_from_one_folder_reads_nothing(run):
    """One folder from which the file is there, and hidden from the answer, suffices."""
    Path("chosen.txt").write_text("2a\n00\n")
    assert "2a" not in run(READS)
    assert Path("sealed").is_dir()


@pytest.mark.integration
def test_a_name_that_leads_nowhere_stays(run):
    """Nothing is sealed, and the compiled simulation is as it was."""
    assert "xx" in run(READS)
    assert not Path("sealed").exists()


@pytest.mark.integration
def test_a_file_that_a_net_opens_lies_in_the_private_folder(run):
    """The call stands in an assignment, where its name is a net."""
    run(WRITES)
    assert [path.read_text() for path in Path("sealed").iterdir()] == ["written\n"]
    assert not Path("chosen.txt").exists()
