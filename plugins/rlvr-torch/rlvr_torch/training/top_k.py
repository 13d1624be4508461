"""The likeliest tokens at many positions: a chunk of logits at a time.

Shapes: N positions of a micro-batch, n of a question, k tokens, C width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from rlvr import Datum, TeacherRequest, TopK
from rlvr_torch.training.logprobs import SupervisedPositions, logits_buffer, slices
from rlvr_torch.training.output_head import Head


def as_datum(question: TeacherRequest) -> Datum:
    """The question as a datum in which the tokens asked for are supervised."""
    mask = np.arange(len(question.ids)) >= question.start
    nothing = np.zeros(len(mask), np.float32)
    return Datum(
        tokens=question.ids,
        mask=mask,
        logprobs=nothing,
        advantages=nothing,
        weights=nothing,
        temperature=question.temperature,
        pictures=question.pictures,
    )


def top_k(
    head: Head, hidden: Tensor, questions: Sequence[TeacherRequest], *, vocab_size: int, chunk: int
) -> list[TopK]:
    """
    Answers to questions whose states are (N, C), one question after the other.

    Args:
        head: Whose logits they are.
        hidden: Of the positions asked for.
        questions: With at most `vocab_size` tokens wanted of each.
        vocab_size: Ids from here on are rows that no token has: never among the likeliest, though
            they have their part of the probability.
        chunk: Positions whose logits exist at one time.
    """
    places = SupervisedPositions.of([as_datum(q) for q in questions], hidden.device)
    buffer = logits_buffer(head, hidden, chunk)
    k = max(q.k for q in questions)
    ids, logprobs, actual = [], [], []
    for part in slices(len(hidden), chunk):
        rows = head.logits(hidden[part], places.heat[part], buffer)  # (n, V)
        rows.sub_(rows.logsumexp(dim=1, keepdim=True))
        actual.append(rows.gather(1, places.targets[part, None])[:, 0].cpu().numpy())
        likeliest = rows[:, :vocab_size].topk(k, dim=1)  # in descending order
        is_there = likeliest.values > -torch.inf
        ids.append(torch.where(is_there, likeliest.indices, -1).int().cpu().numpy())
        logprobs.append(likeliest.values.cpu().numpy())
    cuts = np.cumsum(places.counts)[:-1]
    is_padded = len(head.weights) > vocab_size
    tables = [np.split(np.concatenate(whole), cuts) for whole in (ids, logprobs, actual)]
    return [
        TopK(
            ids=best[:, : q.k],
            logprobs=values[:, : q.k],
            actual=own,
            is_whole=q.k == vocab_size and not is_padded,
        )
        for q, best, values, own in zip(questions, *tables, strict=True)
    ]
