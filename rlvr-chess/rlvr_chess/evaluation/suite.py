"""The whole suite, part after part; docs/chess/evaluation.md defines every number.

A part without material (no puzzles, no games, no engine) leaves its figures out and says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Protocol

from attrs import evolve

from rlvr import ConfigError, Metric, Policy, PrerequisiteError, Problem, counted, seed_of
from rlvr_chess.asking import answer_text
from rlvr_chess.config import ChessConfig
from rlvr_chess.engine.pool import EngineConfig, EnginePool
from rlvr_chess.evaluation import contamination, environment, solving
from rlvr_chess.evaluation import policy as policy_figures
from rlvr_chess.evaluation.bench import Bench, category, sorted_out
from rlvr_chess.evaluation.environment import Foretold, without_rules
from rlvr_chess.evaluation.games import ladder, rollout
from rlvr_chess.evaluation.games.ladder import MODES, climb
from rlvr_chess.evaluation.policy import Judged
from rlvr_chess.evaluation.report import write_report
from rlvr_chess.evaluation.statistics import left_out
from rlvr_chess.fen import four_fields
from rlvr_chess.questions.grammar import parse_environment
from rlvr_chess.questions.transition import transition
from rlvr_chess.rows import GameLine, Material
from rlvr_chess.selfplay.openings import Opening, book
from rlvr_chess.splits import split_of
from rlvr_chess.tables.file import shipped_positions, shipped_questions
from rlvr_chess.tables.store import TableStore
from rlvr_chess.values import ActionValues

HELD_OUT = "test"
WALKS = 200
"""Games that the rollout is of, at most."""


class ChessProblems(Protocol):
    """What the suite needs of the task."""

    config: ChessConfig

    @property
    def material(self) -> Material: ...

    def problems(self, split: str) -> Sequence[Problem]: ...


async def measure(
    task: ChessProblems, policy: Policy, *, split: str, seed: int
) -> AsyncIterator[Metric]:
    """
    Every figure of section "Numbers" of docs/chess/evaluation.md, as soon as it is there.

    The policy is asked greedily unless a figure says otherwise; `seed` is of all that is drawn.
    """
    config, problems = task.config, list(task.problems(split))
    bench = Bench(
        policy=policy,
        config=config,
        questions=sorted_out(problems, config.eval_limit),
        material=task.material,
        split=split,
        seed=seed,
    )
    figures = []
    for part in (_policy, _environment, _puzzles, _suites, _rollout, _legality, _elo):
        for figure in await part(bench):
            figures.append(figure)
            yield figure
    for figure in _contamination(task, bench):
        figures.append(figure)
        yield figure
    if config.report:
        write_report(Path(config.report), bench, figures)


async def _policy(bench: Bench) -> list[Metric]:
    """Best move, regret and what is said about moves; greedy, then at temperature 1."""
    values, missing = await _values(bench)
    if not values:
        return [left_out("policy", missing or "no position to choose a move in")]
    problems = [p for p in bench.questions.policy if p.id in values]
    fens, player = [p.payload.fen for p in problems], bench.player
    judged = [
        Judged(values=values[p.id], answer=line, labels=p.labels)
        for p, line in zip(problems, await player.lines(fens), strict=True)
    ]
    bench.found.policy.update((p.id, one) for p, one in zip(problems, judged, strict=True))
    seed = seed_of(bench.seed, "sampled")
    drawn = await player.lines(fens, temperature=1.0, seed=seed)
    sampled = [evolve(one, answer=line) for one, line in zip(judged, drawn, strict=True)]
    figures = policy_figures.greedy_figures(judged) + policy_figures.sampled_figures(sampled)
    return [*figures, *([left_out("policy/left_out", missing)] if missing else [])]


async def _values(bench: Bench) -> tuple[dict[str, ActionValues], str]:
    """The action values by problem id, and which are missing for want of an engine."""
    found: dict[str, ActionValues] = {}
    async with TableStore.of(bench.config) as store:
        for problem in bench.questions.policy:
            values = problem.payload.values or store.peek(problem.payload.fen)
            if values is not None:
                found[problem.id] = values
        rest = [p for p in bench.questions.policy if p.id not in found]
        try:
            searched = await asyncio.gather(*(store.values(p.payload.fen) for p in rest))
        except (PrerequisiteError, ConfigError) as error:
            why = str(error).splitlines()[0]
            return found, f"{counted(len(rest), 'position')} without values: {why}"
    found.update((p.id, values) for p, values in zip(rest, searched, strict=True))
    return {p.id: found[p.id] for p in bench.questions.policy}, ""


async def _environment(bench: Bench) -> list[Metric]:
    """Figures of the environment task: the board after a move."""
    problems = bench.questions.environment
    if not problems:
        return [left_out("environment", "no move to foretell")]
    prompts = ["".join(message.content for message in p.prompt) for p in problems]
    answers = await bench.player.texts(prompts)
    for problem, answer in zip(problems, answers, strict=True):
        text = answer_text(answer)
        bench.found.environment[problem.id] = Foretold(
            truth=transition(problem.payload.fen, problem.payload.uci),
            answer=None if text is None else parse_environment(text, bench.config.wording),
            floor=without_rules(problem.payload.fen, problem.payload.uci),
            category=category(problem),
        )
    return environment.figures(list(bench.found.environment.values()))


async def _puzzles(bench: Bench) -> list[Metric]:
    """Tactics by rating."""
    problems = bench.questions.puzzles
    if not problems:
        return [left_out("puzzles", "no puzzles in the data set")]
    tried = await solving.attempts(bench.player, [p.payload for p in problems])
    bench.found.puzzles.update((p.id, one) for p, one in zip(problems, tried, strict=True))
    return solving.puzzle_figures(tried)


async def _suites(bench: Bench) -> list[Metric]:
    """Test suites."""
    problems = bench.questions.suites
    if not problems:
        return [left_out("suites", "no test suite (EPD) in the data set")]
    moves = await bench.player.moves([p.payload.fen for p in problems])
    for problem, move in zip(problems, moves, strict=True):
        bench.found.suites[problem.id] = solving.Tried(position=problem.payload, move=move)
    return solving.suite_figures(list(bench.found.suites.values()))


async def _rollout(bench: Bench) -> list[Metric]:
    """Number of plies of a real game that the policy foretells exactly."""
    most = min(WALKS, bench.config.eval_limit or WALKS)
    games = [(g.start_fen, g.moves) for g in bench.material.games if _is_of(g, bench.split)]
    note = ""
    if not any(len(moves) >= rollout.PLIES for _, moves in games):
        why = f"no game of {rollout.PLIES} plies (PGN) in split '{bench.split}'"
        count = min(rollout.GAMES, bench.config.eval_games, most)
        if not count:
            return [left_out("rollout", f"{why}; chess.eval_games=0")]
        try:
            async with EnginePool(EngineConfig.of(bench.config)) as pool:
                played = await rollout.engine_games(pool, 2 * rollout.PLIES, count)
        except PrerequisiteError as error:
            return [left_out("rollout", f"{why}; {str(error).splitlines()[0]}")]
        games, note = [(game.start_fen, game.moves) for game in played], rollout.NOTE
    walks = [rollout.walk_of(fen, moves, str(place)) for place, (fen, moves) in enumerate(games)]
    exact = await rollout.exact_plies(
        bench.player,
        [walk for walk in walks if walk is not None][:most],
        history=bench.config.history,
    )
    return rollout.figures(exact, note)


async def _legality(bench: Bench) -> list[Metric]:
    """Self-play up to the first illegal move."""
    count = min(ladder.LEGALITY_GAMES, bench.config.eval_games)
    if not count:
        return [left_out("selfplay", "chess.eval_games=0")]
    games = await ladder.legality_games(bench.player, count, seed=seed_of(bench.seed, "legality"))
    bench.found.games["selfplay"] = games
    return ladder.legality_figures(games)


async def _elo(bench: Bench) -> list[Metric]:
    """Matches against the ladder, with both rules for illegal moves."""
    if bench.config.eval_games < 2:
        few = "; an opening takes two games" if bench.config.eval_games else ""
        return [left_out("elo", f"chess.eval_games={bench.config.eval_games}{few}")]
    openings = [
        Opening(name=f"line {line.id}", moves=line.moves, start_fen=line.start_fen)
        for line in bench.material.openings
        if _is_of(line, bench.split)
    ]
    figures = []
    try:
        async with EnginePool(EngineConfig.of(bench.config)) as pool:
            for mode in MODES:
                found, match = await climb(
                    bench.player,
                    pool,
                    openings or book(),
                    mode=mode,
                    games=bench.config.eval_games,
                    seed=seed_of(bench.seed, "elo"),
                )
                bench.found.games[f"elo-{mode}"] = match.games
                figures += found
    except PrerequisiteError as error:
        return [left_out("elo", str(error).splitlines()[0])]
    return figures


def _contamination(task: ChessProblems, bench: Bench) -> list[Metric]:
    """The share of positions that were trained on, and the results on the others."""
    if not bench.questions.every:
        return []
    rows = [(values.fen, split) for values, split in shipped_positions()]
    rows += [(step.fen, split) for step, split in shipped_questions()]
    shipped = contamination.seen_positions(
        fen
        for fen, split in rows
        if (split or split_of(four_fields(fen), task.config.holdout)) != HELD_OUT
    )
    told = [f"{len(shipped)} shipped training positions"]
    own: frozenset[str] = frozenset()
    if bench.split == HELD_OUT:
        own = contamination.seen_positions(p.payload.fen for p in task.problems("train"))
        if further := own - shipped:
            told.append(f"{len(further)} further ones of split 'train'")
    seen = contamination.Seen(shipped | own, contamination.read_hashes(contamination.STARTER))
    if pretrained := seen.hashes - set(map(contamination.hash_of, seen.exact)):
        told.append(f"{len(pretrained)} that the starter model was pretrained on")
    note = f"first four fields; each position once; against {' and '.join(told)}"
    return [
        *contamination.figures(bench.questions.every, seen, note),
        *contamination.unseen_figures(bench.questions.every, bench.found, seen),
    ]


def _is_of(line: GameLine, split: str) -> bool:
    return split == "all" or not line.split or line.split == split
