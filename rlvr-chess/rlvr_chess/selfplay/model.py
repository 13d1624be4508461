"""Which model plays: the flags that say so, and the mover it becomes."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
from attrs import frozen

from rlvr.opening import open_policy
from rlvr.parts import Policy
from rlvr.types import SamplingParams
from rlvr_chess.config import ChessConfig
from rlvr_chess.grammar import Profile
from rlvr_chess.selfplay.movers import PolicyMover

LONGEST_LINE = {"canonical": 96, "rookworld": 144}
"""Tokens of a policy line, at most: five moves and five evaluations in any of our tokenizers."""


@frozen(kw_only=True)
class Player:
    """An open model and how it is asked."""

    policy: Policy
    params: SamplingParams
    profile: Profile
    config: ChessConfig
    name: str

    def mover(self, temperature: Callable[[int], float] | None = None) -> PolicyMover:
        """The mover that it is, at the temperature of its params or one by ply."""
        return PolicyMover(
            self.policy,
            self.params,
            profile=self.profile,
            temperature=temperature,
            name=self.name,
        )


def add_model_flags(parser: argparse.ArgumentParser) -> None:
    """`--model`, `--run`, `--max-tokens` and `key=value` words."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--model", metavar="SPEC", help="model spec (default: the starter model)")
    which.add_argument(
        "--run", type=Path, metavar="DIR", help="last checkpoint of a run, or DIR/checkpoints/NAME"
    )
    parser.add_argument(
        "--max-tokens", type=int, help="tokens of an answer, at most (default: by the profile)"
    )
    parser.add_argument(
        "overrides", nargs="*", metavar="key=value", help="options, as in: chess.profile=rookworld"
    )


@asynccontextmanager
async def open_player(args: argparse.Namespace, *, temperature: float) -> AsyncIterator[Player]:
    """Open the model that the flags name; it is closed when the block ends."""
    async with open_policy(
        "chess", model=args.model, run=args.run, options=args.overrides
    ) as opened:
        config: ChessConfig = _config_of(opened.task)
        profile: Profile = "rookworld" if config.profile == "rookworld" else "canonical"
        yield Player(
            policy=opened.policy,
            params=attrs.evolve(
                opened.params,
                temperature=temperature,
                max_tokens=args.max_tokens or LONGEST_LINE[profile],
            ),
            profile=profile,
            config=config,
            name=opened.model,
        )


def _config_of(task: Any) -> ChessConfig:
    return getattr(task, "config", ChessConfig())
