"""The parts of rlvr-chess, by name. Imports nothing heavy: a part is imported when chosen."""

from __future__ import annotations

from collections.abc import Iterable

from rlvr import Check, CommandSpec, RewardSpec, TaskSpec, hookimpl

RLVR_API = 1

STARTER = {
    "run.steps": 100,
    "train.problems": 48,
    "train.lr": 1e-4,
    "train.warmup": 3,
    "train.decay": "cosine-linear",
    "sampler.group_size": 8,
    "sampler.max_tokens": 96,
    "eval.samples": 1,
    "checkpoint.every": 50,
}
"""Values for the starter model on the starter positions: it learns in minutes on two cores."""

ROOKWORLD = {
    "chess.profile": "rookworld",
    "run.steps": 150,
    "train.problems": 8,
    "train.lr": 1e-5,
    "train.warmup": 20,
    "train.decay": "cosine-linear",
    "sampler.group_size": 8,
    "sampler.max_tokens": 160,
}
"""The predecessor's wording and step of 8 prompts by 8 answers, for its 124M model on one GPU."""

LONGEST = 160
"""Tokens that an answer needs at most, in either profile; the starter model's context is 256."""


@hookimpl
def rlvr_tasks() -> Iterable[TaskSpec]:
    """One task with two kinds of problems: the embedded positions, or any chess data set."""
    return [
        TaskSpec(
            name="chess",
            target="rlvr_chess.task:ChessTask",
            summary="Choose a move and say what it is worth; say what a move does to the board",
            config="rlvr_chess.config:ChessConfig",
            namespace="chess",
            reward="chess",
            starter="rlvr_chess.starter:starter_model",
            presets={"starter": STARTER, "rookworld": ROOKWORLD},
            values={"sampler.max_tokens": LONGEST},
            data="puzzles as CSV, https://database.lichess.org/#puzzles",
        )
    ]


@hookimpl
def rlvr_rewards() -> Iterable[RewardSpec]:
    """One reward: structure first, then content."""
    return [
        RewardSpec(
            name="chess",
            target="rlvr_chess.rewards.reward:ChessReward",
            summary="Format and content, judged by the rules and by Stockfish's action values",
            config="rlvr_chess.config:ChessConfig",
            namespace="chess",
        )
    ]


@hookimpl
def rlvr_checks() -> Iterable[Check]:
    """Check of the machine: the engine is needed only for positions that no table holds."""
    yield Check(
        name="chess-stockfish",
        target="rlvr_chess.doctor:stockfish",
        summary="the engine that scores positions the tables do not hold",
        required=False,
    )


COMMANDS = {
    "build-table": "Score every legal move of positions and keep the tables",
    "verify-table": "Search positions of a table again: every value must come out the same",
    "generate": "Write training rows of positions, in either profile",
    "selfplay": "Let a model play itself; write the games as PGN",
    "play": "Play against a model in the terminal",
    "board": "Draw positions of FEN or PGN as Unicode or SVG",
}
"""Subcommands of `rlvr chess`: a module and a function of their name each."""


@hookimpl
def rlvr_commands() -> Iterable[CommandSpec]:
    """Subcommands of `rlvr chess`: tables, games, boards."""
    for name, summary in COMMANDS.items():
        place = name.replace("-", "_")
        yield CommandSpec(
            name=name,
            target=f"rlvr_chess.commands.{place}:{place}",
            summary=summary,
            is_interactive=name == "play",
        )
