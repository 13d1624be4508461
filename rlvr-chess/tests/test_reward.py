from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import chess
import pytest
from attrs import evolve
from engine_fixture import QUICK, script
from engine_fixture import stockfish as stockfish

from rlvr import (
    BuildContext,
    Message,
    PrerequisiteError,
    Problem,
    Reward,
    RewardFn,
    Trajectory,
    VerifierError,
)
from rlvr.testing import RewardContract
from rlvr.testing.reward import Case
from rlvr_chess.config import ChessConfig
from rlvr_chess.questions.grammar import (
    environment_prompt,
    environment_text,
    parse_policy,
    policy_prompt,
    policy_text,
    policy_text_of,
)
from rlvr_chess.questions.records import EnvironmentStep, Payload, PolicyPosition, Solution
from rlvr_chess.questions.transition import transition
from rlvr_chess.rewards.reward import ChessReward
from rlvr_chess.values import ActionValues

START = chess.STARTING_FEN
SCORES = [
    *[("e2e4", "cp", 40), ("d2d4", "cp", 38), ("g1f3", "cp", 30), ("c2c4", "cp", 25)],
    *[("e2e3", "cp", 20), ("g2g4", "cp", -120)],
]
VALUES = ActionValues(fen=START, moves=SCORES)
ENDING = "k7/8/8/8/8/8/r7/6K1 w - - 0 1"
"""White has two legal moves, so two candidates are due."""


def problem(payload: Payload, prompt: str = "") -> Problem:
    return Problem(id="p", prompt=(Message(role="user", content=prompt),), payload=payload)


def policy(values: ActionValues | None = VALUES, fen: str = START) -> Problem:
    return problem(PolicyPosition(fen=fen, values=values), policy_prompt(fen))


def environment(uci: str = "e2e4") -> Problem:
    return problem(EnvironmentStep(fen=START, uci=uci), environment_prompt(START, uci))


def judge(what: Problem, text: str, *, finish: str = "stop", **options: object) -> Reward:
    trajectory = evolve(Trajectory.from_text("p", text), finish=finish)

    async def work() -> Reward:
        async with ChessReward(ChessConfig(**options), BuildContext()) as reward:
            return await reward(what, trajectory)

    return asyncio.run(work())


class _Contract(RewardContract):
    """The core's promises of a reward; `case` is what it judges."""

    options: ClassVar[dict[str, object]] = {}

    def make_reward(self) -> RewardFn:
        return ChessReward(ChessConfig(**self.options, second_nodes=20_000), BuildContext())


class TestPolicyContract(_Contract):
    def right(self) -> Case:
        return policy(), Trajectory.from_text("p", policy_text_of(VALUES))

    def wrong(self) -> Sequence[Case]:
        line = policy_text_of(VALUES)
        texts = [line.replace("B: e2e4", f"B: {uci}") for uci in ("g2g4", "e2e5")]
        return [(policy(), Trajectory.from_text("p", text)) for text in texts]

    def cheats(self) -> Sequence[Case]:
        line = policy_text_of(VALUES)
        texts = [
            *[line + " B: e2e4", line + "\n", "\n" + line, line * 2, line.replace(" ", "\xa0")],
            " e2e4 E: 0.40 B: e2e4",
        ]
        return [(policy(), Trajectory.from_text("p", text)) for text in texts]


class TestRookworldContract(TestPolicyContract):
    options: ClassVar[dict[str, object]] = {"profile": "rookworld"}

    def right(self) -> Case:
        return policy(), Trajectory.from_text("p", policy_text_of(VALUES, "rookworld"))

    def wrong(self) -> Sequence[Case]:
        return [(policy(), Trajectory.from_text("p", policy_text_of(VALUES)[:-4] + "g2g4"))]

    def cheats(self) -> Sequence[Case]:
        return ()


class TestEnvironmentContract(_Contract):
    def right(self) -> Case:
        text = environment_text(transition(START, "e2e4"))
        return environment(), Trajectory.from_text("p", text)

    def wrong(self) -> Sequence[Case]:
        right = environment_text(transition(START, "e2e4"))
        texts = [right.replace(" - ", " e3 "), right.replace("0 1", "1 1"), f"{START}+0.001+0+0"]
        return [(environment(), Trajectory.from_text("p", text)) for text in texts]

    def cheats(self) -> Sequence[Case]:
        right = environment_text(transition(START, "e2e4"))
        return [
            (environment(), Trajectory.from_text("p", text))
            for text in (right + "\n", right + right, f"{right}+0", right.replace("+", "＋"))
        ]


class TestExactContract(TestEnvironmentContract):
    options: ClassVar[dict[str, object]] = {"exact": True}


class TestSolutionContract(_Contract):
    def right(self) -> Case:
        record = Solution(fen=START, points={"d2d4": 1.0, "e2e4": 0.8})
        text = policy_text_of(VALUES).replace("B: e2e4", "B: d2d4")
        return problem(record, policy_prompt(START)), Trajectory.from_text("p", text)

    def wrong(self) -> Sequence[Case]:
        return [(self.right()[0], Trajectory.from_text("p", policy_text_of(VALUES)))]


@pytest.mark.parametrize(
    ("what", "names"),
    [
        (policy(), ["format", "best", "candidates", "evals", "consistency"]),
        (
            environment(),
            [
                *("format", "placement", "castling", "en_passant"),
                *("halfmove", "fullmove", "outcome", "exact"),
            ],
        ),
        (problem(Solution(fen=START, points={"e2e4": 1.0})), ["format", "points"]),
    ],
)
def test_malformed_earns_nothing_and_names_every_component(what: Problem, names: list[str]) -> None:
    """0.00 for what is not of the grammar, with the same components that an answer has."""
    reward = judge(what, "I resign.")
    assert (reward.value, reward.score01) == (0.0, 0.0)
    assert list(reward.components) == names
    assert "grammar" in reward.evidence["why"]


def test_an_answer_that_was_cut_off_is_malformed() -> None:
    """Without the end of text by the token limit even the right line earns nothing."""
    line, state = policy_text_of(VALUES), environment_text(transition(START, "e2e4"))
    assert judge(policy(), line).value == 1.0
    for what, text in ((policy(), line), (environment(), state)):
        reward = judge(what, text, finish="length")
        assert reward.value == 0.0
        assert "token limit" in reward.evidence["why"]


def test_both_tasks_in_both_profiles() -> None:
    """An answer is right in its own profile; the canonical one does not read padding."""
    padded = policy_text_of(VALUES, "rookworld")
    assert judge(policy(), padded, profile="rookworld").value == 1.0
    assert judge(policy(), padded).value == 0.0
    state = environment_text(transition(START, "e2e4"))
    assert judge(environment(), state, profile="rookworld").value == 1.0
    assert judge(environment(), state, exact=True).value == 1.0


def test_few_legal_moves_want_few_candidates() -> None:
    """Of two legal moves two candidates are due, and five are malformed."""
    moves = sorted(move.uci() for move in chess.Board(ENDING).legal_moves)
    assert len(moves) == 2
    values = ActionValues(fen=ENDING, moves=[(uci, "cp", -n) for n, uci in enumerate(moves)])
    assert judge(policy(values, ENDING), policy_text_of(values)).value == 1.0
    five = policy_text((moves * 5)[:5], ["0.00"] * 5, moves[0])
    assert judge(policy(values, ENDING), five).value == 0.0


def test_other_payloads_are_a_mistake_of_the_caller() -> None:
    """A problem of another task is refused, not scored."""
    with pytest.raises(TypeError, match="not a problem of the chess task"):
        judge(Problem(id="p", prompt=(), payload={}), "")


def test_verdicts_are_not_kept() -> None:
    """A verdict is found sooner than it could be looked up: no key."""
    reward = ChessReward(ChessConfig(), BuildContext())
    assert reward.verdict_key(policy(), Trajectory.from_text("p", "x")) is None


def unknown(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Problem:
    """A position of which no table knows anything: an empty cache, odd clocks."""
    monkeypatch.setenv("RLVR_CACHE_DIR", str(folder))
    return policy(None, START.replace("0 1", "11 77"))


def test_values_come_from_the_engine_where_none_are_given(
    stockfish: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A position without values is searched, and each choice is paid by its regret."""
    what = unknown(monkeypatch, tmp_path)
    options = {"nodes": QUICK, "engines": 1}
    line = " e2e4 d2d4 g1f3 c2c4 g2g3 E: 0.30 0.30 0.30 0.30 0.30 B: {}"
    good = judge(what, line.format("e2e4"), **options)
    bad = judge(what, line.format("g2g4"), **options)
    assert good.value - bad.value > 0.3
    assert bad.evidence["regret"] > 0.05
    assert "Stockfish" in good.evidence["engine"]


def test_malformed_answers_need_no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the grammar refuses is refused before anything is searched for."""
    what = unknown(monkeypatch, tmp_path)
    assert judge(what, "junk", engine=str(tmp_path / "none")).value == 0.0


def test_a_missing_engine_is_no_reward(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Exit 4, never a number."""
    what = unknown(monkeypatch, tmp_path)
    with pytest.raises(PrerequisiteError):
        judge(what, policy_text_of(VALUES), engine=str(tmp_path / "none"))


def test_a_broken_engine_is_no_reward(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An engine that dies at every search is a failed verification, never a number."""
    what = unknown(monkeypatch, tmp_path)
    says = 'uci) echo "id name Fake"; echo uciok;;\nisready) echo readyok;;\nquit) exit;;\n'
    loop = f'while read -r line; do case "$line" in\n{says}go*) exit 1;;\nesac; done\n'
    engine = script(tmp_path, loop)
    with pytest.raises(VerifierError):
        judge(what, policy_text_of(VALUES), engine=str(engine), any_engine=True)


def test_readers_agree_with_the_reward() -> None:
    """A line that parses earns at least the format's share; one that does not earns nothing."""
    for text in (policy_text_of(VALUES), policy_text_of(VALUES) + " "):
        is_line = parse_policy(text, 5) is not None
        assert (judge(policy(), text).value > 0) == is_line
