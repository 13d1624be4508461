"""What a model thinks of given tokens: prompt logprobs, the likeliest ones, chosen ones, others.

All are at temperature 1, but for alternatives, which are drawn at the request's. Position 0 has
nothing before it and is never scored.

Shapes: S tokens, K ids a position, k likeliest, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from attrs import frozen
from tinker.types import SampleRequest
from torch import Tensor

from rlvr_tinker_server.nets.adapters import AdaptedNet
from rlvr_tinker_server.nets.forward import logits_of, positions_hidden
from rlvr_tinker_server.refusal import Refusal
from rlvr_tinker_server.wire import Scores, TopK, spread, write_sparse, write_tensor
from rlvr_torch.training.logprobs import slices

_CHUNK = 256


@frozen(kw_only=True, eq=False)
class Targets:
    """Chosen ids at each position."""

    ids: np.ndarray  # (S - 1, K), -1 where none is asked for
    sparse: (
        tuple[np.ndarray, np.ndarray] | None
    )  # rows and columns of a sparse request: the answer is sparse, too


@frozen(kw_only=True, eq=False)
class Questions:
    """What is asked about a prompt."""

    logprobs: bool = False  # whether logprobs of its tokens are
    last: int | None = None  # only of so many tokens at its end; None: of all
    top_k: int = 0  # so many of the likeliest tokens at each position; 0: none
    targets: Targets | None = None
    alternatives: int = 0  # so many draws at each position; 0: none
    temperature: float = 1.0  # of the draws
    seed: int = 0  # of the draws

    def begin(self, length: int) -> int:
        """The first row of a prompt of `length` tokens that is asked about."""
        is_last = self.last is not None and not (self.targets or self.alternatives)
        return length - 1 - (self.last or 0) if is_last else 0


def read_questions(request: SampleRequest, length: int, vocab_size: int, seed: int) -> Questions:
    """
    What a request asks about its prompt of `length` tokens.

    Raises:
        Refusal: A number is out of range, or the table of targets has the wrong shape.
    """
    k, last = request.topk_prompt_logprobs, request.prompt_logprobs_last_n
    for name, value in (
        ("topk_prompt_logprobs", k),
        ("topk_sample_logprobs", request.topk_sample_logprobs),
    ):
        if not 0 <= value <= vocab_size:
            raise Refusal(f"{name}={value} was asked for; the vocabulary has {vocab_size} tokens")
    if not 0 <= request.prompt_alt_tokens_k <= 1024:
        raise Refusal(f"prompt_alt_tokens_k={request.prompt_alt_tokens_k}: 0..1024 are possible")
    if last is not None and not (request.prompt_logprobs and 1 <= last < length):
        raise Refusal(
            f"prompt_logprobs_last_n={last} was asked for; it needs prompt_logprobs and must be "
            f"in 1..{length - 1}"
        )
    temperature = request.sampling_params.temperature
    if request.prompt_alt_tokens_k and temperature <= 0:
        raise Refusal("prompt_alt_tokens_k draws tokens: the temperature must be above 0")
    return Questions(
        logprobs=bool(request.prompt_logprobs),
        last=last,
        top_k=k,
        targets=_read_targets(request, length, vocab_size),
        alternatives=request.prompt_alt_tokens_k,
        temperature=temperature,
        seed=seed,
    )


def _read_targets(request: SampleRequest, length: int, vocab_size: int) -> Targets | None:
    table = request.target_prompt_logprobs
    if table is None:
        return None
    name = "target_prompt_logprobs"
    if table.dtype != "int64":
        raise Refusal(f"{name} must be int64 token ids, not {table.dtype}")
    shape = list(table.shape or ())
    if len(shape) != 2 or shape[0] != length - 1 or shape[1] < 1:
        raise Refusal(f"{name} has the shape {shape}; a prompt of {length} needs [{length - 1}, K]")
    try:
        values = np.asarray(table.data, np.int64)
    except (ValueError, OverflowError) as error:
        raise Refusal(f"{name} holds no whole numbers of 64 bits") from error
    sparse = None
    if table.sparse_crow_indices is not None:
        rows = np.asarray(table.sparse_crow_indices, np.int64)
        columns = np.asarray(table.sparse_col_indices or (), np.int64)
        ids = spread(values, rows, columns, shape, -1, name)
        sparse = (rows, columns)
    elif len(values) != shape[0] * shape[1]:
        raise Refusal(f"{name} has {len(values)} numbers, its shape {shape} asks for others")
    else:
        ids = values.reshape(shape)
    if not (ids >= 0).any():
        raise Refusal(f"{name} names no id at all")
    if ids.min() < -1 or ids.max() >= vocab_size:
        raise Refusal(f"{name} holds ids outside 0..{vocab_size - 1} (-1: none)")
    return Targets(ids=ids, sparse=sparse)


@torch.no_grad()
def score(net: AdaptedNet, prompt: np.ndarray, questions: Questions, dtype: torch.dtype) -> Scores:
    """The answers to the questions, by the adapter that is at work."""
    q = questions
    if not (q.logprobs or q.top_k or q.targets or q.alternatives):
        return Scores()
    found = _Found(len(prompt), questions)
    if len(prompt) > 1:  # else nothing has anything before it
        begin = questions.begin(len(prompt))
        hidden = positions_hidden(net, [prompt[:-1]], dtype, [begin])  # (S - 1 - begin, C)
        for at, logprobs in _each_position(net, hidden):
            found.take(slice(at.start + begin, at.stop + begin), logprobs, prompt)
    return found.scores()


@torch.no_grad()
def top_sampled(
    net: AdaptedNet, prompt: np.ndarray, tokens: np.ndarray, k: int, dtype: torch.dtype
) -> TopK:
    """The k likeliest tokens where each of the sampled `tokens` (T,) was drawn."""
    whole = np.concatenate([prompt, tokens])
    hidden = positions_hidden(net, [whole[:-1]], dtype)[len(prompt) - 1 :]
    ids, best = zip(*(_leaders(some, k) for _, some in _each_position(net, hidden)), strict=True)
    return TopK(tokens=np.concatenate(ids), logprobs=np.concatenate(best))


def _each_position(net: AdaptedNet, hidden: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Logprobs (n, V) of some positions at a time."""
    head = net.head
    for at in slices(len(hidden), _CHUNK):
        yield at, logits_of(net, hidden[at], head).log_softmax(dim=1)


def _leaders(logprobs: Tensor, k: int) -> tuple[np.ndarray, np.ndarray]:
    best, ids = logprobs.topk(k, dim=1)
    return ids.cpu().numpy(), best.cpu().numpy()


class _Found:
    """Answers being collected; row i of every table is about prompt position i + 1."""

    def __init__(self, length: int, questions: Questions) -> None:
        self._asked = questions
        self._prompt = np.full(length, np.nan, np.float32)
        self._ids = np.zeros((length, questions.top_k), np.int64)
        self._top = np.full((length, questions.top_k), np.nan, np.float32)
        self._first = 1 if questions.last is None else length - questions.last
        targets = questions.targets
        self._targets = None if targets is None else np.zeros(targets.ids.shape, np.float32)
        shape = (length - 1, questions.alternatives)
        self._others = (np.zeros(shape, np.int64), np.zeros(shape, np.float32))
        random = np.random.Generator(np.random.Philox(key=questions.seed & (2**128 - 1)))
        self._numbers = random.random(shape)

    def take(self, at: slice, logprobs: Tensor, prompt: np.ndarray) -> None:
        """Use the logprobs (n, V) at the rows `at`."""
        places = np.arange(at.start, at.stop) + 1
        kept = places >= self._first
        if self._asked.logprobs:
            ids = torch.from_numpy(prompt[places].astype(np.int64)).to(logprobs.device)
            found = logprobs.gather(1, ids[:, None])[:, 0].cpu().numpy()
            self._prompt[places[kept]] = found[kept]
        if self._asked.top_k:
            ids_k, best = _leaders(logprobs, self._asked.top_k)
            self._ids[places[kept]], self._top[places[kept]] = ids_k[kept], best[kept]
        if self._targets is not None and self._asked.targets is not None:
            wanted = self._asked.targets.ids[at]
            ids = torch.from_numpy(np.maximum(wanted, 0)).to(logprobs.device)
            found = logprobs.gather(1, ids).cpu().numpy()
            self._targets[at] = np.where(wanted >= 0, found, 0.0)
        if self._asked.alternatives:
            self._others[0][at], self._others[1][at] = self._draw(logprobs, self._numbers[at])

    def _draw(self, logprobs: Tensor, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scaled = (logprobs / self._asked.temperature).log_softmax(dim=1)
        upto = scaled.double().exp().cumsum(dim=1)  # (n, V)
        where = torch.from_numpy(numbers).to(upto.device) * upto[:, -1:]
        ids = torch.searchsorted(upto, where, right=True).clamp_(max=upto.shape[1] - 1)
        return ids.cpu().numpy(), scaled.gather(1, ids).cpu().numpy()

    def scores(self) -> Scores:
        asked, targets = self._asked, None
        if self._targets is not None and asked.targets is not None:
            targets = write_tensor(self._targets, np.float32)
            if asked.targets.sparse is not None:
                rows, columns = asked.targets.sparse
                lines = np.repeat(np.arange(len(rows) - 1), np.diff(rows))
                values = self._targets[lines, columns]
                targets = write_sparse(values, rows, columns, self._targets.shape)
        return Scores(
            prompt=self._prompt if asked.logprobs else None,
            top=TopK(tokens=self._ids, logprobs=self._top) if asked.top_k else None,
            targets=targets,
            alternatives=self._others if asked.alternatives else None,
        )
