"""A forward pass made up for tests of losses: logprobs, and what else a loss asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import pytest
from attrs import frozen

from rlvr.parts import Loss
from rlvr.types import Datum


@frozen(kw_only=True, eq=False)
class Forward:
    """
    Tensors (T,), one a datum, with gradients: `logprobs`, and each of `outputs` by name.

    The changes (`reversed`, `only`, `padded`, `soiled`) give new leaves without gradients.
    """

    logprobs: Sequence[Any]
    outputs: Mapping[str, Sequence[Any]]

    @classmethod
    def near(cls, data: Sequence[Datum], outputs: frozenset[str], *, spread: float) -> Forward:
        """Logprobs in float64 within `spread` nats of the sampler's, outputs in -1..2."""
        rng = np.random.default_rng(4)
        return cls(
            logprobs=leaves(
                np.where(d.mask, d.logprobs + spread * rng.uniform(-1, 1, d.mask.size), -1.0)
                for d in data
            ),
            outputs={
                name: leaves(rng.uniform(-1, 2, d.mask.size) for d in data)
                for name in sorted(outputs)
            },
        )

    def changed(self, change: Callable[[Any, int], Any]) -> Forward:
        """Each row (T,) put through `change(values, place of its datum)`."""

        def rows(tensors: Sequence[Any]) -> list[Any]:
            return leaves(change(x.detach().numpy(), i) for i, x in enumerate(tensors))

        return Forward(
            logprobs=rows(self.logprobs),
            outputs={name: rows(tensors) for name, tensors in self.outputs.items()},
        )

    def fresh(self) -> Forward:
        """The same values."""
        return self.changed(lambda values, _: values)

    def reversed(self) -> Forward:
        """The data in reverse order."""
        new = self.fresh()
        return Forward(
            logprobs=new.logprobs[::-1], outputs={k: v[::-1] for k, v in new.outputs.items()}
        )

    def only(self, place: int) -> Forward:
        """One datum."""
        new = self.fresh()
        return Forward(
            logprobs=[new.logprobs[place]], outputs={k: [v[place]] for k, v in new.outputs.items()}
        )

    def padded(self, count: int) -> Forward:
        """With `count` more tokens at each end."""
        return self.changed(lambda values, _: np.append(values, [-1.0] * count))

    def soiled(self, data: Sequence[Datum]) -> Forward:
        """With NaN wherever the mask is False."""
        return self.changed(lambda values, i: np.where(data[i].mask, values, np.nan))

    def through(self, loss: Loss, data: Sequence[Datum]) -> tuple[Any, dict[str, float]]:
        """Call the loss as the backend does: with outputs where it names some."""
        if not self.outputs:
            return loss(data, self.logprobs)
        call: Any = loss
        answer: tuple[Any, dict[str, float]] = call(data, self.logprobs, self.outputs)
        return answer

    def gradients(self) -> list[np.ndarray]:
        """Of each datum, its gradients one below the other: shape (1 + outputs, T)."""
        rows = [self.logprobs, *(self.outputs[name] for name in sorted(self.outputs))]
        return [np.stack([gradient(x) for x in column]) for column in zip(*rows, strict=True)]

    def values(self) -> list[np.ndarray]:
        """All tensors as arrays, to see that they were left alone."""
        rows = [self.logprobs, *(self.outputs[name] for name in sorted(self.outputs))]
        return [x.detach().numpy().copy() for row in rows for x in row]


def outputs_of(loss: Loss) -> frozenset[str]:
    """What the loss asks of the forward pass besides logprobs."""
    found: frozenset[str] = getattr(loss, "outputs", frozenset())
    return found


def leaves(rows: Any) -> list[Any]:
    """Arrays as tensors with gradients."""
    return [torch().tensor(np.asarray(row), requires_grad=True) for row in rows]


def gradient(x: Any) -> np.ndarray:
    """The gradient of a leaf (T,), zeros where nothing arrived."""
    found: np.ndarray = np.zeros(len(x)) if x.grad is None else x.grad.numpy().copy()
    return found


def torch() -> Any:
    """PyTorch; the test is skipped aloud where there is none."""
    return pytest.importorskip("torch", reason="losses are computed with torch, not installed")


def agreeing(data: Sequence[Datum], needs: frozenset[str]) -> list[Datum]:
    """The data as if every model the loss asks for were the sampler itself."""
    return [attrs.evolve(d, annotations=dict.fromkeys(needs, d.logprobs)) for d in data]


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

    return attrs.evolve(
        datum,
        tokens=longer(datum.tokens),
        mask=longer(datum.mask),
        logprobs=longer(datum.logprobs),
        advantages=longer(datum.advantages),
        weights=longer(datum.weights),
        annotations={name: longer(array) for name, array in datum.annotations.items()},
    )
