"""From model text to files: what counts as code, for which file, and what is left out."""

from __future__ import annotations

import json
import time

import pytest

from rlvr import BuildContext, Trajectory
from rlvr.testing.tools import shared_data
from rlvr_cvdp.answers.parse import from_files, from_text
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.task import CvdpTask
from rlvr_cvdp.verify.reward import read_answer

ONE = ("rtl/a.sv",)
TWO = ("rtl/a.sv", "rtl/b.sv")
A = "module a;\nendmodule\n"
B = "module b;\nendmodule\n"


@pytest.mark.parametrize(
    "text",
    [
        A,
        f"\n\n{A}",
        f"```verilog\n{A}```",
        f"```systemverilog\n{A}```\nAnd this tests it:\n```verilog\n{B}```",
        f"Here:\n\n```\n{A}```\nDone.",
        f"```verilog\n{A}",
        f"<think>```verilog\n{B}```</think>\n```verilog\n{A}```",
        f"First a test:\n```verilog\n{B}```\nrtl/a.sv:\n```verilog\n{A}```",
        f"```verilog\n{B}```\n```systemverilog rtl/a.sv\n{A}```",
        f"```verilog\n// rtl/b.sv\n{B}```\n### `a.sv`\n```\n{A}```",
        json.dumps({"code": [{"rtl/a.sv": A}]}),
        json.dumps({"code": [{"rtl/a.sv": f"```verilog\n{A}```"}]}),
        json.dumps({"response": A}),
        "Sure:\n```json\n" + json.dumps({"code": {"rtl/a.sv": A}}) + "\n```",
        '{"code": [{"rtl/a.sv": "' + A + '"}]}',
    ],
)
def test_one_file(text):
    """One target: official fences and JSON, named blocks, bare code, a fence that was cut off."""
    answer = from_text(text, ONE)
    assert answer.files == {"rtl/a.sv": A}, answer


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"code": [{"rtl/a.sv": A}, {"rtl/b.sv": B}]}),
        json.dumps({"code": [{"rtl/a.sv": A, "rtl/b.sv": B}]}),
        f"rtl/a.sv\n```verilog\n{A}```\n**rtl/b.sv**\n```verilog\n{B}```",
        f"```verilog\n{A}```\n```verilog\n{B}```",
        f"```verilog\n{B}```\ntext\n```verilog\n{A}```",
        f"```verilog:rtl/b.sv\n{B}```\n```verilog:rtl/a.sv\n{A}```",
    ],
)
def test_several_files(text):
    """Several targets: JSON, named blocks, or blocks that define the module of the file's name."""
    answer = from_text(text, TWO)
    assert {path: body.strip() for path, body in answer.files.items()} == {
        "rtl/a.sv": A.strip(),
        "rtl/b.sv": B.strip(),
    }


def test_a_named_first_line_stays_in_the_file():
    """A comment that names the file is part of it."""
    answer = from_text(f"```verilog\n// rtl/b.sv\n{B}```", TWO)
    assert answer.files == {"rtl/b.sv": f"// rtl/b.sv\n{B}"}


@pytest.mark.parametrize(
    "text",
    [
        "", "   \n", "I cannot do that.", "```verilog\n```", "```\nsorry\n```", "{}",
        '{"code": []}', '{"code": [{"rtl/a.sv": ""}]}', '{"code": 5}', "```", "\x00\x1b[2J",
        "<think>" + A + "</think>",
    ],
)  # fmt: skip
def test_no_code(text):
    """Prose, empty blocks and empty JSON are no answer, and it says so."""
    answer = from_text(text, ONE)
    assert answer.files == {}
    assert answer.why_none


def test_truncated_json_is_no_answer():
    """JSON that was cut off names no complete file."""
    assert from_text('{"code": [{"rtl/a.sv": "module', TWO).files == {}


@pytest.mark.parametrize(
    "path",
    ["src/conftest.py", "rtl/../src/x.py", "/etc/passwd", "rtl/c.sv", "", ".", "rtl", "a.sv\n"],
)
def test_only_declared_targets(path):
    """Whatever else is offered, in JSON, as blocks or as files, is named and left out."""
    given = {path: A, "rtl/a.sv": A}
    assert from_files(given, ONE).files == {"rtl/a.sv": A}
    assert from_files(given, ONE).ignored == (path,)
    assert from_text(json.dumps({"code": [given]}), TWO).files == {"rtl/a.sv": A}
    assert from_files({path: A}, ONE).why_none


def test_paths_are_normalised():
    """Other spellings of a target are that target; its own spelling wins."""
    for path in ("./rtl/a.sv", "/code/rtl/a.sv", "rtl//a.sv", "verif/../rtl/a.sv"):
        assert from_files({path: A}, ONE).files == {"rtl/a.sv": A}
        assert from_files({"rtl/a.sv": B, path: A}, ONE).files == {"rtl/a.sv": B}


def test_documents_need_no_module():
    """A target that is no Verilog takes any text."""
    assert from_text("Just words.", ("docs/a.md",)).files == {"docs/a.md": "Just words.\n"}


def test_long_text_is_read_in_time():
    """A megabyte of anything is read in well under a second (no backtracking)."""
    for text in ("x" * 1_000_000, "```" * 300_000, "{" * 1_000_000, "`" * 1_000_000):
        assert from_text(text, ONE).files == {}
    begun = time.monotonic()
    for place in ("```" + "x" * 300_000, "x." * 150_000 + "\n```", "```\n//" + "x/" * 150_000):
        assert from_text(f"{place}\n{A}```", ONE).files
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize("opening", ['{"code":', "[", '{"response":{"a":'])
def test_json_that_is_nested_too_deep_is_no_json(opening):
    """A text cannot exhaust the reader's stack."""
    text = '{"code":' + opening * 100_000 + '"}'
    assert from_text(text, ONE).why_none


@pytest.mark.one_of(3, "official-nonagentic")
@pytest.mark.parametrize("name", ["", "nonagentic", "agentic"])
@pytest.mark.parametrize("parsing", ["lenient", "official"])
def test_a_reference_as_text_is_read_as_its_files(name, parsing):
    """Which is what supervised fine-tuning learns: one file as plain text, several as JSON."""
    config, dataset = CvdpConfig(), None
    if name:
        config = CvdpConfig(references=str(shared_data("cvdp", "reference_solutions.jsonl")))
        dataset = shared_data("cvdp", f"{name}_no_commercial.jsonl")
    task = CvdpTask(config, BuildContext(dataset=dataset))
    known = [(p, r) for p in task.problems("all") if (r := task.reference(p)) is not None]
    assert known
    for problem, reference in known:
        answer = read_answer(
            problem.payload, Trajectory.from_text(problem.id, reference.completion), parsing
        )
        wanted = read_answer(problem.payload, reference).files
        assert {path: text.strip() for path, text in answer.files.items()} == {
            path: text.strip() for path, text in wanted.items()
        }


@pytest.mark.parametrize("pairs", [1, 9])
def test_escaped_characters_past_the_basic_plane_shift_nothing(pairs):
    """Two lone surrogates each until JSON joins them: what follows is cut where it ends."""
    helper = "// " + "\\ud83d\\ude00" * pairs + " ok\\nmodule h(input x, y);\\nendmodule\\n"
    user = "module a(input x, y);\\n  h u(x, y);\\nendmodule\\n"
    text = '{"code": [{"rtl/h.sv": "' + helper + '"}, {"rtl/a.sv": "' + user + '"},]}'
    (body,) = from_text(text, ["rtl/a.sv"]).files.values()
    assert body.count("endmodule\n") == 2
    assert "module h(input x, y);\nendmodule\n" in body
