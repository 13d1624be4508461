"""A forward pass made up for tests of losses: logprobs, and what else a loss asks for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np
from attrs import frozen

from rlvr.checks import check_loss
from rlvr.parts import Loss
from rlvr.testing.distilling import VOCABULARY
from rlvr.testing.tools import require_torch
from rlvr.types import Datum

HIDDEN, HEAD = "hidden", "head"
"""Outputs that are no numbers (T,): states (n, C) a datum, and the one output head."""
_WIDTH = 3


@frozen(kw_only=True, eq=False)
class Forward:
    """
    Tensors (T,), one a datum, with gradients: `logprobs`, and each of `outputs` by name.

    "hidden" are states (n, 3) of the masked tokens instead, and "head" one output head.
    `taking` keeps the leaves; the other changes make new ones, without gradients.
    """

    logprobs: Sequence[Any]
    outputs: Mapping[str, Sequence[Any]]
    masks: Sequence[np.ndarray]

    @classmethod
    def near(cls, data: Sequence[Datum], outputs: frozenset[str], *, spread: float) -> Forward:
        """Logprobs in float64 within `spread` nats of the sampler's, outputs in -1..2."""
        rng = np.random.default_rng(4)
        return cls(
            logprobs=leaves(
                np.where(d.mask, d.logprobs + spread * rng.uniform(-1, 1, d.mask.size), -1.0)
                for d in data
            ),
            outputs={name: _output(name, data, rng) for name in sorted(outputs)},
            masks=[d.mask for d in data],
        )

    def changed(self, change: Callable[[Any, int], Any]) -> Forward:
        """Each row (T,) put through `change(values, place of its datum)`."""

        def rows(tensors: Sequence[Any]) -> list[Any]:
            return leaves(change(x.detach().numpy(), i) for i, x in enumerate(tensors))

        def same(name: str, tensors: Sequence[Any]) -> list[Any]:
            if name == HEAD:
                return [_head(tensors[0].weights.detach().numpy())]
            return leaves(x.detach().numpy() for x in tensors)

        return Forward(
            logprobs=rows(self.logprobs),
            outputs={
                name: same(name, tensors) if name in (HIDDEN, HEAD) else rows(tensors)
                for name, tensors in self.outputs.items()
            },
            masks=self.masks,
        )

    def fresh(self) -> Forward:
        """The same values in new leaves."""
        return self.changed(lambda values, _: values)

    def taking(self, places: Sequence[int]) -> Forward:
        """The data at these places, in that order."""
        outputs = self.outputs.items()
        return Forward(
            logprobs=[self.logprobs[i] for i in places],
            outputs={k: v if k == HEAD else [v[i] for i in places] for k, v in outputs},
            masks=[self.masks[i] for i in places],
        )

    def padded(self, count: int) -> Forward:
        """With `count` more tokens at each end."""
        longer = self.changed(lambda values, _: np.append(values, [-1.0] * count))
        return attrs.evolve(longer, masks=[np.append(m, [False] * count) for m in self.masks])

    def soiled(self, data: Sequence[Datum]) -> Forward:
        """With NaN wherever the mask is False."""
        return self.changed(lambda values, i: np.where(data[i].mask, values, np.nan))

    def extreme(self, values: np.ndarray) -> Forward:
        """Other outputs become `values / 1e3`; logits of the states lie 1e3 times as far apart."""
        found = dict(self.outputs)
        for name in found.keys() - {HIDDEN, HEAD}:
            found[name] = leaves([values / 1e3])
        if HIDDEN in found:
            found[HIDDEN] = leaves(1e3 * x.detach().numpy() for x in found[HIDDEN])
        return attrs.evolve(self, outputs=found)

    def through(self, loss: Loss, data: Sequence[Datum]) -> tuple[Any, dict[str, float]]:
        """Call the loss as the backend does, which refuses what it cannot use."""
        value, metrics = check_loss(loss, loss(data, self.logprobs, self.outputs), self.logprobs)
        return value, metrics

    def gradients(self) -> list[np.ndarray]:
        """
        The gradients of each datum, one below the other: shape (1 + outputs, T).

        States have a row for each of their numbers. The head's are not among them: see `moves`.
        """
        names = sorted(self.outputs.keys() - {HIDDEN, HEAD})
        rows = [self.logprobs, *(self.outputs[name] for name in names)]
        found = [np.stack([gradient(x) for x in column]) for column in zip(*rows, strict=True)]
        if HIDDEN not in self.outputs:
            return found
        return [
            np.concatenate([one, _spread(gradient(states), mask)])
            for one, states, mask in zip(found, self.outputs[HIDDEN], self.masks, strict=True)
        ]

    def moves(self, name: str) -> bool:
        """Whether a gradient arrived at an output."""
        tensors = [x.weights if name == HEAD else x for x in self.outputs[name]]
        return any(bool(gradient(x).any()) for x in tensors)

    def values(self) -> list[np.ndarray]:
        """All tensors as arrays, to see that they were left alone."""
        rows = [self.logprobs, *(self.outputs[name] for name in sorted(self.outputs))]
        tensors = [getattr(x, "weights", x) for row in rows for x in row]
        return [x.detach().numpy().copy() for x in tensors]


def _output(name: str, data: Sequence[Datum], rng: np.random.Generator) -> list[Any]:
    if name == HEAD:
        return [_head(rng.uniform(-1, 2, (VOCABULARY, _WIDTH)))]
    if name == HIDDEN:
        return leaves(rng.uniform(-1, 2, (int(d.mask.sum()), _WIDTH)) for d in data)
    return leaves(rng.uniform(-1, 2, d.mask.size) for d in data)


def _head(weights: np.ndarray) -> Any:
    return SimpleNamespace(weights=leaves([weights])[0], bias=None, scale=1.0, softcap=0.0)


def _spread(states: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Rows (n, C) at the places of the mask, (C, T)."""
    found = np.zeros((states.shape[1], len(mask)))
    found[:, mask] = states.T
    return found


def leaves(rows: Any) -> list[Any]:
    """Arrays as tensors with gradients."""
    return [require_torch().tensor(np.asarray(row), requires_grad=True) for row in rows]


def gradient(x: Any) -> np.ndarray:
    """The gradient of a leaf, zeros where nothing arrived."""
    found: np.ndarray = np.zeros(tuple(x.shape)) if x.grad is None else x.grad.numpy().copy()
    return found


def agreeing(data: Sequence[Datum], needs: Collection[str]) -> list[Datum]:
    """The data as if every model the loss asks for were the sampler itself."""
    return [attrs.evolve(d, annotations=dict.fromkeys(needs, d.logprobs)) for d in data]


def annotated_more(data: Sequence[Datum], names: Collection[str]) -> list[Datum]:
    """The data with an annotation of each name, where they have none of it."""
    more = [{name: np.full(len(d.tokens), -0.7, np.float32) for name in names} for d in data]
    return [
        attrs.evolve(d, annotations={**other, **d.annotations})
        for d, other in zip(data, more, strict=True)
    ]


def soiled(datum: Datum) -> Datum:
    """The datum with NaN in its annotations wherever the mask is False."""
    annotations = {
        name: np.where(datum.mask, array, np.nan).astype(np.float32)
        for name, array in datum.annotations.items()
    }
    return attrs.evolve(datum, annotations=annotations)


def padded(datum: Datum, count: int) -> Datum:
    """The datum with `count` more tokens outside the mask at its end."""

    def longer(array: Any) -> Any:
        return np.append(array, np.zeros(count, array.dtype))

    names = ("tokens", "mask", "logprobs", "advantages", "weights")
    annotations = {name: longer(array) for name, array in datum.annotations.items()}
    rows = {name: longer(getattr(datum, name)) for name in names}
    return attrs.evolve(datum, annotations=annotations, **rows)
