"""
Hints for the training: which square a board has reached at a token, and where to look it up.

A board in FEN says its squares by counting, which a small model finds out late by itself. So while
it is trained, a linear reader of its second block is asked for the square, and one head of its
third block is told which token of the prompt's board to look at: the one that covers the square
that an answer's board comes to next, or the square that a move names. Neither stays in the model.

Shapes: B rows, T tokens, C width, H heads, N tokens with a hint.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rlvr_torch.gpt2 import GPT2
from rlvr_torch.tokenizer import BytePairTokenizer

IGNORED = -100
SQUARES = 64
READ_AFTER = 1  # index of the block whose output tells the square
COPY_IN = 2  # index of the block one head of which looks at the source


class Widths:
    """What tokens say of squares: how many a token of a board covers, which one a move names."""

    def __init__(self, tokenizer: BytePairTokenizer) -> None:
        letters = dict.fromkeys("pnbrqkPNBRQK", 1) | {str(n): n for n in range(1, 9)}
        self._of = {tokenizer.encode(x)[0]: width for x, width in {**letters, "/": 0}.items()}
        named = [f"{file}{rank}" for rank in range(8, 0, -1) for file in "abcdefgh"]
        self._named = {
            tokenizer.encode(f"{start}{name}a1")[-2]: square
            for start in ("+", " ")
            for square, name in enumerate(named)
        }
        for square, name in enumerate(named):
            self._named[tokenizer.encode(f" a1{name}")[-1]] = square

    def board(self, tokens: Sequence[int], begin: int) -> list[int]:
        """The square reached after each token of the board that begins there; 0 comes first."""
        reached = [0]
        for token in tokens[begin:]:
            if token not in self._of:
                break
            reached.append(reached[-1] + self._of[token])
        return reached

    def hints(self, tokens: Sequence[int], start: int) -> tuple[list[int], list[int]]:
        """
        Square reached (0..64) at each token, and the place of the token to look at.

        Squares count from a8 to h1. `IGNORED` where there is none. `start` is the length
        of the prompt.
        """
        squares, sources = [IGNORED] * len(tokens), [IGNORED] * len(tokens)
        asked = self.board(tokens, 1)
        squares[: len(asked)] = asked
        owner = [0] * SQUARES
        for place in range(1, len(asked)):
            for square in range(asked[place - 1], min(asked[place], SQUARES)):
                owner[square] = place
        for place, token in enumerate(tokens):
            if token in self._named and place >= len(asked):
                sources[place] = owner[self._named[token]]
        answer = self.board(tokens, start)
        if len(answer) > 1:  # a policy line holds no board
            squares[start - 1 : start - 1 + len(answer)] = answer
            for place, square in enumerate(answer, start - 1):
                if square < SQUARES:
                    sources[place] = owner[square]
        return squares, sources


class Hints(nn.Module):
    """The reader, and what a forward pass of the model leaves for the hints' losses."""

    def __init__(self, model: GPT2, width: int) -> None:
        super().__init__()
        self.norm, self.reader = nn.LayerNorm(width), nn.Linear(width, SQUARES + 1)
        self._hidden = self._scores = torch.empty(0)
        model.h[READ_AFTER].register_forward_hook(self._keep)

    def _keep(self, block: nn.Module, given: object, hidden: Tensor) -> None:
        self._hidden = hidden  # (B, T, C)

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None = None
    ) -> Tensor:
        """Causal attention, its matrix written out: on CPUs in bfloat16 faster than the fused."""
        size = q.shape[2]
        future = torch.full((size, size), -1e4, dtype=q.dtype).triu(1)
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 + future  # (B, H, T, T)
        if layer == COPY_IN:
            self._scores = scores[:, 0]  # (B, T, T)
        return torch.softmax(scores, -1, dtype=q.dtype) @ v

    def losses(self, squares: Tensor, sources: Tensor) -> tuple[Tensor, Tensor]:
        """Mean cross entropies of the squares (B, T) and of the sources (B, T), nats."""
        is_read = squares != IGNORED
        read = self.reader(self.norm(self._hidden[is_read].float()))  # (N, 65)
        square = F.cross_entropy(read, squares[is_read])
        is_copied = sources != IGNORED
        return square, F.cross_entropy(self._scores[is_copied].float(), sources[is_copied])
