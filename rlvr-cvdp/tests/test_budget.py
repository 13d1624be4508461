"""Prompts within a budget: the interface survives, what goes is recorded, nothing else changes."""

from __future__ import annotations

import json

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr import Failed, Message, ScoredGroup, Trajectory
from rlvr.records.trajectories import trajectory_records
from rlvr.testing.tools import shared_data
from rlvr_cvdp.datasets.rows import read_rows
from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.prompts.official import official_prompt
from rlvr_cvdp.prompts.sections import KEEP, pieces_of
from rlvr_cvdp.prompts.truncate import estimated_prompt, estimated_tokens, fit_prompt

GIVEN = """\
`timescale 1ns/1ps
module helper #(
    parameter WIDTH = 8  // bits; of both
) (
    input  wire clk,
    output reg [WIDTH-1:0] count
);
  // counts, and counts
  always @(posedge clk) begin
    count <= count + 1;
  end

  assign unused = count[0];
endmodule
"""
OLD = """\
module old(a, b,
           y);
  input [3:0] a,
              b;
  output y;
  parameter N = 3;

  wire w = ^a;
  assign y = w & b[N];
endmodule
"""
REQUEST = """\
Write the module top, which uses helper.

## Background

Counters are old. They have been used in many machines, and this long paragraph tells of some.

## Interface

- `clk`: clock
- `done`: high at the end

### Parameters

WIDTH is 8.

## Behaviour

It counts up to 255, then it stops, and nothing more can happen to it, ever, until power is gone.

| step | count |
| --- | --- |
| 1 | 1 |

## Example

After three edges the count is 3, after four edges it is 4, and after five edges it is five, and so
it goes on and on, as anybody can see who draws it on paper, with a pencil or with a good pen.
"""
DOCS = (
    "# Helper\n\n## Ports\n\n`clk`, `count`\n\n## History\n\nIt was written long ago"
    + " by many" * 40
)
INTERFACE = (
    *("parameter WIDTH = 8", "input  wire clk,", "output reg [WIDTH-1:0] count", "module helper"),
    *("input [3:0] a,", "              b;", "output y;", "parameter N = 3;", "module old(a, b,"),
    *("- `done`: high at the end", "WIDTH is 8.", "Write the module top", "## Interface"),
    *("`clk`, `count`", "rtl/top.sv"),
)


def problem(**changes) -> CvdpProblem:
    """A request with sections, documents, given modules and one target."""
    context = {"docs/helper.md": DOCS, "rtl/helper.sv": GIVEN, "rtl/old.v": OLD}
    made = CvdpProblem(
        id="x",
        category="cid005",
        difficulty="easy",
        prompt=REQUEST,
        context=context,
        targets=("rtl/top.sv",),
        harness={},
    )
    return evolve(made, **changes)


def text_of(messages) -> str:
    return "".join(message.content for message in messages)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("clk", 1),
        ("counter", 2),
        ("assign y = a;", 2 + 1 + 1 + 1 + 1 + 1 + 1 + 1),
        ("8'hff\n\n  x", 1 + 1 + 1 + 1 + 1 + 1),
        ("é", 2),
        ("a_b12", 5),
    ],
)
def test_the_estimate_worked_by_hand(text, tokens):
    """Letters by fours, digits and signs one each, runs of blanks one, other letters by bytes."""
    assert estimated_tokens(text) == tokens


@given(st.text(max_size=40), st.text(max_size=40))
def test_the_estimate_adds_up(one, other):
    """Joined texts cost at most their sum: parts can be counted by themselves."""
    assert estimated_tokens(one + other) <= estimated_tokens(one) + estimated_tokens(other)


def test_no_budget_changes_nothing():
    """Without a budget, or with one that is large enough, the text is the same to the letter."""
    whole = official_prompt(problem())
    for budget in (0, estimated_prompt(whole), 10**9):
        fitted = fit_prompt(problem(), official_prompt, budget)
        assert fitted.messages == whole
        assert fitted.notes == {}


@settings(max_examples=60)
@given(st.integers(1, 900))
def test_any_budget(budget):
    """At most the budget, unless the interface alone is more; the interface is always there."""
    fitted = fit_prompt(problem(), official_prompt, budget)
    tokens = estimated_prompt(fitted.messages)
    text = text_of(fitted.messages)
    for line in INTERFACE:
        assert line in text
    smallest = fit_prompt(problem(), official_prompt, 1)
    if fitted.notes:
        cut = fitted.notes["prompt_cut"]
        assert cut["after"] == tokens
        assert cut["before"] == estimated_prompt(official_prompt(problem()))
        assert cut["is_over"] == (tokens > budget)
        assert sum(cut["lines"].values()) > 0
        if cut["is_over"]:
            assert fitted.messages == smallest.messages
    else:
        assert tokens <= budget


def test_the_order_of_cutting():
    """Documents first, then examples and tables, prose, given bodies, and the target's last."""
    made = problem(
        context={**problem().context, "rtl/top.sv": "module top;\n  // mine\nendmodule\n"}
    )
    marks = ["written long ago", "After three edges", "| 1 | 1 |", "Counters are old",
             "It counts up to 255", "assign unused", "assign y = w", "// mine"]  # fmt: skip
    last = {}
    for budget in range(estimated_prompt(official_prompt(made)), 1, -1):
        text = text_of(fit_prompt(made, official_prompt, budget).messages)
        for mark in marks:
            if mark in text:
                last[mark] = budget
    ranks = [last[marks[0]], *(max(last[m] for m in marks[1:3]), max(last[m] for m in marks[3:5])),
             max(last[m] for m in marks[5:7]), last[marks[7]]]  # fmt: skip
    assert ranks == sorted(ranks, reverse=True)
    assert len(set(ranks)) == len(ranks)


def test_only_what_is_shown_counts():
    """A prompt that shows no context is not cut for the sake of context."""
    made = problem(context={"rtl/long.sv": "module m;\n" + "  wire w;\n\n" * 2000 + "endmodule\n"})

    def request_only(record):
        return (Message(role="user", content=record.prompt),)

    whole = estimated_prompt(request_only(made))
    assert fit_prompt(made, request_only, whole).notes == {}
    cut = fit_prompt(made, request_only, whole - 10).notes["prompt_cut"]
    assert set(cut["lines"]) == {"prompt"}
    assert whole - 150 < cut["after"] <= whole - 10


def test_gaps_are_marked():
    """Where lines went a mark says how many; in Verilog it is a comment."""
    text = text_of(fit_prompt(problem(), official_prompt, 1).messages)
    assert "// [... " in text
    assert "\n[... " in text


@given(st.text(alphabet="abc \n#*|`-:;()=module inputendmodule", max_size=200))
def test_pieces_are_the_text(text):
    """Joined, the pieces of any text are the text, in prose and in code."""
    for name in ("", "docs/a.md", "rtl/a.sv"):
        assert "".join(piece.text for piece in pieces_of(name, text, problem())) == text


def test_of_the_request_the_first_paragraph_is_kept():
    """It says what is wanted; the first paragraph of a document may go."""
    text = "Make it count.\n\nThen more words.\n"
    ranks = {
        name: [piece.rank for piece in pieces_of(name, text, problem())]
        for name in ("", "docs/a.md")
    }
    assert ranks[""][0] == KEEP != ranks[""][-1]
    assert KEEP not in ranks["docs/a.md"]


def test_what_was_cut_is_recorded(bench):
    """The problem's notes say it, and so does each line that a run writes of its trajectories."""
    row = bench.row(context={"docs/long.md": "Words about nothing.\n\n" * 200})
    task = bench.task(row, max_prompt_tokens=400)
    (made,) = task.problems("all")
    cut = made.notes["prompt_cut"]
    assert cut["after"] <= 400 < cut["before"]
    assert cut["lines"]["docs/long.md"] > 300
    answer = Trajectory.from_text(made.id, "x")
    group = ScoredGroup(problem=made, trajectories=[answer], outcomes=[Failed(reason="none")])
    (record,) = trajectory_records(group, 0)
    assert json.loads(json.dumps(record))["problem_notes"]["prompt_cut"] == cut
    assert made.digest == next(iter(bench.task(row).problems("all"))).digest


def test_real_problems_within_half_of_their_size():
    """Real problems fit half of their size or say that they do not, and keep their interface."""
    path = shared_data("cvdp", "agentic_no_commercial.jsonl")
    for made in read_rows(path):
        assert isinstance(made, CvdpProblem)
        whole = estimated_prompt(official_prompt(made))
        fitted = fit_prompt(made, official_prompt, whole // 2)
        text = text_of(fitted.messages)
        is_over = estimated_prompt(fitted.messages) > whole // 2
        assert fitted.notes["prompt_cut"]["is_over"] == is_over
        assert fitted.notes["prompt_cut"]["after"] < whole
        for name, body in made.context.items():
            kept = [p.text for p in pieces_of(name, body, made) if p.rank == KEEP]
            assert all(piece in text for piece in kept)
