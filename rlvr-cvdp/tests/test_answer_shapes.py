"""Answers as chat models write them: which file each piece becomes, and what is never read."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time

import pytest
from answer_shapes import (
    BENCH,
    BOTH,
    DRAFT,
    HELPER,
    ONE,
    ONLY,
    SHAPES,
    TWO,
    USES,
    A,
    B,
    fence,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rlvr_cvdp.answers.parse import LONGEST, from_official_text, from_text
from rlvr_cvdp.extraction.wanted import Wanted, wanted_of
from rlvr_cvdp.hdl import definitions
from rlvr_cvdp.hdl.definitions import definitions_of


def texts(files):
    """Files without the blanks around their text."""
    return {path: body.strip() for path, body in files.items()}


@pytest.mark.parametrize("name", SHAPES)
def test_each_shape_becomes_the_files_that_it_means(name):
    """An answer in the shape of a chat model becomes exactly the files that it means."""
    targets, text, files = SHAPES[name]
    answer = from_text(text, targets)
    assert texts(answer.files) == texts(files), answer
    assert set(answer.how) >= set(files), "the evidence says of each file how it was found"
    assert bool(answer.why_none) == (not files)


def test_the_corpus_is_large():
    """At least sixty shapes, none of them twice."""
    assert len({text for _, text, _ in SHAPES.values()}) == len(SHAPES) >= 60


@pytest.mark.parametrize("name", SHAPES)
def test_each_shape_is_read_alike_without_slang(name, monkeypatch):
    """Where slang gives up, tokens alone find the same files."""
    targets, text, files = SHAPES[name]
    monkeypatch.setattr(definitions._PARSER, "definitions", lambda text: None)
    definitions_of.cache_clear()
    try:
        assert texts(from_text(text, targets).files) == texts(files)
    finally:
        definitions_of.cache_clear()


@pytest.mark.parametrize(
    ("wanted", "text", "files"),
    [
        # The module's name differs from the file's: the harness, the context, the request say it.
        (
            Wanted(targets=ONE, modules={"rtl/alu.sv": ("alu", "alu_core")}),
            fence(HELPER) + fence(A.replace("module alu", "module alu_core")),
            {"rtl/alu.sv": A.replace("module alu", "module alu_core")},
        ),
        (
            Wanted(targets=ONE, prompt="Write the module `adder`, please."),
            fence(A.replace("module alu", "module adder")) + fence(B),
            {"rtl/alu.sv": A.replace("module alu", "module adder")},
        ),
        (
            Wanted(targets=ONE),
            fence(BENCH.replace("alu", "adder")) + fence(A.replace("module alu", "module adder")),
            {"rtl/alu.sv": A.replace("module alu", "module adder")},
        ),
        # The initial text, shown again after the answer, is not the answer.
        (
            Wanted(targets=ONE, initial={"rtl/alu.sv": DRAFT}),
            f"{fence(A)}\nFor comparison:\n{fence(DRAFT)}",
            ONLY,
        ),
        # A given module that the answer repeats is not defined twice.
        (
            Wanted(targets=ONE, given={"rtl/inc_one.sv": HELPER}),
            fence(HELPER + "\n" + USES),
            {"rtl/alu.sv": USES},
        ),
        (Wanted(targets=ONE, given={"rtl/inc_one.sv": HELPER}), fence(HELPER) + fence(USES),
         {"rtl/alu.sv": USES}),
        # One of two files has another module's name.
        (
            Wanted(targets=TWO),
            fence(A) + fence(B.replace("module mul", "module times3")),
            {"rtl/alu.sv": A, "rtl/mul.sv": B.replace("module mul", "module times3")},
        ),
        # A target that held a helper keeps the module that it is about.
        (
            Wanted(targets=ONE, modules={"rtl/alu.sv": ("inc_one", "alu")},
                   initial={"rtl/alu.sv": HELPER + USES}),
            f"{fence(USES)}\n{fence(HELPER)}",
            {"rtl/alu.sv": USES + "\n" + HELPER},
        ),
    ],
)  # fmt: skip
def test_what_the_problem_says_decides(wanted, text, files):
    """Modules of the harness, the context and the request name the target."""
    assert texts(from_text(text, wanted.targets, wanted).files) == texts(files)


LAST_IS_MEANT = """\
Here's a version that avoids the bug:
The previous attempt had an off-by-one error. This one does not:
Instead of the draft above, use this:
This handles the example in the spec:
Unlike the original, this adds one:
Let me rewrite it, since the old one is wrong.
Removing the bug gives:
Actually, I made a mistake above. Here it is again:
Second attempt:
Here's my attempt:
The optional reset is included too:
Starting from the template, the module becomes:
Taking all that into account (and the bug in the original module):
**RTL (replaces the original file)**
This is not a naive approach:
The design no longer has the earlier mistake:
Therefore the module is not registered:
After fixing the previous version:""".splitlines()
FIRST_IS_MEANT = """\
The original buggy version was:
For comparison, the wrong one:
Alternatively:
**Alternative (registered output)**
If you prefer subtraction, here is an alternative version:
**Before (buggy):**
What not to do:
A common mistake is:
An example of a wrong design:
Here is the buggy version for comparison:
Original `alu.sv`:
This would be wrong:
Another variant:""".splitlines()


@pytest.mark.parametrize("lead", [*LAST_IS_MEANT, *FIRST_IS_MEANT])
def test_the_last_answer_wins_unless_it_is_said_to_be_none(lead):
    """Prose that tells of an earlier fault does not turn the answer after it into a draft."""
    first, last = (DRAFT, A) if lead in LAST_IS_MEANT else (A, DRAFT)
    assert from_text(f"{fence(first)}\n{lead}\n\n{fence(last)}", ONE).files == ONLY


MINUS, PLUS = "  assign y = a - 8'd1;", "  assign y = a + 8'd1;"
HUNK = f"-{MINUS}\n+{PLUS}\n"
SEARCH = f"<<<<<<< SEARCH\n{MINUS}\n=======\n{PLUS}\n>>>>>>> REPLACE\n"
CLINE = SEARCH.replace("<<<<<<<", "-------").replace(">>>>>>>", "+++++++")
EDITS = {
    "diff": fence(
        f"--- a/rtl/alu.sv\n+++ b/rtl/alu.sv\n@@ -4,3 +4,3 @@\n );\n{HUNK} endmodule\n", "diff"
    ),
    "diff with no numbers": fence(f"--- rtl/alu.sv\n+++ rtl/alu.sv\n@@ ... @@\n{HUNK}", "diff"),
    "search and replace": f"rtl/alu.sv\n{fence(SEARCH)}",
    "search with other blanks": "rtl/alu.sv\n" + SEARCH.replace(MINUS, MINUS + "  "),
    "Cline": "<replace_in_file>\n<path>rtl/alu.sv</path>\n"
    f"<diff>\n{CLINE}</diff>\n</replace_in_file>",
    "Codex": f"*** Begin Patch\n*** Update File: rtl/alu.sv\n@@\n );\n{HUNK}*** End Patch",
    "diff, its blanks lost": fence(
        f"--- a/rtl/alu.sv\n+++ b/rtl/alu.sv\n@@ -4,3 +4,3 @@\n);\n{HUNK}endmodule\n", "diff"
    ),
    "diff with names alone": fence(f"--- a/rtl/alu.sv\n+++ b/rtl/alu.sv\n{HUNK}", "diff"),
    "diff with marks alone": fence(HUNK, "diff"),
    "conflict marks": SEARCH.replace("SEARCH", "ORIGINAL").replace("REPLACE", "UPDATED"),
    "editor of Gemini": json.dumps(
        {"new_string": PLUS, "old_string": MINUS, "file_path": "/code/rtl/alu.sv"}
    ),
    "text editor tool": '{"command": "str_replace", "path": "/code/rtl/alu.sv", '
    '"old_str": "a - 8\'d1", "new_str": "a + 8\'d1"}',
}


@pytest.mark.parametrize("name", EDITS)
def test_edits_of_the_given_file_are_applied(name):
    """A change of the given file becomes the whole file; one that does not fit becomes nothing."""
    text = EDITS[name]
    wanted = Wanted(targets=ONE, initial={"rtl/alu.sv": DRAFT})
    assert texts(from_text(text, ONE, wanted).files) == texts(ONLY)
    other = Wanted(targets=ONE, initial={"rtl/alu.sv": B})
    assert from_text(text, ONE, other).files == {}
    assert texts(from_text(f"{fence(A)}\nWhat changed:\n{text}", ONE, wanted).files) == texts(ONLY)


def test_the_harness_names_the_module(bench):
    """The module that the harness simulates is the target's, whatever the file is called."""
    problem = bench.problem(harness={"src/.env": bench.env.replace("= inc", "= adder")}).payload
    assert problem.services[0].environment["TOPLEVEL"] == "adder"
    assert "adder" in wanted_of(problem).names("rtl/inc.sv")


@pytest.mark.parametrize(
    ("target", "text", "body"),
    [
        ("docs/spec.md", "# ALU\n\nIt adds.\n\n```verilog\nassign y = a;\n```\nDone.", None),
        ("docs/spec.md", "````markdown\n# A\n```verilog\nx\n```\n````", "# A\n```verilog\nx\n```"),
        ("docs/spec.md", "Sure:\n```markdown\n# ALU\n```verilog\nx\n```\nEnd.\n```\n",
         "# ALU\n```verilog\nx\n```\nEnd."),
        ("docs/spec.md", json.dumps({"docs/spec.md": "# A\n```verilog\nx\n```\nB"}),
         "# A\n```verilog\nx\n```\nB"),
        ("verif/run.py", fence("pip install x", "bash") + fence("print(1)", "python"), "print(1)"),
        ("verif/run.tcl", fence("read_verilog a.v\nsynth\n", "tcl"), "read_verilog a.v\nsynth"),
        ("verif/run.tcl", fence("synth\n", ""), "synth"),
    ],
)  # fmt: skip
def test_files_that_are_no_verilog(target, text, body):
    """Documents and scripts are found by name, by language, or are the whole text."""
    answer = from_text(text, (target,))
    assert answer.files[target].strip() == (text if body is None else body)


@pytest.mark.parametrize(
    "path",
    ["src/conftest.py", "../x.sv", "/etc/passwd", "rtl/../src/x.sv", "rundir/a.sv", "rtl/new.sv",
     "C:\\x.sv", "rtl\\..\\src\\a.sv"],
)  # fmt: skip
@pytest.mark.parametrize("shape", ["fence", "tag", "flat", "entry", "shell", "comment"])
def test_no_shape_writes_beside_the_targets(path, shape):
    """However a file is offered, only declared targets are written."""
    offered = {
        "fence": f"{path}\n{fence(B)}",
        "tag": f'<file path="{path}">\n{B}</file>\n',
        "flat": json.dumps({path: B}) + "\n",
        "entry": json.dumps([{"name": path, "content": B}]) + "\n",
        "shell": fence(f"cat > {path} <<'EOF'\n{B}EOF\n", "bash"),
        "comment": fence(f"// File: {path}\n{B}"),
    }[shape]
    for text in (
        offered + fence(A, "verilog rtl/alu.sv"),
        fence(A, "verilog rtl/alu.sv") + offered,
    ):
        assert texts(from_text(text, ONE).files) == texts(ONLY)


HOSTILE = {
    "one module many times": "module alu; endmodule\n" * 9_000,
    "many modules, each used": "".join(
        f"module m{n}; m{n + 1} u(); endmodule\n" for n in range(8_000)
    )
    + fence("module alu; " + " ".join(f"m{n} u{n}();" for n in range(0, 8_000, 2)) + " endmodule"),
    "objects, well nested": '{"a":' * 900 + json.dumps(A) + "}" * 900,
    "lists, well nested": "[" * 900 + json.dumps(A) + "]" * 900,
    "edits": "<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n" * 10_000,
    "hunks": "@@ -1 +1 @@\n-a\n+b\n" * 25_000,
    "10 MB of a letter": "x" * 10_000_000,
    "fences": "```" * 150_000,
    "fence lines": "```\n" * 150_000,
    "fence openers": "```verilog\n" * 50_000,
    "braces": "{" * 500_000,
    "lists": '["' * 100_000,
    "objects": '{"a":' * 100_000,
    "quotes in an object": '{"a":"' + '"   ' * 100_000,
    "quotes and commas": '{"a":"' + '","' * 100_000,
    "objects on lines": '{"a": 1\n' * 50_000,
    "tags": "<a>\n" * 100_000,
    "many tags": "".join(f"<a{n}>\n" for n in range(50_000)),
    "file tags": '<file path="rtl/alu.sv">\n' * 15_000,
    "think tags": "<think>" * 50_000,
    "attributes": "<a " + 'b="c" ' * 50_000,
    "attribute": '<file path="' + "x" * 450_000,
    "modules": "module a;\n" * 25_000,
    "module words": "module " * 50_000,
    "attributes of Verilog": "(*" * 100_000 + "\nmodule alu; endmodule\n",
    "comments": "/*" * 150_000 + "\nmodule alu;\n",
    "comment ends": "*/\n" * 100_000 + "module alu;\nendmodule\n",
    "semicolons": "; //" * 100_000 + "\nmodule alu;\nendmodule\n",
    "parentheses": "module alu; assign x = " + "(" * 75_000 + "; endmodule",
    "blocks": "module alu; initial " + "begin " * 30_000 + " endmodule",
    "conditions": "module alu; assign x = " + "a?" * 50_000 + "1; endmodule",
    "macro bomb": "`define a0 x x x x x x x x\n"
    + "".join(f"`define a{n} " + f"`a{n - 1} " * 10 + "\n" for n in range(1, 12))
    + "module alu; `a11 endmodule",
    "macro that uses itself": "`define R `R `R\nmodule alu; `R endmodule",
    "includes": '`include "/dev/zero"\n`include "/dev/stdin"\nmodule alu; endmodule\n',
    "surrogates": "module alu; // \ud800\nendmodule",
    "zero bytes": "module alu;\0\0endmodule",
    "dots": "x." * 200_000 + "\n```\n" + A + "```",
    "numbered lines": "".join(f"{n} " for n in range(50_000)),
    "separators": "=== rtl/a.sv ===\n" * 25_000,
    "here documents": "```bash\n" + "cat > a.sv <<'EOF'\n" * 25_000,
    "entities": "&lt;" * 100_000,
    "escapes": '{"rtl/alu.sv": "' + "\\" * 250_001 + '"}',
    "elided": "module alu;\n" + "// rest of ... " * 25_000 + "\nendmodule\n",
}


@pytest.mark.one_of(
    3,
    "one module many times",
    "module words",
    "file tags",
    "objects",
    "many tags",
    "edits",
    "comment ends",
)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_read_in_time(name):
    """No text keeps the reader busy: its time grows with the length, and a bomb ends alone."""
    begun = time.process_time()
    answer = from_text(HOSTILE[name], ONE)
    assert time.process_time() - begun < 8
    assert set(answer.files) <= set(ONE)


def test_a_text_beyond_the_limit_is_no_answer():
    """What no honest answer reaches is not read at all, and it says so."""
    assert "more than" in from_text(A + "\n" * LONGEST, ONE).why_none


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="`~<>{}[]\"'\n\\/.:,;# amodule()rtlsv=*-_&end", max_size=400))
@example("['\\u")
@example("{'a': 'C:\\users', ")
def test_any_text_is_read(text):
    """Whatever the text, it is read without an error, into declared targets."""
    assert set(from_text(text, TWO).files) <= set(TWO)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(sorted(SHAPES)))
def test_a_shape_with_a_hole_is_read(seed, name):
    """A text that lost a part anywhere is read without an error."""
    draw = random.Random(seed)
    targets, text, _ = SHAPES[name]
    begin = draw.randrange(len(text))
    cut = text[:begin] + text[begin + draw.randrange(1, 60) :]
    assert set(from_text(cut, targets).files) <= set(targets)


def test_included_files_are_never_opened(tmp_path):
    """A text cannot make the parser read a file of this machine."""
    if subprocess.run(["which", "strace"], capture_output=True, check=False).returncode:
        pytest.skip("needs strace")
    secret = tmp_path / "secret.vh"
    secret.write_text("module leaked; endmodule\n")
    text = (
        f'`include "{secret}"\n`define F "{secret}"\n`include `F\n`include <{secret}>\n'
        "module alu; endmodule\n"
    )
    worker = definitions.__file__.replace("definitions.py", "slang.py")
    traced = subprocess.run(
        ["strace", "-f", "-e", "trace=open,openat", sys.executable, "-I", worker],
        input=json.dumps(text) + "\n", capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "secret.vh" not in traced.stderr
    assert [record["name"] for record in json.loads(traced.stdout)] == ["alu"]


def test_the_parser_is_begun_again_after_it_ended():
    """A text that ends the parser costs that text the parser, and no other."""
    definitions_of.cache_clear()
    assert definitions_of(A)[0].name == "alu"
    first = definitions._PARSER._process
    assert first is not None
    first.kill()
    first.wait()
    assert definitions_of(B)[0].name == "mul"
    assert definitions_of(B + "\n")[0].has_ports
    assert definitions._PARSER._process is not first


def test_the_official_reading_stays():
    """`cvdp.parsing=official` takes the first closed fence, as the official runner does."""
    text = f"{fence(DRAFT)}\nFinal:\n{fence(A)}"
    assert from_official_text(text, ONE).files == {"rtl/alu.sv": DRAFT}
    assert from_text(text, ONE).files == ONLY
    assert from_official_text(fence(A) + fence(B), TWO).files == {}
    assert from_text(fence(A) + fence(B), TWO).files == BOTH


def test_the_evidence_says_how_a_file_was_found(bench):
    """A reward's evidence names, for each file, the piece of the text that it was."""
    bad = bench.right.replace("endmodule", "")
    answer = from_text(f"{fence('ls', 'bash')}{fence(bad)}{fence(bench.right)}", ("rtl/inc.sv",))
    assert "fence 3" in answer.how["rtl/inc.sv"]
