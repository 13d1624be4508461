"""Byte-pair tokenizers made on the spot: any two merge tables, and control tokens with names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from rlvr import Datum, Message, Teacher, TeacherCapabilities, TeacherRequest, Tokenizer, TopK


class Pairs(Tokenizer):
    """
    Byte-level BPE with these merges; control tokens first, then bytes, then merged pairs.

    The first control token ends a text. A prompt is `<b>` and `<e>` around each message and `<b>`
    before the answer where it has these tokens, the contents alone else.
    """

    has_bytes = True

    def __init__(
        self, merges: Sequence[tuple[bytes, bytes]] = (), controls: Sequence[str] = ("<end>",)
    ) -> None:
        self.table = [*(c.encode() for c in controls), *(bytes([b]) for b in range(256))]
        self.ranks: dict[bytes, int] = {}
        for left, right in merges:
            if left + right not in self.ranks:
                self.ranks[left + right] = len(self.ranks)
                self.table.append(left + right)
        self.control_ids = frozenset(range(len(controls)))
        self.eos_id = 0
        self.vocab_size = len(self.table)
        self.ids = {s: i for i, s in enumerate(self.table) if i >= len(controls)}
        self.named = {c: i for i, c in enumerate(controls)}

    def bytes_of(self, token: int) -> bytes:
        return self.table[token]

    def encode(self, text: str) -> list[int]:
        parts = [bytes([b]) for b in text.encode()]
        while True:
            pairs = [parts[i] + parts[i + 1] for i in range(len(parts) - 1)]
            best = min(
                (p for p in pairs if p in self.ranks), key=self.ranks.__getitem__, default=b""
            )
            if not best:
                return [self.ids[part] for part in parts]
            at = pairs.index(best)
            parts[at : at + 2] = [best]

    def decode(self, tokens: Sequence[int]) -> str:
        return b"".join(self.table[t] for t in tokens).decode(errors="replace")

    def render(self, messages: Sequence[Message], *, first: bool = True) -> list[int]:
        begin, end = ([self.named[n]] if n in self.named else [] for n in ("<b>", "<e>"))
        turns = [t for m in messages for t in (*begin, *self.encode(m.content), *end)]
        return [*turns, *begin]


@pytest.fixture(scope="session")
def pairs() -> type[Pairs]:
    """The class of such tokenizers."""
    return Pairs


class Bigrams(Teacher):
    """A teacher that knows which token follows which: exact numbers, no model."""

    capabilities = TeacherCapabilities(has_scores=True)
    context_length = 4096
    name = "bigrams"

    def __init__(self, tokenizer: Pairs, seed: int = 0) -> None:
        self.tokenizer = tokenizer
        size = tokenizer.vocab_size
        self.logits = np.random.default_rng(seed).normal(scale=2.0, size=(size, size))
        self.asked: list[Datum] = []

    def after(self, token: int, temperature: float = 1.0) -> np.ndarray:
        """Logprobs (V,) of what follows a token."""
        scaled = self.logits[token] / temperature
        return scaled - np.logaddexp.reduce(scaled)

    async def logprobs(self, data: Sequence[Datum]) -> list[np.ndarray]:
        self.asked += data
        return [
            np.array(
                [
                    self.after(d.tokens[t - 1], d.temperature)[d.tokens[t]] if d.mask[t] else 0.0
                    for t in range(len(d.tokens))
                ],
                np.float32,
            )
            for d in data
        ]

    async def score(self, questions: Sequence[TeacherRequest]) -> list[TopK]:
        found = []
        for q in questions:
            rows = np.array(
                [self.after(q.ids[t - 1], q.temperature) for t in range(q.start, len(q.ids))]
            )
            ids = np.argsort(-rows, axis=1)[:, : q.k]
            found.append(
                TopK(
                    ids=ids,
                    logprobs=np.take_along_axis(rows, ids, 1),
                    actual=rows[np.arange(len(rows)), q.ids[q.start :]],
                )
            )
        return found


@pytest.fixture(scope="session")
def bigrams() -> type[Bigrams]:
    """The class of such teachers."""
    return Bigrams
