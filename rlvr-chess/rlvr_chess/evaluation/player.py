"""A policy asked about positions: its line and the move it chooses."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from rlvr.parts import Policy
from rlvr_chess.evaluation.asking import answer_text, ask
from rlvr_chess.grammar import PolicyAnswer, Profile, parse_policy, policy_prompt
from rlvr_chess.transition import legal_moves

MAX_TOKENS = {"canonical": 120, "rookworld": 160}
"""Tokens of an answer by profile; rookworld's padding takes some. A longer one is malformed."""


@frozen
class Player:
    """A policy and the wording it is asked in."""

    policy: Policy
    profile: Profile = "canonical"

    async def lines(
        self, fens: Sequence[str], *, temperature: float = 0.0, seed: int = 0
    ) -> list[PolicyAnswer | None]:
        """The policy's line for each position, None where it is malformed."""
        completions = await ask(
            self.policy,
            [policy_prompt(fen, self.profile) for fen in fens],
            max_tokens=MAX_TOKENS[self.profile],
            temperature=temperature,
            seed=seed,
        )
        read = []
        for fen, completion in zip(fens, completions, strict=True):
            text, count = answer_text(completion), min(5, len(legal_moves(fen)))
            read.append(None if text is None else parse_policy(text, count, self.profile))
        return read

    async def moves(self, fens: Sequence[str]) -> list[str | None]:
        """The move chosen greedily in each position, None where it is none that can be played."""
        return [
            line.best if line is not None and line.best in legal_moves(fen) else None
            for fen, line in zip(fens, await self.lines(fens), strict=True)
        ]
