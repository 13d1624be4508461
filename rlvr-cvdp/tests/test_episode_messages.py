"""Messages between turns: within their budget, errors first, nothing of the hidden harness."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from rlvr.testing.fakes import CharTokenizer
from rlvr_cvdp.episodes.compile_order import sources_of
from rlvr_cvdp.episodes.diagnostics import cleaned, messages_of, shown, tally
from rlvr_cvdp.episodes.message_budget import Budget, shares, short
from rlvr_cvdp.episodes.tools import Ran

COUNTERS = {
    "characters": len,
    "bytes": lambda text: len(text.encode(errors="replace")),
    "words": lambda text: len(re.findall(r"\S+", text)),
}
TEXT = st.text(max_size=60)
ICARUS = """\
rtl/a.sv:2: syntax error
/code/rtl/a.sv:2: error: syntax error in continuous assignment
rtl/b.sv:1: warning: implicit definition of wire 'q'.
rtl/a.sv:2: syntax error
I give up.
"""
FILES = {"rtl/a.sv": "module a;\n  assign y = x +;\nendmodule\n", "rtl/b.sv": "assign q = 1;\n"}


@given(
    st.lists(TEXT, max_size=30), TEXT, TEXT, st.integers(0, 200), st.sampled_from(sorted(COUNTERS))
)
def test_a_message_never_takes_more_than_its_budget(items, head, foot, tokens, counter):
    """Whatever is to be said, and however tokens are counted."""
    budget = Budget(tokens, COUNTERS[counter])
    for text in (
        budget.first(items, head=head, foot=foot),
        budget.ends(items, head=head, foot=foot),
        budget.cut(head),
    ):
        assert not text or budget.count(text) <= tokens


@given(TEXT, st.integers(0, 60))
def test_the_estimate_bounds_too(text, tokens):
    """Without a tokenizer the estimate is held."""
    budget = Budget(tokens)
    cut = budget.cut(text)
    assert text.startswith(cut)
    assert not cut or budget.count(cut) <= tokens


def test_the_first_are_kept_and_the_rest_is_counted():
    """As many of ten messages as fit, and one line that says how many did not."""
    items = [f"message {n}" for n in range(10)]
    three = "head\nmessage 0\nmessage 1\nmessage 2\n[7 more lines]\nfoot"
    two = "head\nmessage 0\nmessage 1\n[8 more lines]\nfoot"
    assert Budget(len(three), len).first(items, head="head", foot="foot") == three
    assert Budget(len(three) - 1, len).first(items, head="head", foot="foot") == two
    assert Budget(9, len).first(["a", "b"], head="head") == "head\na\nb"[:9]


def test_both_ends_are_kept_of_what_a_simulation_prints():
    """The verdict of a testbench stands at the end of its output."""
    items = [f"line {n}" for n in range(100)]
    four = "line 0\nline 1\n[96 more lines]\nline 98\nline 99"
    assert Budget(len(four), len).ends(items) == four
    assert Budget(len(four) - 1, len).ends(items) == "line 0\nline 1\n[97 more lines]\nline 99"


def test_errors_come_first_each_once_with_its_line():
    """The words of iverilog become messages with the place and the line of the file."""
    found = messages_of(Ran(ok=False, output=ICARUS))
    assert tally(found) == "2 errors, 1 warning"
    assert [(m.file, m.line, m.severity) for m in found] == [
        ("rtl/a.sv", 2, "error"),
        ("rtl/a.sv", 2, "error"),
        ("rtl/b.sv", 1, "warning"),
    ]
    assert shown(found, FILES) == [
        "rtl/a.sv:2: error: syntax error\n    assign y = x +;",
        "rtl/a.sv:2: error: syntax error in continuous assignment",
        "rtl/b.sv:1: warning: implicit definition of wire 'q'.\n    assign q = 1;",
    ]
    assert tally([]) == ""


def test_a_failure_in_unknown_words_is_shown_as_it_is():
    """A tool that fails and says nothing that can be read is quoted."""
    found = messages_of(Ran(ok=False, output="the roof is on fire\n"))
    assert shown(found, {}) == ["error: the roof is on fire"]
    assert messages_of(Ran(ok=True, output="all is well\n")) == []


def test_what_compiles_has_no_errors():
    """Limits of the simulator are not the policy's mistakes; warnings stay."""
    output = (
        "rtl/a.sv:2: sorry: constant selects in always_* processes are not currently supported.\n"
        "rtl/b.sv:1: warning: implicit definition of wire 'q'.\n"
    )
    (only,) = messages_of(Ran(ok=True, output=output))
    assert (only.file, only.severity) == ("rtl/b.sv", "warning")


@given(st.lists(st.sampled_from(["rtl/a.sv:1: error: x", "see /src/test_a.py", "/rlvr/real/vvp"])))
def test_nothing_of_the_harness_and_the_sandbox_is_shown(lines):
    """Lines about /src and the sandbox's own programs are left out."""
    assert set(cleaned("\n".join(lines))) <= {"rtl/a.sv:1: error: x"}
    said = "\n".join(shown(messages_of(Ran(ok=False, output="\n".join(lines))), FILES))
    assert "/src" not in said
    assert "/rlvr" not in said


def test_long_lines_are_short():
    """One endless line does not eat the budget."""
    assert short("x" * 1000) == "x" * 237 + "..."
    assert short("x" * 240) == "x" * 240
    assert short("a\x00b\x1b[31m\tc") == "a?b?[31m\tc"


def test_of_a_line_that_is_too_long_the_beginning_is_shown():
    """A paragraph on one line, longer than the budget, is not simply left out."""
    text = Budget(40, len).first(["x" * 100, "y"], head="> read", foot="[end]")
    assert text == "> read\n" + "x" * 10 + "...\n[1 more line]\n[end]"
    assert len(text) == 40


def test_sources_are_the_answers_and_what_they_use():
    """Packages and modules that are used come before; what nothing uses is left out."""
    files = {
        "rtl/top.sv": "module top; import p::*; leaf u(); /* other v(); */ endmodule",
        "rtl/leaf.sv": '`include "defs.vh"\nmodule leaf; wire x = `WIDTH; endmodule',
        "rtl/p.sv": "package p; endpackage",
        "rtl/width.v": "`define WIDTH 8",
        "rtl/other.sv": "module other; broken",
        "rtl/defs.vh": "// nothing",
        "verif/tb.sv": "module tb; top u(); endmodule",
        "docs/x.md": "module top",
    }
    order = sources_of(files, ["rtl/top.sv", "docs/x.md", "rtl/gone.sv"])
    assert sorted(order) == ["rtl/leaf.sv", "rtl/p.sv", "rtl/top.sv", "rtl/width.v"]
    assert order[-1] == "rtl/top.sv"
    assert order.index("rtl/width.v") < order.index("rtl/leaf.sv")
    assert sources_of(files, ["verif/tb.sv"])[-1] == "verif/tb.sv"
    assert sources_of({**files, "rtl/p.sv": "package p; top u(); endpackage"}, ["rtl/top.sv"])


def test_included_files_are_no_sources():
    """A .v file that another one includes is not compiled a second time."""
    files = {
        "rtl/a.v": '`include "b.v"\nmodule a; b u(); endmodule',
        "rtl/b.v": "module b; endmodule",
    }
    assert sources_of(files, ["rtl/a.v", "rtl/b.v"]) == ["rtl/a.v"]


def test_a_given_file_does_not_stand_in_for_an_answers():
    """Where both define a module, the answer's file is the one that is compiled."""
    files = {"rtl/a_old.sv": "module a; endmodule", "rtl/z.sv": "module a; endmodule"}
    assert sources_of(files, ["rtl/z.sv"]) == ["rtl/z.sv"]


def test_budgets_count_with_the_policys_tokenizer():
    """The tokenizer that a sampler hands over is the one that counts."""
    tokenizer = CharTokenizer()
    budget = Budget(10, lambda text: len(tokenizer.encode(text)))
    assert budget.cut("a" * 30) == "a" * 10


@given(st.lists(st.integers(0, 50), max_size=8), st.integers(-5, 100))
def test_shares_of_a_budget(needs, room):
    """Nobody gets more than the need, all together no more than there is, and none is wasted."""
    given_out = shares(needs, room)
    assert all(0 <= got <= need for got, need in zip(given_out, needs, strict=True))
    assert sum(given_out) <= max(0, room)
    assert sum(given_out) == min(sum(needs), max(0, room))


def test_small_texts_leave_their_share():
    """Of 10 tokens a need of 2 takes 2; two large ones share the other 8."""
    assert shares([2, 50, 50], 10) == [2, 4, 4]
    assert shares([50, 1], 10) == [9, 1]
