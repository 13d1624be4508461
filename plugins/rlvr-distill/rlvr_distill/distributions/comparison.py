"""Row chunks through a divergence: values, metrics, and the gradient by logits where they lay.

A chunk is as small as keeps its five buffers near the processor. Rows that weigh nothing are never
looked at.

Shapes: N positions, n of a chunk, V vocabulary of both, W of the student (with its padding).
"""

from __future__ import annotations

from typing import Any, cast

import attrs
from attrs import frozen
from torch import Tensor

from rlvr_distill.distributions.buckets import Buckets, compare_buckets, likeliest
from rlvr_distill.distributions.seen import Seen, misses
from rlvr_distill.distributions.sides import Side, Sparse
from rlvr_distill.divergences.pair import Kernel, Workspace

_NEAR = 1 << 19
"""Bytes of a chunk's buffer on a processor: five fit its second cache."""
_FAR = 1 << 26
"""Bytes of a chunk's buffer on an accelerator."""


@frozen(kw_only=True, eq=False)
class Comparison:
    """
    What is compared, and how.

    Attributes:
        kernel: The divergence.
        teacher: Logits (N, V), a head that makes them, or the logprobs of a few tokens.
        weights: (N,) of the rows' divergences in the loss, detached.
        pull: (N, 1) of the gradients by logits over `heat`, in the type to compute in.
        heat: (N, 1) temperatures, or one number.
        targets: (N,) tokens that stand there, or None.
        names: Metrics wanted (`seen.NAMES`).
        chunk: Rows at a time; 0: as suits the machine.
        buckets: Of a `Sparse` teacher, made once for all rows.
        doubles_misses: Whether a row counts twice where the likeliest token is not the teacher's;
            `weights` and `pull` are then overwritten.
    """

    kernel: Kernel
    teacher: Side
    weights: Tensor
    pull: Tensor
    heat: Tensor | float = 1.0
    targets: Tensor | None = None
    names: tuple[str, ...] = ()
    chunk: int = 0
    buckets: Buckets | None = None
    doubles_misses: bool = False

    def live(self) -> Tensor | None:
        """Places (n,) of the rows to compute; None where that is all of them."""
        counts = self.weights != 0
        if isinstance(self.teacher, Sparse):
            counts = counts & (self.teacher.ids >= 0).any(dim=1)
        places = counts.nonzero()[:, 0]
        return None if len(places) == len(self.weights) else places

    def again(self) -> Comparison:
        """The same for rows that were compared before: misses count already."""
        return attrs.evolve(self, doubles_misses=False)

    def vocabulary(self, student: int) -> int:
        """
        Ids that both sides have.

        Raises:
            ValueError: The vocabularies differ by more than padding, or the teacher told others.
        """
        return self.teacher.shared_with(student)

    def workspace(self, rows: int, vocabulary: int, like: Tensor) -> Workspace | None:
        """Buffers for chunks, where whole distributions are looked at."""
        is_few = self.teacher.is_few or (self.kernel.support and not self.names)
        return None if is_few else Workspace(rows, vocabulary, like, like.dtype)

    def rows_at_once(self, vocabulary: int, like: Tensor) -> int:
        room = _FAR if like.is_cuda else _NEAR
        if self.teacher.is_few:
            room *= 4  # one buffer, not five
        return self.chunk or max(self.kernel.rows, room // (vocabulary * like.element_size()), 1)

    def compare(
        self,
        told: Tensor | Sparse,
        logits: Tensor,
        rows: Any,
        out: Tensor,
        work: Workspace | None,
        seen: Seen,
        is_safe: bool,
    ) -> Tensor:
        """
        Values (n,) of some rows; their weighted gradient by logits goes to `out`.

        Args:
            told: The teacher's side of the rows.
            logits: (n, W) of the student; may be `out` itself.
            rows: Their places among the N.
            out: (n, W) in the type to compute in; columns that only one side has become 0.
            work: What `workspace` gave.
            seen: Takes the metrics.
            is_safe: Whether impossible tokens are expected: without, values may not be finite.
        """
        heat = self.heat if isinstance(self.heat, float) else self.heat[rows]
        targets = None if self.targets is None else self.targets[rows]
        if self.doubles_misses:
            factor = 1 + misses(told, logits).to(self.pull)
            self.weights[rows] *= factor
            self.pull[rows] *= factor[:, None]
        pull = self.pull[rows]
        if isinstance(told, Sparse) and self.buckets is not None:
            seen.look_at_few(told, logits, heat, targets, rows)
            return compare_buckets(self.kernel, self.buckets.rows(rows), logits, heat, out, pull)
        told = cast(Tensor, told)
        size = min(told.shape[1], logits.shape[1])
        if told.shape[1] != size:
            told = told[:, :size]
        if logits.shape[1] != size:
            out[:, size:] = 0.0
            logits, out = logits[:, :size], out[:, :size]
        if seen.names and work is not None:
            seen.look(work.pair(told, logits, heat, is_safe=True).settled(), targets, rows)
        if work is None or self.kernel.support:
            few = likeliest(told, logits, self.kernel.support, targets, heat)
            ready = Buckets.of(few, self.kernel, out.dtype)
            return compare_buckets(self.kernel, ready, logits, heat, out, pull)
        return self.kernel(work.pair(told, logits, heat, is_safe=is_safe), pull, out)
