"""Final hidden states for training: one row of tokens without padding, shared prompts once.

A micro-batch is *one* sequence of N tokens with position ids: each distinct prompt, then the
completions that go on from it. G completions of one prompt of S tokens cost S + G * T instead of
G * (S + T). Linear layers, norms and the output head see no padding; only attention spreads its
queries and keys over padded stacks of sequences, inside one layer at a time, where each sequence
sees its prompt and its own past. Gradients flow back into a shared prompt through its keys.

Shapes: N tokens of the row, P leads (shared prompts, or whole sequences that share nothing), S
their longest length, R completions of shared prompts, T the longest of them, C width, H heads, D
width of a head.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np
import torch
from attrs import frozen
from torch import Tensor

from rlvr import Datum
from rlvr_torch.models.attention import attend_over, causal, in_sight
from rlvr_torch.models.interface import Attend, Net
from rlvr_torch.training.packing.packed_states import PackedStates


@frozen(kw_only=True)
class SupervisedSpan:
    """The end of a datum's unsupervised lead, and the end of its supervised tokens (exclusive)."""

    prompt: int
    end: int

    @classmethod
    def of(cls, datum: Datum) -> SupervisedSpan:
        """The extent of a datum; both 0 where nothing is supervised."""
        at = np.flatnonzero(datum.mask)
        return cls(prompt=int(at[0]), end=int(at[-1]) + 1) if len(at) else cls(prompt=0, end=0)


def supervised_hidden(
    net: Net, data: Sequence[Datum], attention: PackedAttend | None = None
) -> Tensor:
    """
    The hidden state that predicts each supervised token, (N, C): datum by datum, in order.

    Args:
        net: Any model; its layers' windows, soft caps and sinks are kept.
        data: Each has a supervised token, and not its first. Equal prompts are computed once.
        attention: How the row attends; None: `BlockAttention`.
    """
    device = net.head.device
    row = Row.of(data)
    hidden = net.hidden(
        torch.from_numpy(row.tokens).to(device)[None],
        torch.from_numpy(row.positions).to(device)[None],
        (attention or BlockAttention)(net, row, device),
    )
    return hidden[0].index_select(0, torch.from_numpy(row.supervised).to(device))


def reads(data: Sequence[Datum]) -> np.ndarray:
    """The number of data that hold each token of their row, (N,) float32: of a prompt, several."""
    row = Row.of(data)
    sizes = np.bincount(row.owners, minlength=len(row.leads)).clip(1)
    own = np.ones(int(row.rests.sum()))
    return np.concatenate([np.repeat(sizes, row.leads), own]).astype(np.float32)


@frozen(kw_only=True, eq=False)
class Row:
    """A micro-batch as one row."""

    tokens: np.ndarray  # (N,) leads, then completions; a datum's last token is predicted, not read
    positions: np.ndarray  # (N,) of each token in its own sequence
    leads: np.ndarray  # lengths (P,) of the leads
    rests: np.ndarray  # lengths (R,) of the completions of shared leads, without their last token
    owners: np.ndarray  # (R,) which lead each of them goes on from
    supervised: np.ndarray  # where in the row each supervised token is predicted, datum by datum

    @classmethod
    def of(cls, data: Sequence[Datum]) -> Row:
        extents = [SupervisedSpan.of(datum) for datum in data]
        members: dict[bytes, list[int]] = {}
        for i, (datum, extent) in enumerate(zip(data, extents, strict=True)):
            members.setdefault(datum.tokens[: extent.prompt].tobytes(), []).append(i)
        groups = sorted(members.values(), key=lambda group: len(group) == 1)  # shared ones first
        # Who shares its prompt with nobody is one sequence.
        leads = [
            data[g[0]].tokens[: extents[g[0]].prompt if len(g) > 1 else extents[g[0]].end - 1]
            for g in groups
        ]
        lead_lengths = np.array([len(lead) for lead in leads])
        lead_starts = np.cumsum(lead_lengths) - lead_lengths
        pieces, positions = list(leads), [np.arange(n) for n in lead_lengths]
        rests, owners = [], []
        at: dict[int, np.ndarray] = {}
        end = int(lead_lengths.sum())
        for owner, group in enumerate(groups):
            for i in group:
                datum, extent = data[i], extents[i]
                supervised = np.flatnonzero(datum.mask) - 1
                if len(group) == 1:
                    at[i] = lead_starts[owner] + supervised
                    continue
                pieces.append(datum.tokens[extent.prompt : extent.end - 1])
                positions.append(np.arange(extent.prompt, extent.end - 1))
                at[i] = end + supervised - extent.prompt
                at[i][0] = lead_starts[owner] + extent.prompt - 1  # the prompt predicts the first
                end += len(pieces[-1])
                rests.append(len(pieces[-1]))
                owners.append(owner)
        return cls(
            tokens=np.concatenate(pieces).astype(np.int64),
            positions=np.concatenate(positions),
            leads=lead_lengths,
            rests=np.array(rests, dtype=np.int64),
            owners=np.array(owners, dtype=np.int64),
            supervised=np.concatenate([at[i] for i in range(len(data))]),
        )


PackedAttend: TypeAlias = Callable[[Net, Row, torch.device], Attend]
"""Makes the `Attend` of a row for a net on a device."""


class BlockAttention:
    """The `Attend` of a row: each sequence sees its prompt and its own past, nothing else."""

    def __init__(self, net: Net, row: Row, device: torch.device) -> None:
        self._heads = net.heads
        self._row, self._device = row, device
        self._leads = _Stack(row.leads, device)
        self._rests: _Stack | None = None
        if len(row.rests) and row.rests.max():
            self._rests = _Stack(row.rests, device)
            self._owners = torch.from_numpy(row.owners).to(device)  # (R,)
            self._prompts = torch.from_numpy(row.leads[row.owners]).to(device)  # (R,) tokens
            self._longest = int(row.leads[row.owners].max())
            sizes = np.bincount(row.owners)  # completions of each shared lead; those come first
            self._groups = (len(sizes), int(sizes[0])) if (sizes == sizes[0]).all() else None
        self._masks: dict[tuple[str, int | None], Tensor | None] = {}

    @cached_property
    def carry(self) -> PackedStates:
        """How layers carry states."""
        row = self._row
        return PackedStates(row.leads, row.rests, row.owners, self._device)

    def __call__(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None = None
    ) -> Tensor:
        heads = self._heads[layer]
        (lead_q, q), (lead_k, k), (lead_v, v) = (self._apart(x) for x in (q, k, v))
        sees = self._mask("lead", heads.window)
        mixed = self._leads.collect(attend_over(heads, lead_q, lead_k, lead_v, sees, sinks))
        if self._rests is not None:
            keys, values = self._beside(lead_k, k), self._beside(lead_v, v)
            sees = self._mask("rest", heads.window)
            own = self._rests.collect(attend_over(heads, q, keys, values, sees, sinks))
            mixed = torch.cat([mixed, own])
        return mixed.transpose(0, 1)[None]

    def _apart(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """(1, H, N, D) to (P, H, S, D) and (R, H, T, D)."""
        tokens = values[0].transpose(0, 1)  # (N, H, D)
        if self._rests is None:
            return self._leads.spread(tokens), tokens
        lead, rest = tokens.split([self._leads.tokens, self._rests.tokens])
        return self._leads.spread(lead), self._rests.spread(rest)

    def _beside(self, lead: Tensor, own: Tensor) -> Tensor:
        """(P, K, S, D) and (R, K, T, D) to (R, K, S + T, D): each completion after its prompt."""
        lead = lead[:, :, : self._longest]
        if self._groups is None:
            return torch.cat([lead.index_select(0, self._owners), own], dim=2)
        prompts, size = self._groups  # no copy of a prompt but the one into place
        shared = lead[:prompts, None].expand(-1, size, -1, -1, -1)
        return torch.cat([shared, own.unflatten(0, (prompts, size))], dim=3).flatten(0, 1)

    def _mask(self, which: str, window: int | None) -> Tensor | None:
        if (which, window) not in self._masks:
            mask = self._rest_mask(window) if which == "rest" else self._lead_mask(window)
            self._masks[which, window] = mask
        return self._masks[which, window]

    def _lead_mask(self, window: int | None) -> Tensor | None:
        """None: causal is enough."""
        if window is None or window >= self._leads.longest:
            return None
        return causal(self._leads.longest, self._device, window)

    def _rest_mask(self, window: int | None) -> Tensor:
        """(R, 1, T, S + T): a completion sees its prompt without padding, and its own past."""
        assert self._rests is not None
        slots = torch.arange(self._longest, device=self._device)  # (S,)
        steps = torch.arange(self._rests.longest, device=self._device)  # (T,)
        at = self._prompts[:, None] + steps  # (R, T)
        sees_prompt = in_sight(at[:, :, None], slots, window)  # (R, T, S)
        sees_prompt &= (slots < self._prompts[:, None])[:, None]
        sees_own = in_sight(steps[:, None], steps, window).expand(len(at), -1, -1)  # (R, T, T)
        return torch.cat([sees_prompt, sees_own], dim=2)[:, None]


class _Stack:
    """Sequences that lie one after the other, as a padded stack (B, ..., L, ...), and back."""

    def __init__(self, lengths: np.ndarray, device: torch.device) -> None:
        self.tokens, self.longest = int(lengths.sum()), int(lengths.max())
        self._count = len(lengths)
        self._where: Tensor | None = None
        if (lengths == self.longest).all():  # nothing to pad: views are enough
            return
        steps = np.arange(self.longest)
        is_token = steps < lengths[:, None]  # (B, L)
        starts = np.cumsum(lengths) - lengths
        # Padding repeats a token, which is finite; no mask lets anything see it.
        where = np.where(is_token, starts[:, None] + steps, 0)
        self._where = torch.from_numpy(where.reshape(-1)).to(device)
        self._is_token = torch.from_numpy(np.flatnonzero(is_token)).to(device)  # (n,)

    def spread(self, tokens: Tensor) -> Tensor:
        """(n, H, D) to (B, H, L, D)."""
        if self._where is not None:
            tokens = tokens.index_select(0, self._where)
        return tokens.unflatten(0, (self._count, self.longest)).transpose(1, 2)

    def collect(self, values: Tensor) -> Tensor:
        """(B, H, L, D) to (n, H, D)."""
        tokens = values.transpose(1, 2).flatten(0, 1)  # (B * L, H, D)
        return tokens if self._where is None else tokens.index_select(0, self._is_token)
