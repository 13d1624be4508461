"""A model in training: one adapter, its optimiser, and the gradients since the last step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from attrs import define, field
from tinker.types import AdamParams
from torch import Tensor

from rlvr_tinker_server.nets.adam import Adam
from rlvr_tinker_server.nets.adapters import AdaptedNet, Factors, Shape
from rlvr_tinker_server.nets.forward import positions_hidden, target_logprobs
from rlvr_tinker_server.nets.losses import Loss
from rlvr_tinker_server.refusal import Refusal
from rlvr_tinker_server.wire import Row

_SHORTEST_LEAD = 8  # tokens


@define(eq=False)
class Model:
    """What `create_model` makes. Its methods run in the worker's thread, one at a time."""

    net: AdaptedNet  # the base with all adapters
    shape: Shape
    seed: int  # what its first factors were drawn with
    factors: dict[str, tuple[Tensor, Tensor]]  # site to (A, B), trained
    adam: Adam = field(factory=Adam)
    broken: str = ""  # why the gradients collected so far must not be used; "" where they may

    def __attrs_post_init__(self) -> None:
        for weight in self.weights().values():
            weight.requires_grad_(True)

    def weights(self) -> dict[str, Tensor]:
        """
        All trained tensors by name, in the order of the net's sites.

        The last bit of the gradient's norm depends on the order, and a checkpoint's tensors come in
        another order each time.
        """
        return {
            f"{site}.{name}": tensor
            for site in self.net.sites
            if site in self.factors
            for name, tensor in zip("AB", self.factors[site], strict=True)
        }

    def snapshot(self) -> Factors:
        """The adapter as it is now; later steps do not change it."""
        return {
            site: (a.detach().clone(), b.detach().clone()) for site, (a, b) in self.factors.items()
        }

    def run(
        self,
        rows: Sequence[Row],
        loss: Loss,
        *,
        is_forward_only: bool,
        dtype: torch.dtype,
        most_tokens: int,
        is_cancelled: Callable[[], bool],
    ) -> tuple[list[np.ndarray], float]:
        """
        Logprobs of each row's targets and the sum of the losses; gradients add up.

        The sum splits exactly, so a batch is computed some `most_tokens` tokens at a time.

        Raises:
            Refusal: The loss is not finite, or `is_cancelled` said so. The gradients collected so
                far are then unusable, and the next step is refused.
        """
        found: list[np.ndarray] = [np.zeros(0)] * len(rows)
        total = 0.0
        try:
            for batch in _batches([len(row.tokens) for row in rows], most_tokens):
                if is_cancelled():
                    raise Refusal("the server is closing", 503)
                some = [rows[i] for i in batch]
                with torch.set_grad_enabled(not is_forward_only), self.net.using(self.factors):
                    logprobs = self._logprobs(some, loss, dtype)
                    value = torch.stack(
                        [loss(p, self._tensors(row)) for p, row in zip(logprobs, some, strict=True)]
                    ).sum()
                    total += (number := float(value.detach()))
                    if not math.isfinite(number):
                        raise Refusal(f"the loss is {number}: no gradient was taken")
                    if not is_forward_only:
                        value.backward()
                for i, p in zip(batch, logprobs, strict=True):
                    found[i] = p.detach().cpu().numpy()
        except BaseException as error:
            if not is_forward_only:
                self.broken = str(error) or type(error).__name__
            raise
        return found, total

    def step(self, params: AdamParams) -> dict[str, float]:
        """
        One update by the gradients since the last one, which are spent afterwards.

        Raises:
            Refusal: A pass since the last step failed, or see `Adam.step`. Nothing has moved.
        """
        weights = self.weights()
        try:
            if self.broken:
                raise Refusal(
                    f"a forward_backward before this step failed ({self.broken}): its gradients "
                    "are incomplete, and the step was not taken"
                )
            norm = self.adam.step(weights, params)
        finally:
            self.broken = ""
            for weight in weights.values():
                weight.grad = None
        return {"grad_norm": norm, "lr": params.learning_rate, "steps": float(self.adam.steps)}

    def _logprobs(self, rows: Sequence[Row], loss: Loss, dtype: torch.dtype) -> list[Tensor]:
        """(N,) or (N, K) of each row; prompts that rows share are computed once."""
        shares = shared_leads(rows, [loss.begin(row) for row in rows])
        begins = [0] * len(rows)
        leads: dict[int, Tensor] = {}
        for members, begin in shares:  # no loss has a gradient there
            with torch.no_grad():
                (lead,) = self._ends(rows[members[0] : members[0] + 1], [0], [begin], dtype)
            for i in members:
                begins[i], leads[i] = begin, lead
        ends = self._ends(rows, begins, [len(row.tokens) for row in rows], dtype)
        return [torch.cat([leads[i], p]) if i in leads else p for i, p in enumerate(ends)]

    def _ends(
        self, rows: Sequence[Row], begins: Sequence[int], ends: Sequence[int], dtype: torch.dtype
    ) -> list[Tensor]:
        """Logprobs of each row's targets from `begins` to `ends` (exclusive)."""
        tokens = [row.tokens[:end] for row, end in zip(rows, ends, strict=True)]
        hidden = positions_hidden(self.net, tokens, dtype, begins)
        lengths = [end - begin for begin, end in zip(begins, ends, strict=True)]
        targets = [
            row.inputs["target_tokens"][begin:end]
            for row, begin, end in zip(rows, begins, ends, strict=True)
        ]
        if len({one.shape[1:] for one in targets}) == 1:  # all positions meet the head together
            flat = target_logprobs(self.net, hidden, self._ids(np.concatenate(targets)))
            found = list(flat.split(lengths))
        else:
            parts = hidden.split(lengths)
            found = [
                target_logprobs(self.net, part, self._ids(one))
                for part, one in zip(parts, targets, strict=True)
            ]
        return [p.view(one.shape) for p, one in zip(found, targets, strict=True)]

    def _ids(self, targets: np.ndarray) -> Tensor:
        """(N, K) int64."""
        table = targets[:, None] if targets.ndim == 1 else targets
        return torch.from_numpy(table.astype(np.int64)).to(self.net.head.device)

    def _tensors(self, row: Row) -> dict[str, Tensor]:
        device = self.net.head.device
        return {
            name: torch.from_numpy(values.astype(np.float32)).to(device)
            for name, values in row.inputs.items()
            if name != "target_tokens"
        }


def shared_leads(rows: Sequence[Row], begins: Sequence[int]) -> list[tuple[list[int], int]]:
    """
    Groups of rows that are equal up to their first token with a gradient, and its place.

    Short leads are left out.
    """
    groups: dict[bytes, list[int]] = {}
    for i, (row, begin) in enumerate(zip(rows, begins, strict=True)):
        targets = row.inputs["target_tokens"][:begin]
        parts = row.tokens[: begin + 1], targets, np.array(targets.shape)
        groups.setdefault(b"|".join(part.tobytes() for part in parts), []).append(i)
    return [
        (members, begins[members[0]])
        for members in groups.values()
        if len(members) > 1 and begins[members[0]] >= _SHORTEST_LEAD
    ]


def _batches(lengths: Sequence[int], most_tokens: int) -> list[list[int]]:
    """Indices in order, in pieces of at most so many tokens (a longer row is a piece by itself)."""
    pieces: list[list[int]] = []
    size = 0
    for i, length in enumerate(lengths):
        if not pieces or size + length > most_tokens:
            pieces.append([])
            size = 0
        pieces[-1].append(i)
        size += length
    return pieces
