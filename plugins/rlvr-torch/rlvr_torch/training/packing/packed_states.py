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
        alone = shared + np.flatnonzero(leads[shared:])  # of an unsupervised one nothing is read
        going_on = len(leads) + np.flatnonzero(is_there)

        def stacked(which: np.ndarray, least: int = 1) -> _Stacked:
            return _Stacked(starts[which], lengths[which], least, device)

        def alike(which: np.ndarray) -> list[np.ndarray]:  # less than half of a stack is padding
            sizes = np.ceil(np.log2(lengths[which]))
            return [which[sizes == size] for size in np.unique(sizes)]

        self._prompts = [stacked(which) for which in prompts]
        self._alone = [stacked(which) for which in alike(alone)]
        self._rests: list[tuple[_Stacked, Tensor]] = []
        if shared:
            places = np.argsort(np.concatenate(prompts))
            for which in alike(going_on):
                after = torch.from_numpy(places[owners[which - len(leads)]]).to(device)
                # One token after a state would be read as in decoding, by kernels that have no
                # backward pass.
                self._rests.append((stacked(which, least=2), after))
        parts = [*self._prompts, *self._alone, *(part for part, _ in self._rests)]
        order = np.concatenate([part.at for part in parts])
        self._back = torch.from_numpy(np.argsort(order)).to(device)  # (N,)

    def __call__(self, layer: int, inputs: Tensor, step: Step) -> Tensor:
        """Outputs (1, N, C) of a layer for the row's inputs (1, N, C)."""
        tokens, mixed = inputs[0], []
        states: list[State] = []
        for prompts in self._prompts:
            read, state = prompts.run(tokens, step, {})
            mixed.append(read)
            states.append(state)
        mixed += [part.run(tokens, step, {})[0] for part in self._alone]
        if self._rests:
            after = {name: torch.cat([state[name] for state in states]) for name in states[0]}
            for part, owners in self._rests:
                begun = {name: value.index_select(0, owners) for name, value in after.items()}
                mixed.append(part.run(tokens, step, begun)[0])
        return torch.cat(mixed).index_select(0, self._back)[None]


class _Stacked:
    """Sequences of the row that are read together, padded on the right."""

    def __init__(
        self, starts: np.ndarray, lengths: np.ndarray, least: int, device: torch.device
    ) -> None:
        steps = np.arange(max(least, lengths.max()))
        is_token = steps < lengths[:, None]  # (b, n)
        places = np.where(is_token, starts[:, None] + steps, 0)
        self.at = places[is_token]  # places in the row
        self._places = torch.from_numpy(places).to(device)
        self._is_token = torch.from_numpy(np.flatnonzero(is_token)).to(device)

    def run(self, tokens: Tensor, step: Step, state: State) -> tuple[Tensor, State]:
        """Outputs of their tokens, and the states after their last places."""
        mixed, after = step(tokens[self._places], state)
        return mixed.flatten(0, 1).index_select(0, self._is_token), after
