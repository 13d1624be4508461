"""The promises of a loss, as tests to inherit."""

from __future__ import annotations

import inspect
import math
from importlib.util import find_spec
from typing import Any

import attrs
import numpy as np
import pytest

from rlvr.border.calls import shown
from rlvr.parts import Loss, NamedForm
from rlvr.testing.contract import check_declarations, not_given, same
from rlvr.testing.distilling import met, taught
from rlvr.testing.fakes.data import random_data
from rlvr.testing.forward import Forward, agreeing, annotated_more, leaves, padded, soiled
from rlvr.testing.learning_part import LearningPartContract
from rlvr.testing.process import nothing_changed
from rlvr.types import Datum

Ran = tuple[float, list[Any], dict[str, float]]
"""The loss, its gradients, one a datum, and its metrics."""
EXTREMES = (-1e4, -200.0, -40.0, -1e-4, 0.0)


def _computed(test: Any) -> Any:
    """Mark a promise whose test calls the loss."""
    test.is_computed = True
    return test


class LossContract(LearningPartContract):
    """
    Tests of a loss's promises. Define `make_loss`; torch is imported when a test runs.

    A loss computes with tensors that have gradients, so that nothing stands in for torch. Without
    it the first promise that calls the loss is skipped, aloud, for all of them.

    The two promises about advantages are skipped, aloud, where the loss declares that it ignores
    them (`is_policy_gradient`). A loss that needs outputs gets random ones, and its gradients
    through them are held to the same promises; so does one that compares distributions, whose
    teachers are made up. `token_weights` sees all data at once.
    """

    _base = Loss

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if find_spec("torch") is None:
            for name, test in inspect.getmembers(cls, inspect.isfunction):
                if hasattr(test, "is_computed"):
                    setattr(cls, name, None)

    def make_loss(self) -> Loss:
        """A new loss, as its spec's target builds it."""
        raise not_given(self, "make_loss")

    # --- promises -------------------------------------------------------------------------------

    def test_says_what_it_needs(self) -> None:
        """It reads something of the forward pass, and makes no annotations for others."""
        loss = self.make_loss()
        same("class of importance_weighted", type(loss.importance_weighted), bool)
        check_declarations(loss)

    def test_gives_a_finite_scalar_and_plain_metrics(self) -> None:
        """The loss is one differentiable number; metrics are finite floats under string names."""
        data, forward = self._case()
        value, metrics = forward.through(met(self.make_loss()), data)
        same("requires_grad of the loss", value.requires_grad, True)
        assert math.isfinite(value.item()), f"the loss is {value.item()}"
        for name, number in metrics.items():
            assert isinstance(name, str), f"a metric is named {shown(name)}"
            is_number = type(number) is float and math.isfinite(number)
            assert is_number, f"metric {name!r} is {shown(number)}, not a finite float"

    @_computed
    def test_zero_advantages_give_no_policy_gradient(self) -> None:
        """With zero advantages, and where all models agree, the gradient is zero."""
        self._only_for_policy_gradients()
        data, _ = self._case()
        data = [attrs.evolve(d, advantages=np.zeros(len(d.tokens))) for d in data]
        for gradient in self._on_policy(data):
            assert _near(gradient, 0.0), f"the gradient is {gradient}, not 0"

    @_computed
    def test_on_policy_gradient_is_reinforce(self) -> None:
        """Where sampler, policy and reference agree, d loss / d logprob is -weight * advantage."""
        self._only_for_policy_gradients()
        data, _ = self._case()
        for datum, gradient in zip(data, self._on_policy(data), strict=True):
            wanted = -datum.weights.astype(float) * datum.advantages
            assert _near(gradient, wanted), f"the gradient is {gradient}, not {wanted}"

    @_computed
    def test_tokens_outside_the_mask_do_not_count(self) -> None:
        """Prompt and environment get no gradient, and even NaN standing there changes nothing."""
        data, forward = self._case()
        plain, grads, _ = self._run(data, forward)
        value, soiled_grads, _ = self._run([soiled(d) for d in data], forward.soiled(data))
        assert _near(value, plain), f"the loss is {value:g}, and was {plain:g}"
        for datum, gradient, before in zip(data, soiled_grads, grads, strict=True):
            assert (gradient[:, ~datum.mask] == 0).all(), f"the gradient is {gradient}"
            assert _near(gradient, before), f"the gradient is {gradient}, and was {before}"

    @_computed
    def test_padding_does_not_matter(self) -> None:
        """Tokens appended outside the mask change neither loss, metrics nor gradients."""
        data, forward = self._case()
        value, grads, metrics = self._run([padded(d, 3) for d in data], forward.padded(3))
        _assert_same((value, [x[:, :-3] for x in grads], metrics), self._run(data, forward))

    @_computed
    def test_order_of_data_does_not_matter(self) -> None:
        """Data in reverse order give the same loss, metrics and gradients."""
        data, forward = self._case()
        value, grads, metrics = self._run(data[::-1], forward.taking(range(len(data))[::-1]))
        _assert_same((value, grads[::-1], metrics), self._run(data, forward))

    @_computed
    def test_micro_batches_add_up(self) -> None:
        """Losses, gradients and metrics of the parts sum to the whole's; `/max` keys: maximum."""
        data, forward = self._case()
        whole = self._run(data, forward)
        parts = [self._run([datum], forward.taking([i])) for i, datum in enumerate(data)]
        values, grads, metrics = zip(*parts, strict=True)
        combined = {
            name: (max if name.endswith("/max") else math.fsum)([part[name] for part in metrics])
            for name in whole[2]
        }
        _assert_same((math.fsum(values), [x for part in grads for x in part], combined), whole)

    @_computed
    def test_is_a_weighted_sum(self) -> None:
        """Twice the weights, twice the loss, gradient and metrics: it never normalises itself."""
        data, forward = self._case()
        value, grads, metrics = self._run(data, forward)
        heavier = [attrs.evolve(d, weights=2 * d.weights) for d in data]
        doubled = {k: v if k.endswith("/max") else 2 * v for k, v in metrics.items()}
        wanted = (2 * value, [2 * x for x in grads], doubled)
        _assert_same(self._run(heavier, forward.fresh()), wanted)

    @_computed
    def test_stays_finite_at_extreme_logprobs(self) -> None:
        """Logprobs of -10000 and 0 on either side never make infinity or NaN."""
        loss = met(self.make_loss())
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
                annotations={name: old.astype(np.float32) for name in loss.needs.annotations},
            )
            data = loss.token_weights(taught([datum], loss.needs.distributions, spread=1e3))
            forward = attrs.evolve(
                Forward.near(data, loss.needs.outputs, spread=0.0),
                logprobs=leaves([[float(pair[0]) for pair in pairs]]),
            )
            forward = forward.extreme(old)
            value, grads, metrics = self._run(data, forward)
            assert math.isfinite(value), f"the loss is {value}"
            assert np.isfinite(grads[0]).all(), f"the gradient is {grads[0]}"
            assert all(map(math.isfinite, metrics.values())), f"the metrics are {metrics}"

    @_computed
    def test_reads_only_what_it_declares(self) -> None:
        """With exactly the annotations in `needs` it runs; further ones change nothing."""
        data, forward = self._case()
        value, _, metrics = self._run(data, forward)
        more = annotated_more(data, ("reference", "teacher", "policy", "value", "return", "old"))
        again, _, again_metrics = self._run(more, forward.fresh())
        assert _near(again, value), f"the loss is {again:g}, and was {value:g}"
        assert _same(again_metrics, metrics), f"metrics are {again_metrics}, and were {metrics}"

    @_computed
    def test_uses_every_output_it_asks_for(self) -> None:
        """Each output that it asks for gets a gradient; without one of them the loss raises."""
        loss = met(self.make_loss())
        data, forward = self._case()
        forward.through(loss, data)[0].backward()
        for name in sorted(loss.needs.outputs):
            assert forward.moves(name), f"the output {name} does not move the loss"
            fewer = {k: v for k, v in forward.outputs.items() if k != name}
            with pytest.raises(Exception, match=name):
                loss(data, forward.logprobs, fewer)

    @_computed
    def test_reads_the_samplers_logprobs_if_it_says_so(self) -> None:
        """`importance_weighted`, the default, bars some samplers: it must be true of the loss."""
        if not self.make_loss().importance_weighted:
            pytest.skip("this loss says that it weighs nothing by a ratio")
        data, forward = self._case()
        value, grads, _ = self._run(data, forward)
        others = [attrs.evolve(d, logprobs=d.logprobs / 2) for d in data]
        again, other_grads, _ = self._run(others, forward.fresh())
        is_same = all(_near(a, b) for a, b in zip(other_grads, grads, strict=True))
        assert not (_near(again, value) and is_same), (
            "other logprobs of the sampler change nothing: say importance_weighted = False"
        )

    @_computed
    def test_does_without_what_it_does_not_ask_for(self) -> None:
        """A loss that says it reads no logprobs, or none of the sampler's, does not read them."""
        data, forward = self._case()
        value, grads, _ = self._run(data, forward)
        loss = self.make_loss()
        if not loss.needs.logprobs:
            forward = attrs.evolve(forward, logprobs=leaves(0.0 * d.logprobs for d in data))
        if not loss.importance_weighted:
            data = [attrs.evolve(d, logprobs=d.logprobs / 2) for d in data]
        again, again_grads, _ = self._run(data, forward.fresh())
        assert _near(again, value), f"the loss is {again:g}, and was {value:g}"
        same("gradients kept", [*map(_near, again_grads, grads)], [True] * len(grads))

    def test_weighs_the_tokens_of_all_data(self) -> None:
        """`token_weights` keeps data, order and what came with them; the sum is at most 1."""
        loss = met(self.make_loss())
        data = random_data(seed=3, count=5, needs=loss.needs.annotations)
        data = taught(data, loss.needs.distributions)
        weighed = loss.token_weights(data)
        for old, new in zip(data, weighed, strict=True):
            plain = attrs.evolve(new, weights=old.weights, annotations=old.annotations)
            assert plain == old, "token_weights changed more of a datum than its weights"
            same("annotations that it lost", {*old.annotations} - {*new.annotations}, set())
            assert np.isfinite(new.weights).all(), f"weights are {new.weights}"
            assert not new.weights[~new.mask].any(), "weights outside the mask"
        total = math.fsum(float(d.weights.sum()) for d in weighed)
        assert 0 < total <= 1 + 1e-5, f"weights came with the sum 1, and have the sum {total:g}"

    def test_names_a_builtin_form_or_none(self) -> None:
        """`builtin_form` is None or a `NamedForm`; a loss with one asks for no outputs."""
        form = (loss := self.make_loss()).builtin_form()
        same("builtin_form of another loss like it", self.make_loss().builtin_form(), form)
        if form is not None:
            assert isinstance(form, NamedForm), f"builtin_form gave {shown(form)}"
            same("outputs that a loss with a builtin_form asks for", {*loss.needs.outputs}, set())

    @_computed
    def test_keeps_nothing_between_calls(self) -> None:
        """The same loss object gives the same answer twice and leaves its inputs as they were."""
        (data, forward), loss = self._case(), met(self.make_loss())
        before = forward.values()
        with nothing_changed():
            (first, metrics), (second, others) = (forward.through(loss, data) for _ in range(2))
        assert first.item() == second.item(), f"the loss is {first:g}, then {second:g}"
        assert metrics == others, f"the metrics are {metrics}, then {others}"
        same = [np.array_equal(x, y) for x, y in zip(forward.values(), before, strict=True)]
        assert all(same), "it changed logprobs or outputs that it was given"

    # --- helpers --------------------------------------------------------------------------------

    def _part(self) -> Loss:
        return self.make_loss()

    def _case(self) -> tuple[list[Datum], Forward]:
        """Data, and a forward pass near, but not at, the sampler's."""
        loss = met(self.make_loss())
        data = random_data(seed=3, count=5, needs=loss.needs.annotations)
        data = loss.token_weights(taught(data, loss.needs.distributions))
        return data, Forward.near(data, loss.needs.outputs, spread=0.6)

    def _on_policy(self, data: list[Datum]) -> list[Any]:
        """Gradients (T,) of the logprobs where all models agree."""
        loss = met(self.make_loss())
        forward = Forward.near(data, loss.needs.outputs, spread=0.0)
        forward.through(loss, agreeing(data, loss.needs.annotations))[0].backward()
        return [gradient[0] for gradient in forward.gradients()]

    def _run(self, data: list[Datum], forward: Forward) -> Ran:
        forward = forward.fresh()
        value, metrics = forward.through(met(self.make_loss()), data)
        value.backward()
        return value.item(), forward.gradients(), metrics

    def _only_for_policy_gradients(self) -> None:
        if not self.make_loss().is_policy_gradient:
            pytest.skip("this loss says it ignores advantages (is_policy_gradient = False)")


def _near(found: Any, wanted: Any) -> bool:
    return bool(np.allclose(found, wanted, rtol=1e-6, atol=1e-9, equal_nan=True))


def _assert_same(found: Ran, wanted: Ran) -> None:
    assert _near(found[0], wanted[0]), f"the loss is {found[0]:g}, not {wanted[0]:g}"
    assert _same(found[2], wanted[2]), f"the metrics are {found[2]}, not {wanted[2]}"
    for gradient, other in zip(found[1], wanted[1], strict=True):
        assert _near(gradient, other), f"the gradient is {gradient}, not {other}"


def _same(found: dict[str, float], wanted: dict[str, float]) -> bool:
    return found.keys() == wanted.keys() and all(_near(found[k], wanted[k]) for k in wanted)
