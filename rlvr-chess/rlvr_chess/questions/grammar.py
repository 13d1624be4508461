"""The wording of prompts and answers, and the strict reading of answers (docs/chess/formats.md).

An answer is read by a full match: nothing before it, nothing after it, ASCII digits only. Two
profiles: `canonical` is ours; `rookworld` is the predecessor's padding and number format, so that
its public weights can be trained. There, and only there, runs of spaces count as one.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from functools import cache

from attrs import frozen

from rlvr_chess.config import Profile
from rlvr_chess.fen import FEN, board_squares
from rlvr_chess.questions.transition import UCI, State
from rlvr_chess.values import ActionValues, win_probability

_EVAL = {
    "canonical": r"(?:-?[0-9]{1,4}\.[0-9]{2}|-?#[1-9][0-9]{0,3})",
    "rookworld": r"-?[0-9]{1,4}\.[0-9]{1,2}",
}
_REWARD = {
    "canonical": r"1\.0|0\.5|0\.001|-1\.0",
    "rookworld": r"1(?:\.0)?|0\.5|0\.001|-1(?:\.0)?",
}
_END = {"canonical": "", "rookworld": " *"}  # its environment rows ended in a space
_ENVIRONMENT = {
    profile: re.compile(rf"({FEN})\+({reward})\+([01])\+([01]){_END[profile]}")
    for profile, reward in _REWARD.items()
}
_SPELLING = {"1": "1.0", "-1": "-1.0"}


@frozen
class PolicyAnswer:
    """A line that was read: k candidates, k evaluations as they were written, one choice."""

    moves: tuple[str, ...]
    evals: tuple[str, ...]
    best: str


def policy_prompt(fen: str, profile: Profile = "canonical") -> str:
    """The question for a move; the answer goes on right behind it."""
    return f"P: {fen:90}M:" if profile == "rookworld" else f"P: {fen} M:"


def policy_text(
    moves: Sequence[str], evals: Sequence[str], best: str, profile: Profile = "canonical"
) -> str:
    """An answer with these candidates, their evaluations as texts, and the choice."""
    if profile == "rookworld":
        return f" {' '.join(moves):30}E: {' '.join(evals):40}B: {best}"
    return f" {' '.join(moves)} E: {' '.join(evals)} B: {best}"


def policy_text_of(
    values: ActionValues, profile: Profile = "canonical", shuffle_seed: int | None = None
) -> str:
    """
    The right line: the k best moves in the engine's order, their values, the best one.

    The moves are shuffled where there is a seed, and in `rookworld`, as its rows are (seed 0).
    """
    moves = list(values.ranked[: values.count])
    best = moves[0]
    if profile == "rookworld" or shuffle_seed is not None:
        random.Random(f"{shuffle_seed or 0} {values.fen}").shuffle(moves)
    return policy_text(moves, [eval_text(values, move, profile) for move in moves], best, profile)


def eval_text(values: ActionValues, uci: str, profile: Profile = "canonical") -> str:
    """
    The score of a move as an answer of the profile writes it.

    In `rookworld`: pawns as Python prints them, `999.99` for mate in one, `-999.97` for being
    mated in three.
    """
    if profile == "canonical":
        return values.score_text(uci)
    kind, value = values.score(uci)
    if kind == "mate":
        value = 100_000 - value if value > 0 else -100_000 - value
    return str(value / 100)


def environment_prompt(
    fen: str, uci: str, history: Sequence[str] = (), profile: Profile = "canonical"
) -> str:
    """
    The question for the state after a move; the answer goes on right behind it.

    `history` holds the last moves, the current one last (at most ten are shown). `rookworld`
    always shows at least the move itself.
    """
    shown = list(history)[-10:]
    if profile == "rookworld" and not shown:
        shown = [uci]
    return "+".join([f"A: {fen}", uci, *([" ".join(shown)] if shown else []), ""])


def environment_text(truth: State) -> str:
    """The right answer; both profiles write it alike."""
    return f"{truth.fen}+{truth.reward}+{truth.terminated}+{truth.truncated}"


def parse_policy(text: str, count: int, profile: Profile = "canonical") -> PolicyAnswer | None:
    """The line that `text` is, None where it is none with exactly `count` candidates."""
    match = _policy(count, profile).fullmatch(text)
    if match is None:
        return None
    return PolicyAnswer(tuple(match[1].split()), tuple(match[2].split()), match[3])


def parse_environment(text: str, profile: Profile = "canonical") -> State | None:
    """The state that `text` is, None where it is none or its board has not 8x8 squares."""
    match = _ENVIRONMENT[profile].fullmatch(text)
    if match is None or not board_squares(match[2]):
        return None
    return State(match[1], _SPELLING.get(match[3], match[3]), match[4], match[5])


def eval_win_probability(text: str) -> float:
    """Win probability (0..1) of an evaluation as it was written; "-0.00" is 0.5 too."""
    if "#" in text:
        return win_probability("mate", -1 if text[0] == "-" else 1)
    return win_probability("cp", round(float(text) * 100))


@cache
def _policy(count: int, profile: Profile) -> re.Pattern[str]:
    gap = " +" if profile == "rookworld" else " "

    def list_of(entry: str) -> str:
        return f"{gap}({entry}(?:{gap}{entry}){{{count - 1}}})"

    return re.compile(
        f"{list_of(UCI.pattern)}{gap}E:{list_of(_EVAL[profile])}{gap}B:{gap}({UCI.pattern})"
    )
