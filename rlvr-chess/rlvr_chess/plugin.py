"""What rlvr-chess offers. Imports nothing heavy: parts are named, and imported when chosen."""

from __future__ import annotations

from collections.abc import Iterable

from rlvr import hookimpl
from rlvr.specs import Check, CommandSpec, RewardSpec, TaskSpec

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
"""What suits the starter model on the starter positions: learns within minutes on two cores."""

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
            starter="rlvr_chess.starter.model_path:starter_model",
            presets={"starter": STARTER},
            values={"sampler.max_tokens": LONGEST},
        )
    ]


@hookimpl
def rlvr_rewards() -> Iterable[RewardSpec]:
    """One reward: structure first, then content."""
    return [
        RewardSpec(
            name="chess",
            target="rlvr_chess.reward:ChessReward",
            summary="Format and content, judged by the rules and by Stockfish's action values",
            config="rlvr_chess.config:ChessConfig",
            namespace="chess",
        )
    ]


@hookimpl
def rlvr_checks() -> Iterable[Check]:
    """What verification needs of the machine: the engine only where a table misses."""
    yield Check(
        name="chess-stockfish",
        target="rlvr_chess.engine.checks:stockfish",
        summary="the engine that scores positions the tables do not hold",
        required=False,
    )


@hookimpl
def rlvr_commands() -> Iterable[CommandSpec]:
    """Subcommands of `rlvr chess`: tables, games, boards."""
    return [
        CommandSpec(
            name="build-table",
            target="rlvr_chess.tables.build:build_table",
            summary="Score every legal move of positions and keep the tables",
        ),
        CommandSpec(
            name="verify-table",
            target="rlvr_chess.tables.verify:verify_table",
            summary="Search positions of a table again: every value must come out the same",
        ),
        CommandSpec(
            name="generate",
            target="rlvr_chess.generate:generate",
            summary="Write training rows of positions, in either profile",
        ),
        CommandSpec(
            name="selfplay",
            target="rlvr_chess.selfplay.command:selfplay",
            summary="Let a model play itself; write the games as PGN",
        ),
        CommandSpec(
            name="play",
            target="rlvr_chess.human.play:play",
            summary="Play against a model in the terminal",
            is_interactive=True,
        ),
        CommandSpec(
            name="board",
            target="rlvr_chess.human.board:board",
            summary="Draw positions of FEN or PGN as Unicode or SVG",
        ),
    ]
