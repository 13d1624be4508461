"""Answers whose verdict is known: what `rlvr audit` puts to the reward."""

from __future__ import annotations

import random
from collections.abc import Iterator

from attrs import evolve

from rlvr import Probe, Problem, Trajectory
from rlvr_chess.problem import right_answer
from rlvr_chess.questions.grammar import Profile, environment_text, policy_text
from rlvr_chess.questions.records import EnvironmentStep, Solution
from rlvr_chess.questions.transition import LEGAL, State, count_of, legal_moves, transition
from rlvr_chess.rewards.solution import points
from rlvr_chess.values import BAND, ActionValues

_ROWS = "12345678"


def probes(
    problem: Problem, values: ActionValues | None, profile: Profile, *, count: int, seed: int
) -> Iterator[Probe]:
    """
    Wrong answers, the trivial ones first, then about `count` small changes of the right one.

    `values` are those of the position, None where no table holds it: what needs them is left out.
    """
    payload = problem.payload
    right = right_answer(payload, profile, values)
    for kind, text in [("empty", ""), ("initial", problem.prompt[-1].content)]:
        yield _probe(problem, kind, text)
    if right is not None:
        yield _probe(problem, "reference", right, is_right=True)
        yield _probe(problem, "text before", f" x{right}")
        yield _probe(problem, "text behind", f"{right} B: a1a1")
        yield _probe(problem, "cut", right[: len(right) // 2])
    if isinstance(payload, EnvironmentStep):
        made = _steps(payload)
    else:
        made = _lines(payload.fen, _wrong_move(payload, values), profile)
    for kind, text in made:
        if text != right:
            yield _probe(problem, kind, text)
    if right is not None:
        yield from _mutants(problem, right, count, seed)


def _probe(problem: Problem, kind: str, text: str, *, is_right: bool = False) -> Probe:
    trajectory = Trajectory.from_text(problem.id, text)
    return Probe(kind=kind, trajectory=trajectory, is_right=is_right, note=text)


def _steps(step: EnvironmentStep) -> Iterator[tuple[str, str]]:
    """Copies of the input, and right boards with something else wrong."""
    truth = transition(step.fen, step.uci)
    copied = State(step.fen, LEGAL, "0", "0")
    yield "copied input", environment_text(copied)
    side = {"w": "b", "b": "w"}
    board, turn, rest = step.fen.split(" ", 2)
    flipped = evolve(copied, fen=f"{board} {side[turn]} {rest}")
    yield "copied input, side changed", environment_text(flipped)
    for place, name in ((4, "halfmove clock"), (5, "move number")):
        fields = truth.fen.split(" ")
        fields[place] = str(int(fields[place]) + 1)
        yield f"wrong {name}", environment_text(evolve(truth, fen=" ".join(fields)))
    for reward in ("1.0", "0.5", LEGAL, "-1.0"):
        yield "wrong reward", environment_text(evolve(truth, reward=reward))
    other = "0" if truth.truncated == "1" else "1"
    yield "wrong flag", environment_text(evolve(truth, truncated=other))


def _lines(fen: str, wrong: str, profile: Profile) -> Iterator[tuple[str, str]]:
    """Lines whose choice is illegal, or known to be bad."""
    legal = sorted(legal_moves(fen))
    k = count_of(fen)
    zeros = ["0.00"] * k
    illegal = next(
        f"a1{file}{row}" for file in "bcdefgh" for row in _ROWS if f"a1{file}{row}" not in legal
    )
    yield "illegal move", policy_text(legal[:k], zeros, illegal, profile)
    yield "copied square", policy_text(legal[:k], zeros, legal[0][:2] * 2, profile)
    if wrong:
        candidates = [wrong, *(move for move in legal if move != wrong)][:k]
        yield "bad move", policy_text(candidates, zeros, wrong, profile)
        yield "bad move, praised", policy_text(candidates, ["9.99", *zeros[1:]], wrong, profile)
        yield "bad move, repeated", policy_text([wrong] * k, zeros, wrong, profile)


def _wrong_move(payload: object, values: ActionValues | None) -> str:
    """A legal move that is not good enough; "" if there is none or no values are known."""
    if isinstance(payload, Solution):
        legal = sorted(legal_moves(payload.fen))
        worst = min(legal, key=lambda uci: points(payload, uci))
        return worst if points(payload, worst) < 1.0 else ""
    if values is None:
        return ""
    worst = min(values.table, key=values.table.__getitem__)
    return worst if values.regret(worst) > BAND else ""


def _mutants(problem: Problem, right: str, count: int, seed: int) -> Iterator[Probe]:
    """The state with one character changed; a line whose choice has no square of its own."""
    rng = random.Random(f"{seed} {problem.id}")
    is_step = isinstance(problem.payload, EnvironmentStep)
    made: set[str] = {right}
    for _ in range(count):
        place = rng.randrange(len(right))
        if is_step:
            text = right[:place] + rng.choice("12345678pnbrqkPNBRQKw-+ ") + right[place + 1 :]
        else:
            head, _, best = right.rpartition("B: ")
            text = f"{head}B: {best[:2]}{best[:2]}"
            text = text if place % 2 else right[:place] + "~" + right[place + 1 :]
        if text not in made:
            made.add(text)
            yield evolve(_probe(problem, "mutant", text), is_mutant=True)
