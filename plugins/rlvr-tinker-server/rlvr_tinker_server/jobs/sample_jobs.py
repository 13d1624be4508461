"""Sampling requests: read, and answered several at a time."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

import numpy as np
from attrs import frozen
from tinker.types import SampleRequest

from rlvr import Completion, SamplingParams
from rlvr_tinker_server.nets.adapters import Factors
from rlvr_tinker_server.nets.base import Base
from rlvr_tinker_server.nets.sampling import Drawing, draw, read_stop
from rlvr_tinker_server.nets.scoring import Questions, read_questions, score, top_sampled
from rlvr_tinker_server.refusal import Refusal
from rlvr_tinker_server.state.futures import PROTO, Answer
from rlvr_tinker_server.wire import Drawn, write_samples


@frozen(kw_only=True, eq=False)
class Asked:
    """A sampling request, checked. `top_sampled` likeliest tokens are told of each sampled one."""

    drawing: Drawing
    questions: Questions
    top_sampled: int


def read_asked(request: SampleRequest, base: Base, max_samples: int) -> Asked:
    """
    What a request asks for.

    Raises:
        Refusal: A setting is out of range, the prompt is empty or holds no text tokens, or it and
            its completion would not fit into the model's positions.
    """
    positions, vocab_size = base.net.positions, base.net.vocab_size
    if any(chunk.type != "encoded_text" for chunk in request.prompt.chunks):
        raise Refusal("the prompt holds images or audio: this server reads text only")
    prompt = np.asarray(request.prompt.to_ints(), np.int64)
    if not len(prompt):
        raise Refusal("the prompt is empty: it needs at least one token")
    if prompt.min() < 0 or prompt.max() >= vocab_size:
        raise Refusal(
            f"the prompt holds ids {prompt.min()}..{prompt.max()}, the model knows "
            f"0..{vocab_size - 1}"
        )
    if not 1 <= request.num_samples <= max_samples:
        raise Refusal(
            f"num_samples={request.num_samples} was asked for; 1..{max_samples} are taken"
        )
    params = request.sampling_params
    room = positions - len(prompt)
    max_tokens = room if params.max_tokens is None else params.max_tokens
    is_scored_only = params.max_tokens == 1 and room == 0  # a prompt that fills the model
    if max_tokens < 0 or (max_tokens > room and not is_scored_only):
        raise Refusal(
            f"a prompt of {len(prompt)} tokens with max_tokens={params.max_tokens} was sent; the "
            f"model has {positions} positions"
        )
    if not (0 <= params.temperature < float("inf")):
        raise Refusal(f"temperature={params.temperature} was asked for; 0 or more is possible")
    if not 0 < params.top_p <= 1:
        raise Refusal(f"top_p={params.top_p} was asked for; above 0 and up to 1 is possible")
    if params.top_k < -1:
        raise Refusal(f"top_k={params.top_k} was asked for; -1 (no limit) or more is possible")
    texts, stop_ids = read_stop(params.stop, base.tokenizer, vocab_size)
    seed = secrets.randbits(63) if params.seed is None else params.seed
    return Asked(
        drawing=Drawing(
            prompt=prompt,
            count=request.num_samples,
            params=SamplingParams(
                max_tokens=max_tokens,
                temperature=float(params.temperature),  # the SDK's defaults are whole numbers
                top_p=float(params.top_p),
                top_k=max(0, params.top_k),
                stop=texts,
            ),
            stop_ids=stop_ids,
            seed=seed,
        ),
        questions=read_questions(request, len(prompt), vocab_size, seed),
        top_sampled=request.topk_sample_logprobs,
    )


def sample_together(
    base: Base,
    factors: Factors,
    asked: Sequence[Asked],
    *,
    rows: int,
    is_cancelled: Callable[[], bool],
) -> list[Answer | Exception]:
    """Answers of requests for the same weights; in the worker."""
    drawings = [one.drawing for one in asked]
    with base.net.using(factors):
        drawn = draw(base, drawings, rows=rows, is_cancelled=is_cancelled)
        return [_answer(base, *pair) for pair in zip(asked, drawn, strict=True)]


def _answer(base: Base, asked: Asked, completions: Sequence[Completion]) -> Answer:
    prompt = asked.drawing.prompt
    sequences = [
        Drawn(
            tokens=one.tokens,
            logprobs=one.logprobs,
            has_stopped=one.finish == "stop",
            top=top_sampled(base.net, prompt, one.tokens, asked.top_sampled, base.dtype)
            if asked.top_sampled and len(one.tokens)
            else None,
        )
        for one in completions
    ]
    scores = score(base.net, prompt, asked.questions, base.dtype)
    return Answer(body=write_samples(sequences, scores), media=PROTO)
