"""
Rewards and transition checks of rlvr-chess a second and core, beside plain python-chess.

    python benchmarks/bench_chess_rewards.py [--positions 400] [--group 8] [--rounds 5] [--json]

Positions of random games, a different one each time (`transition`, `policy`, `environment`) or
`--group` answers to each (`... in groups`, as a run has them). The plain way reads the FEN with
python-chess, lists the legal moves, plays, asks for the outcome and writes the FEN; for a policy
line it looks each move up in that list and scores the whole table again. Everything runs in one
thread. Contestants take turns; rates are of CPU time (other work on the machine counts little),
medians over the rounds, ratios within a round. Fails below 2,000 policy rewards or 5,000
transition checks a second and core.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from collections.abc import Callable

import chess

from rlvr import BuildContext, Problem, Trajectory
from rlvr_chess.config import ChessConfig
from rlvr_chess.questions.grammar import environment_text, policy_text_of
from rlvr_chess.questions.records import EnvironmentStep, PolicyPosition
from rlvr_chess.questions.transition import legal_moves, transition
from rlvr_chess.rewards.environment import _squares
from rlvr_chess.rewards.reward import ChessReward
from rlvr_chess.values import BAND, ActionValues, win_probability

LEAST = {"policy": 2000.0, "transition": 5000.0}
"""Target rates, a second and core."""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--positions", type=int, default=400)
    parser.add_argument("--group", type=int, default=8, help="answers to one question")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def questions(count: int) -> list[tuple[str, str]]:
    """Position and move, one in ten illegal, from random games."""
    rng = random.Random(1)
    found = []
    while len(found) < count:
        board = chess.Board()
        for _ in range(rng.randrange(4, 100)):
            if board.is_game_over():
                break
            board.push(rng.choice(list(board.legal_moves)))
        if board.legal_moves.count() > 5 and not board.is_game_over():
            move = rng.choice(list(board.legal_moves)).uci()
            found.append((board.fen(), move if rng.random() < 0.9 else "a1a1"))
    return found


def values_of(fen: str) -> ActionValues:
    """A table of all legal moves with made-up scores; what a reward costs does not depend on it."""
    rng = random.Random(fen)
    scores = sorted((rng.randrange(-900, 900) for _ in legal_moves(fen)), reverse=True)
    moves = sorted(legal_moves(fen))
    return ActionValues(
        fen=fen, moves=[(m, "cp", s) for m, s in zip(moves, scores, strict=True)], engine="none"
    )


def plain_transition(fen: str, uci: str) -> tuple[str, str, bool, bool]:
    board = chess.Board(fen)
    try:
        move = chess.Move.from_uci(uci)
    except ValueError:
        return board.fen(), "-1.0", False, True
    if move not in list(board.legal_moves):
        return board.fen(), "-1.0", False, True
    board.push(move)
    outcome = board.outcome()
    reward = "0.001" if outcome is None else "0.5" if outcome.winner is None else "1.0"
    return board.fen(), reward, board.is_game_over(), False


def plain_policy(values: ActionValues, text: str) -> float:
    """Regret and candidates alone: less than the reward gives."""
    board = chess.Board(values.fen)
    legal = [move.uci() for move in board.legal_moves]
    moves, _, rest = text.partition("E:")
    best = rest.partition("B:")[2].strip()
    table = {uci: win_probability(kind, value) for uci, kind, value in values.moves}
    top = sorted(table.values(), reverse=True)
    good = [uci for uci in moves.split() if uci in legal and table[uci] >= top[4] - BAND]
    return (max(table.values()) - table[best] if best in legal else 1.0) + len(good)


def forget() -> None:
    for kept in (transition, legal_moves, _squares):
        kept.cache_clear()


def main() -> None:
    args = parse()
    asked = questions(args.positions)
    tables = [values_of(fen) for fen, _ in asked]
    lines = [policy_text_of(table, shuffle_seed=1) for table in tables]
    states = [environment_text(transition(*step)) for step in asked]
    policy = [
        (Problem(id=str(n), prompt=(), payload=PolicyPosition(fen=table.fen, values=table)), line)
        for n, (table, line) in enumerate(zip(tables, lines, strict=True))
    ]
    environment = [
        (Problem(id=str(n), prompt=(), payload=EnvironmentStep(fen=fen, uci=uci)), state)
        for n, ((fen, uci), state) in enumerate(zip(asked, states, strict=True))
    ]

    def judge(cases: list[tuple[Problem, str]], times: int) -> Callable[[], int]:
        answers = [(p, Trajectory.from_text(p.id, text)) for p, text in cases]

        async def work() -> None:
            async with ChessReward(ChessConfig(), BuildContext()) as reward:
                for problem, answer in answers:
                    for _ in range(times):
                        await reward(problem, answer)

        def run() -> int:
            asyncio.run(work())
            return times * len(cases)

        return run

    def each(call: Callable[[int], object], times: int = 1) -> Callable[[], int]:
        def run() -> int:
            for n in range(len(asked)):
                for _ in range(times):
                    call(n)
            return times * len(asked)

        return run

    contestants = {
        "transition": each(lambda n: transition(*asked[n])),
        "transition in groups": each(lambda n: transition(*asked[n]), args.group),
        "transition, plain": each(lambda n: plain_transition(*asked[n])),
        "policy": judge(policy, 1),
        "policy in groups": judge(policy, args.group),
        "policy, plain": each(lambda n: plain_policy(tables[n], lines[n])),
        "environment": judge(environment, 1),
        "environment in groups": judge(environment, args.group),
    }
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(args.rounds):
        order = list(contestants)
        for name in order[number % len(order) :] + order[: number % len(order)]:
            forget()
            began = time.process_time()
            done = contestants[name]()
            rates[name].append(done / (time.process_time() - began))
    medians = {name: statistics.median(found) for name, found in rates.items()}
    plain = {
        name: rates[f"{name.split(' ')[0]}, plain"]
        for name in rates
        if "plain" not in name and not name.startswith("environment")
    }
    ratios = {
        name: statistics.median(a / b for a, b in zip(rates[name], base, strict=True))
        for name, base in plain.items()
    }
    if args.json:
        print(json.dumps({"per_second": medians, "ratio": ratios}))
    else:
        print(f"{args.positions} positions, groups of {args.group}, {args.rounds} rounds")
        for name, rate in medians.items():
            times = f"{ratios[name]:6.1f}x the plain way" if name in ratios else ""
            print(f"{name:<24}{rate:>10,.0f}/s a core  {times}")
    short = {name: medians[name] for name, least in LEAST.items() if medians[name] < least}
    if short:
        raise SystemExit(f"slower than {LEAST}: {short}")


if __name__ == "__main__":
    main()
