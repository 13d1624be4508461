"""The second judge of chess agrees where the first one is right, and sees where it was fooled."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import chess
import pytest
from attrs import evolve
from engine_fixture import positions, script
from engine_fixture import stockfish as stockfish

from rlvr import BuildContext, Problem, Reward, Trajectory, VerifierError
from rlvr.testing.tools import shared_data
from rlvr_chess.config import ChessConfig
from rlvr_chess.questions.grammar import environment_text, policy_text, policy_text_of
from rlvr_chess.questions.records import EnvironmentStep, Payload, PolicyPosition, Solution
from rlvr_chess.questions.transition import legal_moves, transition
from rlvr_chess.rewards.reward import ChessReward
from rlvr_chess.rewards.second_opinion import environment_truth
from rlvr_chess.task import ChessTask
from rlvr_chess.values import ActionValues

Case = tuple[Payload, str]


def problem(payload: Payload) -> Problem:
    return Problem(id="p", prompt=(), payload=payload)


def both(cases: Sequence[Case], **options: Any) -> list[tuple[Reward, Reward | None]]:
    """First verdict and second opinion of each answer."""

    async def ask() -> list[tuple[Reward, Reward | None]]:
        config = ChessConfig(**{"second_nodes": 0, **options})
        async with ChessReward(config, BuildContext()) as reward:
            found = []
            for payload, text in cases:
                case = problem(payload), Trajectory.from_text("p", text)
                found.append((await reward(*case), await reward.second_opinion(*case)))
            return found

    return asyncio.run(ask())


def agree(cases: Sequence[Case], **options: Any) -> set[bool]:
    """Which verdicts (right or not) both gave, once it is sure that they agree on each answer."""
    seen = set()
    for (payload, text), (first, second) in zip(cases, both(cases, **options), strict=True):
        assert second is not None
        assert (first.score01 == 1.0) == (second.score01 == 1.0), (payload, text, second.evidence)
        seen.add(first.score01 == 1.0)
    return seen


@pytest.mark.parametrize("part", [9, pytest.param(1, marks=pytest.mark.thorough)])
def test_its_rules_are_those_of_the_golden_file(part: int) -> None:
    """All 3,645 golden transitions, or each ninth, by python-chess's own board."""
    for line in shared_data("chess/env_transitions.jsonl").read_text().splitlines()[::part]:
        row = json.loads(line)
        wanted = tuple(row[name] for name in ("new_fen", "reward", "terminated", "truncated"))
        fen, *outcome = environment_truth(row["fen"], row["uci"])
        assert (fen, *map(float, outcome)) == wanted, row


@pytest.mark.parametrize("profile", ["canonical", "rookworld"])
def test_it_confirms_every_reference(profile: str) -> None:
    """The task's own answers are right for both judges, in both wordings."""
    config = ChessConfig(profile=profile)
    task = ChessTask(config, BuildContext())
    chosen = list(task.problems("test"))[::23]
    cases = [(p.payload, reference.completion) for p in chosen if (reference := task.reference(p))]

    assert len(cases) > 20
    assert agree(cases, profile=profile) == {True}


def test_it_rejects_what_the_first_judge_rejects() -> None:
    """States with one field wrong, moves that are not legal, answers of no form."""
    cases: list[Case] = []
    for fen in positions(30):
        uci = min(legal_moves(fen))
        text = environment_text(transition(fen, uci))
        step = EnvironmentStep(fen=fen, uci=uci)
        fields = text.split("+")
        wrong = ["+".join([*fields[:i], "2.0", *fields[i + 1 :]]) for i in (1, 2, 3)]
        wrong += [text + "\n", text.replace("+0.001+", "+1e-3+") + " ", text + "+nan"]
        moved = fields[0].split(" ")
        clock = " ".join([*moved[:4], str(int(moved[4]) + 1), moved[5]])
        wrong += ["", fen, f"{fen}+0.001+0+0", "+".join([clock, *fields[1:]]), text + "+0", "+++"]
        cases += [(step, answer) for answer in (text, *wrong)]

    assert agree(cases) == {True, False}


SCORES = [
    *[("e2e4", "cp", 40), ("d2d4", "cp", 38), ("g1f3", "cp", 30), ("c2c4", "cp", 25)],
    *[("e2e3", "cp", 20), ("g2g4", "cp", -120)],
]
VALUES = ActionValues(fen=chess.STARTING_FEN, moves=SCORES)
START = PolicyPosition(fen=chess.STARTING_FEN, values=VALUES)
LINE = policy_text_of(VALUES)


@pytest.mark.parametrize(
    "text",
    [
        LINE,
        LINE.replace("B: e2e4", "B: g2g4"),
        LINE.replace("B: e2e4", "B: e2e5"),
        LINE.replace("B: e2e4", "B: 0000"),
        LINE + " ",
        LINE.strip(),
        LINE.replace(" E: ", " "),
        LINE.replace(" B: ", " B: e2e4 B: "),
        "B: e2e4",
        " B: e2e4",
        "",
    ],
)
def test_it_reads_a_line_as_strictly(text: str) -> None:
    """By the table alone the two judges agree on lines of every form."""
    agree([(START, text)])


def test_a_solution_is_held_against_the_record() -> None:
    """The choice of a puzzle line: points, moves to avoid, any mate."""
    fen = "6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1"
    moves = sorted(legal_moves(fen))
    records = [
        Solution(fen=fen, points={"a1a8": 1.0}),
        Solution(fen=fen, any_mate=True),
        Solution(fen=fen, points={"a1a8": 0.5}),
        Solution(fen=fen, avoid=("a1a8",)),
        Solution(fen=fen, avoid=("a1a8",), points={"a1a7": 1.0}),
        Solution(fen=fen, avoid=("a1a8",), any_mate=True),
    ]
    others = [m for m in moves if m != "a1a8"][:4]
    cases: list[Case] = [
        (
            record,
            policy_text(
                [best, *[m for m in ["a1a8", *others] if m != best][:4]], ["0.00"] * 5, best
            ),
        )
        for record in records
        for best in ("a1a8", "a1a7", moves[-1])
    ]

    assert agree(cases) == {True, False}


def test_an_answer_that_was_cut_off_is_not_confirmed() -> None:
    """The token limit ended it: the first judge gives 0, the second one rejects it."""

    async def ask() -> Reward | None:
        async with ChessReward(ChessConfig(second_nodes=0), BuildContext()) as reward:
            cut = evolve(Trajectory.from_text("p", LINE), finish="length")
            return await reward.second_opinion(problem(START), cut)

    opinion = asyncio.run(ask())
    assert opinion is not None
    assert opinion.score01 == 0.0


def test_a_deeper_search_sees_a_blunder_that_the_table_calls_best(stockfish: Path) -> None:
    """The table is wrong (a bishop is given away): the first judge pays, the second rejects."""
    fen = "rnbqkbnr/pppp1ppp/8/4p3/4P3/8/PPPP1PPP/RNBQKBNR w KQkq - 0 2"
    legal = sorted(legal_moves(fen))
    scores = [("b1c3", "cp", 10), *[(m, "cp", 0) for m in legal if m not in ("f1a6", "g1f3")]]
    lying = ActionValues(fen=fen, moves=[("f1a6", "cp", 300), *scores])
    good = ActionValues(fen=fen, moves=[("g1f3", "cp", 300), *scores])

    (fooled, rejected), (right, confirmed) = both(
        [
            (PolicyPosition(fen=fen, values=lying), policy_text_of(lying)),
            (PolicyPosition(fen=fen, values=good), policy_text_of(good)),
        ],
        engine=str(stockfish),
        second_nodes=100_000,
    )

    assert fooled.score01 == right.score01 == 1.0
    assert rejected is not None
    assert rejected.score01 == 0.0
    assert "by a deeper search" in rejected.evidence["why"]
    assert confirmed is not None
    assert confirmed.score01 == 1.0


def test_without_an_engine_the_table_is_asked(tmp_path: Path) -> None:
    """No engine at the place that is named: the recheck needs none."""
    ((_, opinion),) = both([(START, LINE)], engine=str(tmp_path / "nothing"), second_nodes=1000)

    assert opinion is not None
    assert opinion.score01 == 1.0


def test_an_engine_that_fails_is_no_verdict(tmp_path: Path) -> None:
    """It starts and then dies at each search: VerifierError, never a rejection."""
    says = 'while read -r line; do case "$line" in\nuci) echo "id name Fake"; echo uciok;;\n'
    says += "isready) echo readyok;;\ngo*|quit) exit;;\nesac; done"
    broken = script(tmp_path, says)
    with pytest.raises(VerifierError):
        both([(START, LINE)], engine=str(broken), second_nodes=1000)
