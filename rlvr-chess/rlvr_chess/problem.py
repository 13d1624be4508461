"""From a row to a problem: its prompt, its labels, what decides its verdict, the right answer."""

from __future__ import annotations

import hashlib

from rlvr import Message, Problem
from rlvr_chess.fen import four_fields
from rlvr_chess.questions.categories import (
    category_of,
    colour_of,
    phase_of,
    ply_bucket,
    rating_bucket,
)
from rlvr_chess.questions.grammar import (
    Profile,
    environment_prompt,
    environment_text,
    eval_text,
    policy_prompt,
    policy_text,
    policy_text_of,
)
from rlvr_chess.questions.records import EnvironmentStep, Payload, PolicyPosition, Solution
from rlvr_chess.questions.transition import count_of, legal_moves, transition
from rlvr_chess.rewards.solution import points
from rlvr_chess.rows.row import Row
from rlvr_chess.values import ActionValues


def problem_of(row: Row, split: str, *, profile: Profile, history: int) -> Problem:
    """The problem of a row; an environment prompt shows the last `history` moves."""
    return Problem(
        id=row.id,
        prompt=(Message(role="user", content=prompt_of(row.payload, profile, history)),),
        split=split,
        labels=labels_of(row.payload),
        payload=row.payload,
        digest=digest_of(row.payload, profile, history),
    )


def prompt_of(payload: Payload, profile: Profile, history: int = 0) -> str:
    """The question as text; the answer goes on right behind it."""
    if isinstance(payload, EnvironmentStep):
        shown = payload.history[-history:] if history else ()
        return environment_prompt(payload.fen, payload.uci, shown, profile)
    return policy_prompt(payload.fen, profile)


def labels_of(payload: Payload) -> dict[str, str]:
    """Labels that results are reported by; docs/chess.md lists them."""
    fen = payload.fen
    labels = {
        "colour": colour_of(fen),
        "phase": phase_of(fen),
        "ply": ply_bucket(fen),
        "family": four_fields(fen),  # a position is in one split, whatever is asked about it
    }
    if isinstance(payload, EnvironmentStep):
        category = payload.category or category_of(fen, payload.uci)
        return {"task": "environment", "category": category, **labels}
    if isinstance(payload, PolicyPosition):
        return {"task": "policy", **labels} | ({"source": payload.source} if payload.source else {})
    rating = {"rating": rating_bucket(payload.rating)} if payload.rating else {}
    return {"task": "solve", "suite": payload.suite, **labels, **rating}


def digest_of(payload: Payload, profile: Profile, history: int) -> str:
    """sha256 over everything that decides a verdict, and the wording."""
    facts: tuple[object, ...]
    if isinstance(payload, EnvironmentStep):
        facts = (payload.fen, payload.uci, payload.history, history)
    elif isinstance(payload, PolicyPosition):
        facts = (payload.fen, payload.values.moves if payload.values else None)
    else:
        facts = (payload.fen, sorted(payload.points.items()), payload.avoid, payload.any_mate)
    text = repr((type(payload).__name__, profile, facts))
    return hashlib.sha256(text.encode()).hexdigest()


def right_answer(
    payload: Payload, profile: Profile, values: ActionValues | None = None, seed: int = 0
) -> str | None:
    """
    The answer that earns the full reward, None for a position without known values.

    `values` are what a table says of the position, where the payload does not. `seed` is of the
    order of the candidates in profile `rookworld`.
    """
    if isinstance(payload, EnvironmentStep):
        return environment_text(transition(payload.fen, payload.uci))
    if isinstance(payload, Solution):
        return _solution(payload, profile, values)
    values = payload.values or values
    if values is None:
        return None
    return policy_text_of(values, profile, seed if profile == "rookworld" else None)


def _solution(solution: Solution, profile: Profile, values: ActionValues | None) -> str:
    """The best-rewarded move first among the candidates; evaluations 0.00 if unknown."""
    legal = sorted(legal_moves(solution.fen))
    best = max(legal, key=lambda uci: points(solution, uci))
    moves = legal if values is None else values.ranked
    candidates = [best, *(move for move in moves if move != best)][: count_of(solution.fen)]
    evals = [eval_text(values, m, profile) if values is not None else "0.00" for m in candidates]
    return policy_text(candidates, evals, best, profile)
