"""Which of a rollout's tokens are reasoning and which action, by their bytes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rlvr import Tokenizer, Trajectory
from rlvr_sad.household.commands import action_start
from rlvr_sad.trajectory import CODES


def span_codes(trajectory: Trajectory, tokenizer: Tokenizer) -> NDArray[np.float32] | None:
    """
    Codes of `trajectory.TYPES` (T,), 0 where the policy did not write the token.

    A turn is reasoning up to its `Action:`, action from there on. A token that holds bytes of both
    belongs to the one it begins in, unless more than half of its bytes lie in the other. None where
    the tokenizer does not say the bytes of its tokens.
    """
    if not tokenizer.has_bytes:
        return None
    parts = [
        _turn(segment.tokens, tokenizer)
        if segment.author == "policy"
        else np.zeros(len(segment.tokens), np.float32)
        for segment in trajectory.segments
    ]
    return np.concatenate(parts) if parts else np.zeros(0, np.float32)


def _turn(tokens: NDArray[np.int32], tokenizer: Tokenizer) -> NDArray[np.float32]:
    pieces = [tokenizer.bytes_of(int(token)) for token in tokens]
    lengths = np.array([len(piece) for piece in pieces], dtype=np.int64)
    ends = np.cumsum(lengths)
    # latin-1 has a character a byte: places in the text are places in the bytes
    start = action_start(b"".join(pieces).decode("latin-1"))
    is_action = 2 * (ends - start) > lengths  # more than half of it
    is_action |= ends - lengths >= start  # begins there (a token without bytes, too)
    return np.where(is_action, CODES["action"], CODES["reasoning"]).astype(np.float32)
