"""A trajectory as tokens: one tokenisation of the whole text, each token with its span's type.

The cost is linear: the text is encoded once, and where each token begins follows from the bytes of
the tokens before it. A mask stands at the *target*: `mask[t]` says that token t is learnt, which
the model predicts at position t - 1.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from rlvr import ConfigError, Tokenizer
from rlvr_sad.trajectory import CODES, TRAINED, AgentTrajectory

_TRAINED = np.array([name in TRAINED for name in CODES])


@frozen(eq=False)
class Tokens:
    """
    One trajectory as token ids; every array has shape (T,).

    Attributes:
        ids: int32.
        types: uint8, the code of each token's type (`trajectory.TYPES`).
        mask: True where the token is learnt; never the first one, which nothing predicts.
    """

    ids: NDArray[np.int32]
    types: NDArray[np.uint8]
    mask: NDArray[np.bool_]

    @classmethod
    def of(cls, ids: NDArray[np.int32], types: NDArray[np.uint8]) -> Tokens:
        """Tokens of these types: those that the model wrote are learnt."""
        mask = _TRAINED[types]
        mask[:1] = False
        return cls(ids, types, mask)

    def packed(self) -> bytes:
        """As bytes, 5 a token."""
        return self.ids.tobytes() + self.types.tobytes()

    @classmethod
    def unpacked(cls, data: bytes, count: int, at: int) -> Tokens:
        """The `count` tokens that `packed` put at `at`."""
        types = np.frombuffer(data, np.uint8, count, at + 4 * count)
        return cls.of(np.frombuffer(data, np.int32, count, at), types)


def tokenise(trajectory: AgentTrajectory, tokenizer: Tokenizer) -> Tokens:
    """
    The tokens of a trajectory.

    A token that holds bytes of two spans belongs to the one it begins in, unless more than half of
    its bytes lie in the later one.

    Raises:
        ConfigError: The tokenizer does not know the bytes of its tokens, or they are not the text.
    """
    text = trajectory.text
    ids = np.asarray(tokenizer.encode(text), dtype=np.int32)
    lengths = _lengths(tokenizer)[ids]  # (T,) bytes of each token
    ends = np.cumsum(lengths)
    data = text.encode("utf-8")
    if len(data) != (int(ends[-1]) if len(ids) else 0):
        raise _unfaithful(tokenizer, data, ids)
    return Tokens.of(ids, _types(trajectory, ends - lengths, ends))


def _types(
    trajectory: AgentTrajectory, starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.uint8]:
    """Code of each token (T,), from the bytes it begins and ends at."""
    segments = trajectory.segments
    begins = np.array([s.start for s in segments] or [0])  # (S,)
    stops = np.array([s.end for s in segments] or [0])
    codes = np.array([CODES[s.type] for s in segments] or [0], dtype=np.uint8)
    first = np.searchsorted(begins, starts, side="right") - 1  # (T,) the segment it begins in
    # only the segment of its middle byte can hold more than half of it
    middle = np.searchsorted(begins, (starts + np.maximum(ends - 1, starts)) // 2, side="right") - 1
    held = np.minimum(ends, stops[middle]) - np.maximum(starts, begins[middle])
    return codes[np.where(2 * held > ends - starts, middle, first)]


_TABLES: WeakKeyDictionary[Any, NDArray[np.int64]] = WeakKeyDictionary()


def _lengths(tokenizer: Tokenizer) -> NDArray[np.int64]:
    """Bytes of every token of the vocabulary (V,); asked once."""
    table = _TABLES.get(tokenizer)
    if table is None:
        table = np.array(
            [len(_bytes(tokenizer, token)) for token in range(tokenizer.vocab_size)], dtype=np.int64
        )
        _TABLES[tokenizer] = table
    return table


def _bytes(tokenizer: Tokenizer, token: int) -> bytes:
    if not tokenizer.has_bytes:
        raise ConfigError(
            "trajectories were to be tokenised.",
            f"found: {type(tokenizer).__name__} does not say the bytes of its tokens",
            "give a tokenizer with bytes_of(token) -> bytes and has_bytes = True",
        )
    return tokenizer.bytes_of(token)


def _unfaithful(tokenizer: Tokenizer, data: bytes, ids: NDArray[np.int32]) -> ConfigError:
    spelled = b"".join(_bytes(tokenizer, int(token)) for token in ids)
    at = next(
        (i for i, (a, b) in enumerate(zip(data, spelled, strict=False)) if a != b),
        min(len(data), len(spelled)),
    )
    return ConfigError(
        "a trajectory was to be tokenised without a change.",
        f"found: the tokens spell {spelled[at : at + 12]!r} where the text has "
        f"{data[at : at + 12]!r} (byte {at})",
        "give a tokenizer that keeps texts as they are (no normalisation)",
    )
