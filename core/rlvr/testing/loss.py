"""The promises of a loss, as tests to inherit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import attrs
import numpy as np
import pytest

from rlvr.parts import Loss
from rlvr.testing.contract import Contract, not_given
from rlvr.testing.fakes.data import random_data
from rlvr.types import Datum

EXTREMES = (-1e4, -200.0, -40.0, -1e-4, 0.0)


class LossContract(Contract):
    """
    What every loss must hold. Give `make_loss`; torch is imported when a test runs.

    Set `is_policy_gradient = False` for a loss that ignores advantages (pure distillation): the
    two promises about advantages are then skipped, aloud.
    """

    is_policy_gradient: ClassVar[bool] = True

    def make_loss(self) -> Loss:
        """A new loss, as its spec's target builds it."""
        raise not_given(self, "make_loss")

    # --- promises -------------------------------------------------------------------------------

    def test_says_what_it_needs(self) -> None:
        """`needs` is a frozenset of annotation names; `importance_weighted` a bool."""
        loss = self.make_loss()
        assert isinstance(loss.needs, frozenset)
        assert all(isinstance(name, str) for name in loss.needs)
        assert isinstance(loss.importance_weighted, bool)

    def test_gives_a_finite_scalar_and_plain_metrics(self) -> None:
        """The loss is one differentiable number; metrics are finite floats under string names."""
        data, lp = self._case()
        value, metrics = self.make_loss()(data, lp)
        assert value.ndim == 0
        assert value.requires_grad
        assert math.isfinite(value.item())
        for name, number in metrics.items():
            assert isinstance(name, str), name
            assert type(number) is float, (name, number)
            assert math.isfinite(number), (name, number)

    def test_zero_advantages_give_no_policy_gradient(self) -> None:
        """Where nothing is better than anything, and models agree, nothing moves."""
        self._only_for_policy_gradients()
        data, _ = self._case()
        data = [_evolve(d, advantages=np.zeros(len(d.tokens))) for d in data]
        lp = _at(data, "logprobs")
        self.make_loss()(_agreeing(data, self.make_loss().needs), lp)[0].backward()
        assert all(_near(g, np.zeros_like(g)) for g in _gradients(lp))

    def test_on_policy_gradient_is_reinforce(self) -> None:
        """Where sampler, policy and reference agree, d loss / d logprob is -weight * advantage."""
        self._only_for_policy_gradients()
        data, _ = self._case()
        lp = _at(data, "logprobs")
        self.make_loss()(_agreeing(data, self.make_loss().needs), lp)[0].backward()
        for datum, gradient in zip(data, _gradients(lp), strict=True):
            wanted = -datum.weights.astype(float) * datum.advantages
            assert _near(gradient, wanted), (gradient, wanted)

    def test_tokens_outside_the_mask_do_not_count(self) -> None:
        """Prompt and environment get no gradient, and even NaN standing there changes nothing."""
        data, lp = self._case()
        plain, grads, _ = self._run(data, lp)
        torch = _torch()
        soiled_lp = [
            torch.tensor(np.where(d.mask, x.detach().numpy(), np.nan), requires_grad=True)
            for d, x in zip(data, lp, strict=True)
        ]
        soiled = [_soil(d) for d in data]
        value, soiled_grads, _ = self._run(soiled, soiled_lp)
        assert _near(value, plain), (value, plain)
        for datum, gradient, before in zip(data, soiled_grads, grads, strict=True):
            assert (gradient[~datum.mask] == 0).all(), gradient
            assert _near(gradient, before)

    def test_padding_does_not_matter(self) -> None:
        """Tokens appended outside the mask change neither loss, metrics nor gradients."""
        data, lp = self._case()
        value, grads, metrics = self._run(data, lp)
        torch = _torch()
        longer = [_pad(d, 3) for d in data]
        longer_lp = [
            torch.tensor(np.append(x.detach().numpy(), [-1.0] * 3), requires_grad=True) for x in lp
        ]
        padded, padded_grads, padded_metrics = self._run(longer, longer_lp)
        assert _near(padded, value), (padded, value)
        assert _same(padded_metrics, metrics)
        assert all(_near(a[:-3], b) for a, b in zip(padded_grads, grads, strict=True))

    def test_order_of_data_does_not_matter(self) -> None:
        """Data in reverse order give the same loss, metrics and gradients."""
        data, lp = self._case()
        value, grads, metrics = self._run(data, lp)
        turned, turned_grads, turned_metrics = self._run(data[::-1], _fresh(lp)[::-1])
        assert _near(turned, value), (turned, value)
        assert _same(turned_metrics, metrics)
        assert all(_near(a, b) for a, b in zip(turned_grads[::-1], grads, strict=True))

    def test_micro_batches_add_up(self) -> None:
        """Losses, gradients and metrics of the parts sum to the whole's; `/max` keys: maximum."""
        data, lp = self._case()
        value, grads, metrics = self._run(data, lp)
        total, split_grads, parts = 0.0, [], []
        for datum, x in zip(data, _fresh(lp), strict=True):
            part, part_grads, part_metrics = self._run([datum], [x])
            total += part
            split_grads += part_grads
            parts.append(part_metrics)
        combined = {
            name: (max if name.endswith("/max") else math.fsum)([part[name] for part in parts])
            for name in metrics
        }
        assert _near(total, value), (total, value)
        assert _same(combined, metrics), (combined, metrics)
        assert all(_near(a, b) for a, b in zip(split_grads, grads, strict=True))

    def test_is_a_weighted_sum(self) -> None:
        """Twice the weights, twice the loss, gradient and metrics: it never normalises itself."""
        data, lp = self._case()
        value, grads, metrics = self._run(data, lp)
        heavier = [_evolve(d, weights=2 * d.weights) for d in data]
        twice, twice_grads, twice_metrics = self._run(heavier, _fresh(lp))
        assert _near(twice, 2 * value), (twice, value)
        doubled = {k: v if k.endswith("/max") else 2 * v for k, v in metrics.items()}
        assert _same(twice_metrics, doubled), (twice_metrics, metrics)
        assert all(_near(a, 2 * b) for a, b in zip(twice_grads, grads, strict=True))

    def test_stays_finite_at_extreme_logprobs(self) -> None:
        """Logprobs of -10000 and 0 on either side never make infinity or NaN."""
        needs = self.make_loss().needs
        pairs = [(new, old) for new in EXTREMES for old in EXTREMES]
        mask = np.ones(len(pairs), bool)
        old = np.array([pair[1] for pair in pairs])
        for advantage in (-1.0, 1.0):
            datum = Datum(
                tokens=np.zeros(len(pairs)),
                mask=mask,
                logprobs=old,
                advantages=advantage * mask,
                weights=mask / len(pairs),
                annotations={name: old.astype(np.float32) for name in needs},
            )
            lp = [_torch().tensor([float(p[0]) for p in pairs], requires_grad=True)]
            value, grads, metrics = self._run([datum], lp)
            assert math.isfinite(value), value
            assert np.isfinite(grads[0]).all(), grads[0]
            assert all(math.isfinite(number) for number in metrics.values()), metrics

    def test_reads_only_what_it_declares(self) -> None:
        """With exactly the annotations in `needs` it runs; further ones change nothing."""
        needs = self.make_loss().needs
        data, lp = self._case()
        value, _, metrics = self._run(data, lp)
        others = ("reference", "teacher", "old")
        more = [
            _evolve(
                d,
                annotations={
                    **{n: np.full(len(d.tokens), -0.7, np.float32) for n in others},
                    **{n: d.annotations[n] for n in needs},
                },
            )
            for d in data
        ]
        again, _, again_metrics = self._run(more, _fresh(lp))
        assert _near(again, value), (again, value)
        assert _same(again_metrics, metrics)

    def test_keeps_nothing_between_calls(self) -> None:
        """The same loss object gives the same answer twice and leaves its inputs as they were."""
        data, lp = self._case()
        before = [x.detach().clone() for x in lp]
        loss = self.make_loss()
        first = loss(data, lp)
        second = loss(data, lp)
        assert first[0].item() == second[0].item()
        assert first[1] == second[1]
        assert all(_torch().equal(x, y) for x, y in zip(lp, before, strict=True))

    # --- helpers --------------------------------------------------------------------------------

    def _case(self) -> tuple[list[Datum], list[Any]]:
        """Data and float64 logprobs near, but not at, the sampler's."""
        data = random_data(seed=3, count=5, needs=self.make_loss().needs)
        rng = np.random.default_rng(4)
        torch = _torch()
        return data, [
            torch.tensor(
                np.where(d.mask, d.logprobs + rng.uniform(-0.6, 0.6, d.mask.size), -1.0),
                requires_grad=True,
            )
            for d in data
        ]

    def _run(
        self, data: Sequence[Datum], lp: Sequence[Any]
    ) -> tuple[float, list[Any], dict[str, float]]:
        for x in lp:
            x.grad = None
        value, metrics = self.make_loss()(data, lp)
        value.backward()
        return value.item(), _gradients(lp), metrics

    def _only_for_policy_gradients(self) -> None:
        if not self.is_policy_gradient:
            pytest.skip("this loss says it ignores advantages (is_policy_gradient = False)")


def _torch() -> Any:
    return pytest.importorskip("torch", reason="losses are computed with torch, not installed")


def _evolve(datum: Datum, **changes: Any) -> Datum:
    return attrs.evolve(datum, **changes)


def _agreeing(data: Sequence[Datum], needs: frozenset[str]) -> list[Datum]:
    """The data as if every model the loss asks for were the sampler itself."""
    return [_evolve(d, annotations=dict.fromkeys(needs, d.logprobs)) for d in data]


def _soil(datum: Datum) -> Datum:
    """The datum with other models' logprobs wherever the mask is False."""
    annotations = {
        name: np.where(datum.mask, array, np.nan).astype(np.float32)
        for name, array in datum.annotations.items()
    }
    return _evolve(datum, annotations=annotations)


def _pad(datum: Datum, count: int) -> Datum:
    def longer(array: Any) -> Any:
        return np.append(array, np.zeros(count, array.dtype))

    return _evolve(
        datum,
        tokens=longer(datum.tokens),
        mask=longer(datum.mask),
        logprobs=longer(datum.logprobs),
        advantages=longer(datum.advantages),
        weights=longer(datum.weights),
        annotations={name: longer(array) for name, array in datum.annotations.items()},
    )


def _at(data: Sequence[Datum], field: str) -> list[Any]:
    torch = _torch()
    return [torch.tensor(getattr(d, field).astype(float), requires_grad=True) for d in data]


def _fresh(lp: Sequence[Any]) -> list[Any]:
    return [x.detach().clone().requires_grad_() for x in lp]


def _gradients(lp: Sequence[Any]) -> list[Any]:
    return [np.zeros(len(x)) if x.grad is None else x.grad.numpy().copy() for x in lp]


def _near(found: Any, wanted: Any) -> bool:
    return bool(np.allclose(found, wanted, rtol=1e-6, atol=1e-9))


def _same(found: dict[str, float], wanted: dict[str, float]) -> bool:
    return found.keys() == wanted.keys() and all(_near(found[k], wanted[k]) for k in wanted)
