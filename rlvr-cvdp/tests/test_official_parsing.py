"""The official runner's reading of answers, sharp edges included, on cases worked by hand."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr_cvdp.answers.official import official_files, response_text
from rlvr_cvdp.answers.parse import from_official_text

ONE = ("rtl/a.sv",)
TWO = ("rtl/a.sv", "rtl/b.sv")


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("  module a;\nendmodule \n", "module a;\nendmodule"),
        ("x ```verilog\nA\n``` y ```\nB\n```", "A\n"),
        ("```system verilog\nA\n```", "system verilog\nA\n"),
        ("```A```", "A"),
        ("``````", ""),
        ("```verilog\nA", "```verilog\nA"),
        ("<think>```\nA\n```</think>```\nB\n```", "\nA\n"),
        ("", ""),
    ],
)
def test_one_target(text, body):
    """The first closed fence wins, wherever it stands; without one the whole text."""
    assert official_files(text, ONE) == {"rtl/a.sv": body}


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ('{"code": [{"rtl/a.sv": "A", "x": "X"}, {"rtl/b.sv": "B"}]}',
         {"rtl/a.sv": "A", "x": "X", "rtl/b.sv": "B"}),
        ('pre {"code": [{"rtl/a.sv": "a // b\nc"}]} post', {"rtl/a.sv": "a // bc"}),
        ('{"code": [{"rtl/a.sv": "a // b\\nc"}]}', {"rtl/a.sv": "a // b\nc"}),
        ('{"code": [{"rtl/a.sv": "```verilog\\nA\\n```"}]}', {"rtl/a.sv": "A\n"}),
        ('{"code": [{"rtl/a.sv": "1"}, {"rtl/a.sv": "2"}]}', {"rtl/a.sv": "2"}),
        ("```verilog\nmodule a;\nendmodule\n```", None),
        ('{"code": {"rtl/a.sv": "A"}}', None),
        ('{"code": []}', None),
        ('{"response": "A"}', None),
        ('{"code": [{"rtl/a.sv": "A"}]', None),
        ("} {", None),
        ("", None),
    ],
)  # fmt: skip
def test_several_targets(text, files):
    """One JSON object after control characters are gone; raw line breaks glue lines together."""
    assert official_files(text, TWO) == files


def test_only_declared_targets_are_answers():
    """What the official runner would write beside the targets is named and never written."""
    text = json.dumps({"code": [{"rtl/a.sv": "module a; endmodule", "src/conftest.py": "x"}]})
    answer = from_official_text(text, TWO)
    assert answer.files == {"rtl/a.sv": "module a; endmodule"}
    assert answer.ignored == ("src/conftest.py",)


def test_text_without_code_is_no_answer():
    """Prose would be written to the file officially, and could not compile: nothing is run."""
    assert from_official_text("I cannot do that.", ONE).files == {}
    assert from_official_text("I cannot do that.", ONE).why_none == "it holds no code"


@given(st.text(alphabet='{}"`code[]:,\n\\ arlv.ts/response', max_size=60))
def test_any_text_is_read(text):
    """No text makes the reader fail, in any of its forms."""
    assert set(official_files(text, ONE) or {}) == set(ONE)
    for body in (official_files(text, TWO) or {}).values():
        assert isinstance(body, str)
    for is_strict in (True, False):
        assert isinstance(response_text(text, is_strict=is_strict), str | None)
