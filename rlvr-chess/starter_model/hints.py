"""
Hints for the training: which square a board has reached at a token, and where to look it up.

A board in FEN says its squares by counting, which a small model finds out late by itself. So while
it is trained, a linear reader of its second block is asked for the square, and one head of its
third block is told which token of the prompt's board to look at: the one that covers the square
that an answer's board comes to next, or the square that a move names. In the second stage three
more heads are told to look at the row that comes next, and at the two squares of the move; and a
reader of the fourth block is asked for that row as the move leaves it. None stays in the model.

Shapes: B rows, T tokens, C width, H heads, N tokens with a hint.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from rlvr_torch.models.bpe import BytePairTokenizer
from rlvr_torch.models.gpt2 import GPT2

IGNORED = -100
SQUARES = 64
READ_AFTER = 1  # index of the block whose output tells the square
COPY_IN = 2  # index of the block whose first heads are told where to look
EDIT_AFTER = 3  # index of the block whose output tells the next row
MEN = ".pnbrqkPNBRQK"
HEADS = 4  # source, start and end of the move, row
Labels = NDArray[np.int64]


class Widths:
    """What tokens say of squares: how many a token of a board covers, which one a move names."""

    def __init__(self, tokenizer: BytePairTokenizer) -> None:
        letters = dict.fromkeys("pnbrqkPNBRQK", 1) | {str(n): n for n in range(1, 9)}
        self._of = {tokenizer.encode(x)[0]: width for x, width in {**letters, "/": 0}.items()}
        self._men = {
            tokenizer.encode(x)[0]: [MEN.index(x)] if x in MEN else [0] * int(x) for x in letters
        } | {tokenizer.encode("/")[0]: []}
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

    def hints(self, tokens: Sequence[int], start: int) -> tuple[Labels, Labels, Labels]:
        """
        What a row is to tell; `IGNORED` where there is nothing.

        Args:
            tokens: T of them.
            start: Length of the prompt.

        Returns:
            The square reached (0..64, from a8 to h1) at each token, (T,); places to look at,
            (T, 5): source, start and end of the move, first and last of the next row; and the
            men of that row after the move, (T, 8), as indices of `MEN`.
        """
        squares = np.full(len(tokens), IGNORED)
        places = np.full((len(tokens), HEADS + 1), IGNORED)
        rows = np.full((len(tokens), 8), IGNORED)
        asked = self.board(tokens, 1)
        squares[: len(asked)] = asked
        owner = [0] * SQUARES
        for place in range(1, len(asked)):
            for square in range(asked[place - 1], min(asked[place], SQUARES)):
                owner[square] = place
        for place, token in enumerate(tokens):
            if token in self._named and place >= len(asked):
                places[place, 0] = owner[self._named[token]]
        answer = self.board(tokens, start)
        if len(answer) > 1:  # a policy line holds no board
            squares[start - 1 : start - 1 + len(answer)] = answer
            men = [man for token in tokens[start:][: len(answer) - 1] for man in self._men[token]]
            move = self.move(tokens[:start], len(asked))
            for place, square in enumerate(answer, start - 1):
                if square < SQUARES:
                    row = slice(square // 8 * 8, square // 8 * 8 + 8)
                    places[place] = owner[square], *move, owner[row][0], owner[row][-1]
                    rows[place] = men[row]
        return squares, places, rows

    def move(self, prompt: Sequence[int], begin: int) -> tuple[int, int]:
        """Places of the two squares of the prompt's move."""
        for place in range(begin, len(prompt) - 1):
            if prompt[place] in self._named and prompt[place + 1] in self._named:
                return place, place + 1
        return IGNORED, IGNORED


class Hints(nn.Module):
    """The reader, and what a forward pass of the model leaves for the hints' losses."""

    def __init__(self, model: GPT2, width: int, *, edits: bool) -> None:
        super().__init__()
        self.norm, self.reader = nn.LayerNorm(width), nn.Linear(width, SQUARES + 1)
        self._hidden = self._edited = self._scores = torch.empty(0)
        model.h[READ_AFTER].register_forward_hook(self._keep)
        if edits:
            self.row_norm, self.row = nn.LayerNorm(width), nn.Linear(width, 8 * len(MEN))
            model.h[EDIT_AFTER].register_forward_hook(self._keep_edited)

    def _keep(self, block: nn.Module, given: object, hidden: Tensor) -> None:
        self._hidden = hidden  # (B, T, C)

    def _keep_edited(self, block: nn.Module, given: object, hidden: Tensor) -> None:
        self._edited = hidden  # (B, T, C)

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None = None
    ) -> Tensor:
        """Causal attention, its matrix written out: on CPUs in bfloat16 faster than the fused."""
        size = q.shape[2]
        future = torch.full((size, size), -1e4, dtype=q.dtype).triu(1)
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 + future  # (B, H, T, T)
        if layer == COPY_IN:
            self._scores = scores[:, :HEADS]  # (B, HEADS, T, T)
        return torch.softmax(scores, -1, dtype=q.dtype) @ v

    def losses(self, squares: Tensor, places: Tensor) -> dict[str, Tensor]:
        """Mean cross entropies of the squares (B, T) and of the sources, in nats."""
        is_read = squares != IGNORED
        read = self.reader(self.norm(self._hidden[is_read].float()))  # (N, 65)
        square = F.cross_entropy(read, squares[is_read])
        return {"square": square, "source": self._looked(0, places)}

    def edit_losses(self, places: Tensor, rows: Tensor) -> dict[str, Tensor]:
        """The same of the move's squares, of the places of the next row, and of its men."""
        is_told = rows[..., 0] != IGNORED  # (B, T)
        if not is_told.any():
            return {}
        men = self.row(self.row_norm(self._edited[is_told].float())).view(-1, len(MEN))
        scores = torch.log_softmax(self._scores[:, 3][is_told].float(), -1)  # (N, T)
        first, last = places[is_told][:, 3:].T[..., None]  # (N, 1) each
        here = torch.arange(scores.shape[1])
        is_row = ((here >= first) & (here <= last)).float()  # (N, T)
        looked = -(scores * is_row).sum(-1) / is_row.sum(-1)
        return {
            "row": F.cross_entropy(men, rows[is_told].flatten()),
            "look": looked.mean() - is_row.sum(-1).log().mean(),  # 0 where all are equal
            "start": self._looked(1, places),
            "end": self._looked(2, places),
        }

    def _looked(self, head: int, places: Tensor) -> Tensor:
        is_told = places[..., head] != IGNORED  # (B, T)
        if not is_told.any():  # a batch of misspelt moves only
            return torch.zeros(())
        scores = self._scores[:, head][is_told].float()  # (N, T)
        return F.cross_entropy(scores, places[..., head][is_told])
