"""States of layers that keep one (`interface.State`) over a packed row that shares prompts.

A shared prompt is read once, beside prompts of its length only: nothing follows its last token. Its
completions go on from the state after it, and their gradients meet there.

Shapes: N tokens of the row, P leads, R completions, C width, b sequences read together, n tokens.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rlvr_torch.models.interface import State, Step


class PackedStates:
    """The `Carry` of a row: leads, then completions (`prefix_packing.Row`)."""

    def __init__(
        self,
        leads: np.ndarray,  # lengths (P,)
        rests: np.ndarray,  # lengths (R,) of completions
        owners: np.ndarray,  # (R,) which lead each of them goes on from; the first ones have some
        device: torch.device,
    ) -> None:
        lengths = np.concatenate([leads, rests])
        starts = lengths.cumsum() - lengths
        is_there = rests > 0
        shared = int(owners.max()) + 1 if is_there.any() else 0
        prompts = [np.flatnonzero(leads[:shared] == n) for n in np.unique(leads[:shared])]
        alone = np.arange(shared, len(leads))
        going_on = len(leads) + np.flatnonzero(is_there)

        def stacked(which: np.ndarray) -> _Stacked:
            return _Stacked(starts[which], lengths[which], device)

        self._prompts = [stacked(which) for which in prompts]
        self._alone = stacked(alone) if len(alone) else None
        self._rests = stacked(going_on) if shared else None
        if shared:
            places = np.argsort(np.concatenate(prompts))[owners[is_there]]
            self._owners = torch.from_numpy(places).to(device)
        parts = [*self._prompts, self._alone, self._rests]
        order = np.concatenate([part.at for part in parts if part is not None])
        self._back = torch.from_numpy(np.argsort(order)).to(device)  # (N,)

    def __call__(self, layer: int, inputs: Tensor, step: Step) -> Tensor:
        """Outputs (1, N, C) of a layer for the row's inputs (1, N, C)."""
        tokens, mixed = inputs[0], []
        states: list[State] = []
        for prompts in self._prompts:
            read, state = prompts.run(tokens, step, {})
            mixed.append(read)
            states.append(state)
        if self._alone is not None:
            mixed.append(self._alone.run(tokens, step, {})[0])
        if self._rests is not None:
            after = {
                name: torch.cat([state[name] for state in states]).index_select(0, self._owners)
                for name in states[0]
            }
            mixed.append(self._rests.run(tokens, step, after)[0])
        return torch.cat(mixed).index_select(0, self._back)[None]


class _Stacked:
    """Sequences of the row that are read together, padded on the right."""

    def __init__(self, starts: np.ndarray, lengths: np.ndarray, device: torch.device) -> None:
        steps = np.arange(lengths.max())
        is_token = steps < lengths[:, None]  # (b, n)
        places = np.where(is_token, starts[:, None] + steps, 0)
        self.at = places[is_token]  # places in the row
        self._places = torch.from_numpy(places).to(device)
        self._is_token = torch.from_numpy(np.flatnonzero(is_token)).to(device)

    def run(self, tokens: Tensor, step: Step, state: State) -> tuple[Tensor, State]:
        """Outputs of their tokens, and the states after their last places."""
        mixed, after = step(tokens[self._places], state)
        return mixed.flatten(0, 1).index_select(0, self._is_token), after
