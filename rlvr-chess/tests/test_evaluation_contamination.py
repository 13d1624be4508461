"""What was trained on is found, and the rest measured by itself."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import chess
import pytest

from rlvr import Problem
from rlvr_chess.evaluation.bench import Found
from rlvr_chess.evaluation.contamination import (
    Seen,
    figures,
    mirrors,
    read_hashes,
    seen_positions,
    unseen_figures,
)
from rlvr_chess.evaluation.environment import LEAST, Foretold
from rlvr_chess.fen import four_fields
from rlvr_chess.questions.grammar import environment_text, parse_environment
from rlvr_chess.questions.records import EnvironmentStep
from rlvr_chess.questions.transition import transition

KINGS = "8/8/8/8/4k3/8/8/R3K3 w Q - {clock} 1"
UNSEEN = "8/8/8/8/4k3/8/8/R3K3 w - - 0 1"


def step(name: str, fen: str) -> Problem:
    payload = EnvironmentStep(fen=fen, uci="a1a8", category=name[0])
    return Problem(id=name, prompt=[], payload=payload, labels={"task": "environment"})


def test_clocks_do_not_hide_a_position() -> None:
    """Two problems of one position count once; clocks differ, the first four fields do not."""
    problems = [step("a", KINGS.format(clock=0)), step("b", KINGS.format(clock=7))]
    problems.append(step("c", "8/8/8/8/4k3/8/8/R3K3 w - - 0 1"))
    seen = seen_positions([KINGS.format(clock=31), "no position at all"])
    found = {figure.name: figure for figure in figures(problems, seen, "against one")}
    assert found["contamination/seen"].value == 0.5
    assert found["contamination/seen"].n == 2
    assert found["contamination/seen/environment"].value == 0.5


def test_unseen_positions_are_measured_by_themselves() -> None:
    """A model that is right on what it saw, and wrong elsewhere, has 0 there."""
    problems = [
        step(f"{name}{number}", KINGS.format(clock=0) if name == "a" else UNSEEN)
        for name in "ab"
        for number in range(LEAST)
    ]
    found = Found()
    for problem in problems:
        truth = transition(problem.payload.fen, "a1a8")
        text = environment_text(truth) if problem.id[0] == "a" else "nonsense"
        found.environment[problem.id] = Foretold(
            truth=truth, answer=parse_environment(text), category="quiet"
        )
    seen = seen_positions([KINGS.format(clock=0)])
    named = {figure.name: figure for figure in unseen_figures(problems, found, seen)}
    exact = named["contamination/unseen/environment/exact"]
    assert (exact.value, exact.n) == (0.0, LEAST)
    assert named["contamination/unseen/environment/macro"].value == 0.0
    assert set(named) == {
        "contamination/unseen/environment/exact",
        "contamination/unseen/environment/macro",
    }


def test_nothing_seen_needs_no_second_table() -> None:
    """Where no position was seen the figures already are of unseen ones, and the note says so."""
    problems = [step("a", KINGS.format(clock=0))]
    (figure,) = unseen_figures(problems, Found(), frozenset())
    assert math.isnan(figure.value)
    assert "all figures are of unseen positions" in figure.note
    (share, kind) = figures(problems, frozenset(), "against nothing")
    assert (share.value, kind.value) == (0.0, 0.0)
    assert share.high == pytest.approx(0.793, abs=1e-3)  # Wilson at 0 of 1


def test_a_mirror_image_of_a_pretraining_position_is_seen(tmp_path: Path) -> None:
    """Colours exchanged, or wings where nobody may castle; another position is not seen."""
    rook = "8/8/8/8/4k3/8/8/R3K3 w - - 0 1"
    rows = [{"fen": chess.STARTING_FEN}, {"fen": rook}, {"fen": rook.replace("0 1", "4 9")}]
    source, target = tmp_path / "positions.jsonl", tmp_path / "seen.bin"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    maker = Path(__file__).parents[1] / "starter_model" / "seen.py"
    subprocess.run([sys.executable, maker, source, target], check=True, capture_output=True)
    assert target.stat().st_size == 10, "five bytes a position, each once"
    seen = Seen(hashes=read_hashes(target))
    assert four_fields(rook) in seen
    assert "r3k3/8/8/4K3/8/8/8/8 b - -" in seen
    assert "8/8/8/8/3k4/8/8/3K3R w - -" in seen
    assert "3k3r/8/8/3K4/8/8/8/8 b - -" in seen
    assert "8/8/8/8/4k3/8/8/R3K3 b - -" not in seen
    assert four_fields(chess.STARTING_FEN).replace(" w ", " b ") in seen
    assert mirrors(four_fields(chess.STARTING_FEN))[0] == four_fields(chess.STARTING_FEN)
    assert len(mirrors(four_fields(chess.STARTING_FEN))) == 2, "castling tells the wings apart"
    assert read_hashes(tmp_path / "absent.bin") == frozenset()
