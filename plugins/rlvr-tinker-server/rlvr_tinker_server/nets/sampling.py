"""Sampling from an adapter: our engine, with the service's ways to stop and its seeds.

A request's n-th sequence draws its own random numbers, a function of the request's seed and n. So
equal requests give equal tokens, whatever else is sampled at the same time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from attrs import frozen

from rlvr import BackendError, Completion, GenerateRequest, SamplingParams, Tokenizer
from rlvr_tinker_server.nets.base import Base
from rlvr_tinker_server.refusal import Refusal
from rlvr_torch.hardware.primitives import hardware_of


@frozen(kw_only=True, eq=False)
class Drawing:
    """What to sample, checked."""

    prompt: np.ndarray  # (S,) ids
    count: int  # sequences
    params: SamplingParams
    stop_ids: frozenset[int]  # tokens that end a sequence; empty: none does
    seed: int  # root of the sequences' seeds

    def requests(self) -> list[GenerateRequest]:
        return [
            GenerateRequest(prompt=self.prompt, params=self.params, seed=_seed(self.seed, n))
            for n in range(self.count)
        ]


def read_stop(
    stop: str | Sequence[str] | Sequence[int] | None, tokenizer: Tokenizer, vocab_size: int
) -> tuple[tuple[str, ...], frozenset[int]]:
    """
    Stop texts and stop tokens of a request.

    None: the tokens that end a turn or a text. []: nothing stops. Texts or tokens that are named
    stop as well as those.

    Raises:
        Refusal: Texts and tokens are mixed, a text is empty, an id is outside the vocabulary.
    """
    own = tokenizer.ends
    if stop is None:
        return (), own
    named: list[Any] = [stop] if isinstance(stop, str) else list(stop)
    if not named:
        return (), frozenset()
    texts = [one for one in named if isinstance(one, str)]
    ids = [one for one in named if not isinstance(one, str)]
    if texts and ids:
        raise Refusal("stop holds both texts and token ids: give one kind")
    if not all(texts):
        raise Refusal("stop holds an empty text")
    if any(not 0 <= one < vocab_size for one in ids):
        raise Refusal(f"stop holds token ids outside 0..{vocab_size - 1}")
    return tuple(texts), own | frozenset(ids)


def draw(
    base: Base, drawings: Sequence[Drawing], *, rows: int, is_cancelled: Callable[[], bool]
) -> list[list[Completion]]:
    """
    The sequences of each drawing, with the adapter that is at work.

    Drawings with the same stop tokens are decoded in one batch.

    Raises:
        Refusal: The model's logits are not finite, or `is_cancelled` said so.
    """
    found: list[list[Completion]] = [[] for _ in drawings]
    kinds: dict[frozenset[int], list[int]] = {}
    for i, drawing in enumerate(drawings):
        kinds.setdefault(drawing.stop_ids, []).append(i)
    for stop_ids, members in kinds.items():
        make = hardware_of(base.net.head.device).engine
        engine = make(base.net, base.tokenizer, rows=rows, dtype=base.dtype, ends=stop_ids)
        requests = [request for i in members for request in drawings[i].requests()]
        try:
            done = iter(engine.generate(requests, is_cancelled))
        except BackendError as error:
            raise Refusal(str(error), 503 if is_cancelled() else 400) from error
        for i in members:
            found[i] = [next(done) for _ in range(drawings[i].count)]
    return found


def _seed(root: int, number: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{root}/{number}".encode()).digest()[:16], "big")
