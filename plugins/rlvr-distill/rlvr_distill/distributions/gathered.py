"""The supervised tokens of a batch for distillation: student, teacher, weights, spans.

Shapes: N supervised tokens of D data, n of one datum, C width, V vocabulary, k tokens told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from attrs import frozen
from torch import Tensor

from rlvr import BackendError, Datum, Distribution, HiddenStates, TopK
from rlvr_distill.distributions.sides import HeadLogits, Sparse, Teacher


@frozen(kw_only=True, eq=False)
class Gathered:
    """One kind of teacher's answer and the data that have it."""

    data: Sequence[Datum]
    student: HeadLogits  # N rows
    teacher: Teacher  # N rows

    def column(self, values: Sequence[np.ndarray]) -> Tensor:
        """Arrays (T,), one a datum, at the supervised tokens: (N,)."""
        rows = [np.asarray(v)[d.mask] for v, d in zip(values, self.data, strict=True)]
        return torch.from_numpy(np.concatenate(rows)).to(self.student.hidden.device)

    @property
    def targets(self) -> Tensor:
        """(N,) ids that stand there."""
        return self.column([d.tokens for d in self.data]).long()


def gather(
    data: Sequence[Datum],
    outputs: Mapping[str, Sequence[Any]],
    name: str,
    teacher_head: Any,
    *,
    temperature: float,
    has_rest: bool,
    is_cold: bool,
) -> list[Gathered]:
    """
    What is to be compared, by kind of answer: states, whole distributions, few tokens.

    Args:
        data: D of them.
        outputs: "hidden" and "head" of the backend.
        name: Annotation of the teacher.
        teacher_head: Of a teacher that gives states.
        temperature: That the loss compares at.
        has_rest: Whether what few tokens leave over counts.
        is_cold: Whether answers were asked for at temperature 1, whatever `temperature` is.

    Raises:
        BackendError: The backend or the teacher did not give what is needed.
    """
    hidden, head = _output(outputs, "hidden"), _output(outputs, "head")[0]
    kinds: dict[str, list[int]] = {}
    for place, datum in enumerate(data):
        kinds.setdefault(_kind(datum, name), []).append(place)
    found = []
    for kind, places in kinds.items():
        some = [data[i] for i in places]
        student = HeadLogits.of(torch.cat([hidden[i] for i in places]), head)
        told = [d.distributions[name] for d in some]
        heat = 1.0 if is_cold else temperature
        teacher = _teacher(kind, told, student, teacher_head, heat, temperature, has_rest)
        found.append(Gathered(data=some, student=student, teacher=teacher))
    return found


def _teacher(
    kind: str,
    told: Sequence[Distribution],
    student: HeadLogits,
    head: Any,
    heat: float,
    temperature: float,
    has_rest: bool,
) -> Teacher:
    device = student.hidden.device
    if kind == "states":
        if head is None:
            raise BackendError(
                "a teacher gave the states before its output head.",
                "found: the loss never met the head",
                "call `meet` with the opened teachers first",
            )
        states = np.concatenate([t.states for t in told if isinstance(t, HiddenStates)])
        return HeadLogits.of(torch.from_numpy(states).to(head.weights.device), head)
    few = [t for t in told if isinstance(t, TopK)]
    ids = _padded([t.ids for t in few], -1).long().to(device)
    logprobs = _padded([t.logprobs for t in few], -np.inf).to(device)
    if kind == "whole":
        size = max(len(student.weights), int(ids.max()) + 1 if ids.numel() else 0)
        logits = logprobs.new_full((len(ids), size), -np.inf)  # cut or refused where too wide
        logits.scatter_(1, ids.clamp(min=0), logprobs)
        return logits.mul_(heat)
    if not has_rest and heat != temperature:
        logprobs = logprobs * (heat / temperature)  # renormalised on these tokens: exact
    return Sparse(ids=ids, logprobs=logprobs, has_rest=has_rest)


def _padded(parts: Sequence[np.ndarray], fill: float) -> Tensor:
    """Rows of all parts (n, k), filled to the widest k."""
    width = max(part.shape[1] for part in parts)
    gaps = (((0, 0), (0, width - part.shape[1])) for part in parts)
    filled = [np.pad(p, gap, constant_values=fill) for p, gap in zip(parts, gaps, strict=True)]
    return torch.from_numpy(np.concatenate(filled))


def _kind(datum: Datum, name: str) -> str:
    told = datum.distributions.get(name)
    if isinstance(told, HiddenStates):
        return "states"
    if isinstance(told, TopK):
        is_all = told.is_whole and bool((told.ids >= 0).all())
        return "whole" if is_all else "few"
    raise BackendError(
        f"the loss compares distributions with those of {name!r}.",
        f"found: problem {datum.problem_id} has none",
        "the run asks the teacher for them: `needs.distributions` of the loss says which",
    )


def _output(outputs: Mapping[str, Sequence[Any]], name: str) -> Sequence[Any]:
    if name not in outputs:
        raise BackendError(
            f"the loss needs {name!r} from the forward pass.",
            f"found: the backend gave {', '.join(outputs) or 'logprobs only'}",
            "use the backend torch, or a loss of sampled tokens (opd.mode=pg)",
        )
    return outputs[name]
