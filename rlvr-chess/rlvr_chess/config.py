"""Options of the chess task and its reward: `chess.KEY=VALUE`."""

from __future__ import annotations

from typing import Literal, cast

from attrs import frozen
from attrs.validators import ge, le

from rlvr import option

Profile = Literal["canonical", "rookworld"]
"""Wording of prompts and answers: ours, or the padding and number format of the predecessor."""


@frozen(kw_only=True)
class ChessConfig:
    """Questions, their wording, and limits of the engine."""

    profile: str = option(
        "canonical",
        "Wording of prompts and answers; rookworld: for RookWorld's weights",
        choices=("canonical", "rookworld"),
    )
    tasks: str = option(
        "both", "Kinds of problems in the run", choices=("both", "policy", "environment")
    )
    mix: float = option(
        0.5, "Share of policy problems in a step, where both are asked", validator=[ge(0), le(1)]
    )
    holdout: float = option(
        0.2, "Share of positions (by hash) that is held out as split test", validator=[ge(0), le(1)]
    )
    history: int = option(
        0, "Last moves that an environment prompt shows", unit="plies", validator=[ge(0), le(10)]
    )
    strict: bool = option(False, "Refuse a data set that has an unusable row")
    exact: bool = option(False, "Environment reward is 1 for the exact answer, else 0")
    nodes: int = option(100_000, "Nodes of a search of the engine", validator=ge(1))
    second_nodes: int = option(
        1_000_000,
        "Nodes of the search behind a second opinion; 0: rules and tables alone",
        validator=ge(0),
    )
    engine: str = option("", "Engine binary; empty: stockfish where it is usually installed")
    engines: int = option(0, "Engine processes; 0: cores less one", validator=ge(0))
    tables: str = option("", "Action-value tables (file); empty: the shipped ones and the cache")
    any_engine: bool = option(
        False, "Use this machine's engine beside tables that another build made"
    )
    eval_games: int = option(
        200,
        "Most games of `rlvr eval` in each match of the Elo ladder, of self-play (at most 100) and "
        "of the engine, for rollouts, if the data set has no games; 0: none",
        validator=ge(0),
    )
    eval_limit: int = option(
        0,
        "Most problems of each kind, and most rollouts, in the figures of `rlvr eval`; 0: all",
        validator=ge(0),
    )
    report: str = option("", "Folder for the report of `rlvr eval`: figures, boards, games")
    selfplay_games: int = option(
        0, "Games a step that the policy plays to find further positions; 0: none", validator=ge(0)
    )
    selfplay_plies: int = option(
        80, "Most half-moves of such a game after its opening", unit="plies", validator=ge(1)
    )
    selfplay_temperature: float = option(1.0, "Temperature of self-play's moves", validator=ge(0))
    selfplay_blunders: float = option(
        0.1, "Share of self-play's moves that are drawn at random", validator=[ge(0), le(1)]
    )
    selfplay_keep: int = option(
        512, "Positions of self-play that are kept to train on", validator=ge(1)
    )
    selfplay_age: int = option(
        40, "Age at which a position of self-play is dropped", unit="steps", validator=ge(1)
    )

    @property
    def wording(self) -> Profile:
        """The profile as its type."""
        return cast(Profile, self.profile)
