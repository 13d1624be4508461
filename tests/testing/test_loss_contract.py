"""LossContract passes on a right loss, and finds each planted fault."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import pytest

from rlvr import Datum, Loss, Needs
from rlvr.testing import LossContract
from tests.testing.conftest import Broken, Faults

torch = pytest.importorskip("torch", reason="losses are computed with torch, not installed")

breaks = Faults()
Figures = Mapping[str, float]
Told = tuple[Any, dict[str, float]]


class RightLoss(Loss):
    """Importance-weighted REINFORCE with a squared pull to the reference."""

    needs = Needs(annotations={"reference"})

    def __call__(
        self,
        data: Sequence[Datum],
        logprobs: Sequence[Any],
        outputs: Mapping[str, Sequence[Any]],
    ) -> Told:
        total, top, mean = torch.zeros((), dtype=logprobs[0].dtype), 0.0, 0.0
        for datum, x in zip(data, logprobs, strict=True):
            mask = torch.tensor(datum.mask)
            x = self.select(x, mask)
            old, advantages, weights, reference = (
                self.select(torch.tensor(array).to(x.dtype), mask)
                for array in (
                    datum.logprobs,
                    datum.advantages,
                    self.weights(datum),
                    self.reference(datum),
                )
            )
            ratio = self.ratio(x - old)
            gap = (x - reference).clamp(-20, 20)
            total = total - (weights * self.credit(ratio, advantages, x)).sum()
            total = total + (weights * gap**2 / 2).sum()
            top = max(top, float(ratio.detach().max()))
            mean += self.mean(weights, ratio)
        return total, {"ratio/max": top, "ratio/mean": mean}

    def select(self, x: Any, mask: Any) -> Any:
        return x[mask]

    def weights(self, datum: Datum) -> Any:
        return datum.weights

    def reference(self, datum: Datum) -> Any:
        return datum.annotations["reference"]

    def ratio(self, gap: Any) -> Any:
        return gap.clamp(-20, 20).exp()

    def credit(self, ratio: Any, advantages: Any, x: Any) -> Any:
        return ratio * advantages

    def mean(self, weights: Any, ratio: Any) -> float:
        return float((weights * ratio).detach().sum())


@breaks("tokens_outside_the_mask_do_not_count")
class IgnoresMask(RightLoss):
    def select(self, x: Any, mask: Any) -> Any:
        return x


@breaks("is_a_weighted_sum")
class NormalisesItself(RightLoss):
    def weights(self, datum: Datum) -> Any:
        return datum.mask / datum.mask.sum()


@breaks("stays_finite_at_extreme_logprobs")
class Overflows(RightLoss):
    def ratio(self, gap: Any) -> Any:
        return gap.exp()


@breaks("reads_only_what_it_declares")
class ReadsTheTeacherToo(RightLoss):
    def reference(self, datum: Datum) -> Any:
        return datum.annotations.get("teacher", datum.annotations["reference"])


@breaks("reads_only_what_it_declares")
class ReadsUndeclared(RightLoss):
    needs = Needs()


@breaks("on_policy_gradient_is_reinforce")
class WrongSign(RightLoss):
    def credit(self, ratio: Any, advantages: Any, x: Any) -> Any:
        return -ratio * advantages


@breaks("zero_advantages_give_no_policy_gradient")
class RewardsConfidence(RightLoss):
    def credit(self, ratio: Any, advantages: Any, x: Any) -> Any:
        return ratio * advantages + 0.01 * x


@breaks("on_policy_gradient_is_reinforce")
class ForgetsTheRatio(RightLoss):
    """Cuts the gradient on policy: the ratio is a constant."""

    def credit(self, ratio: Any, advantages: Any, x: Any) -> Any:
        return ratio.detach() * advantages + 0 * x


@breaks("micro_batches_add_up")
class AveragesOverData(RightLoss):
    """Divides by the number of data it happens to see."""

    def __call__(self, data: Any, logprobs: Any, outputs: Any) -> Told:
        loss, metrics = super().__call__(data, logprobs, outputs)
        return loss, {name: value / len(data) for name, value in metrics.items()}


@breaks("is_a_weighted_sum")
class IgnoresWeightsInMetrics(RightLoss):
    def mean(self, weights: Any, ratio: Any) -> float:
        return float(ratio.detach().mean())


@breaks("gives_a_finite_scalar_and_plain_metrics")
class GivesTensors(RightLoss):
    def mean(self, weights: Any, ratio: Any) -> Any:
        return (weights * ratio).sum().detach()


@breaks("needs_are_declared")
class NeedsAList(RightLoss):
    needs = ["reference"]  # type: ignore[assignment] # noqa: RUF012  # both are the fault


@breaks("keeps_nothing_between_calls")
class CountsCalls(RightLoss):
    """Decays with every call."""

    def __init__(self) -> None:
        self._calls = 0

    def credit(self, ratio: Any, advantages: Any, x: Any) -> Any:
        self._calls += 1
        return ratio * advantages / self._calls


@breaks("keeps_nothing_between_calls")
class WritesIntoItsInput(RightLoss):
    def credit(self, ratio: Any, advantages: Any, x: Any) -> Any:
        return ratio * advantages

    def __call__(self, data: Any, logprobs: Any, outputs: Any) -> Told:
        answer = super().__call__(data, logprobs, outputs)
        for x in logprobs:
            x.data.clamp_(min=-0.5)
        return answer


@breaks("order_of_data_does_not_matter")
class LooksAtTheFirstDatum(RightLoss):
    """A baseline that depends on the order of the data."""

    def __call__(self, data: Any, logprobs: Any, outputs: Any) -> Told:
        self._first = float(data[0].advantages.max())
        return super().__call__(data, logprobs, outputs)

    def credit(self, ratio: Any, advantages: Any, x: Any) -> Any:
        return ratio * advantages + 0.1 * (advantages != 0) * ratio * self._first


class WithValue(RightLoss):
    """Adds a critic's squared error: a loss that asks for an output."""

    needs = Needs(annotations={"reference"}, outputs={"value"})

    def __call__(self, data: Any, logprobs: Any, outputs: Any) -> Told:
        total, metrics = super().__call__(data, logprobs, outputs)
        for datum, x in zip(data, self.values(outputs), strict=True):
            mask = torch.tensor(datum.mask)
            weights = torch.tensor(datum.weights)[mask]
            total = total + (weights * (self.own(x, mask) - 1) ** 2).sum()
        return total, metrics

    def values(self, outputs: Mapping[str, Sequence[Any]]) -> Sequence[Any]:
        return outputs["value"]

    def own(self, x: Any, mask: Any) -> Any:
        return x[mask]


@breaks("uses_every_output_it_asks_for")
class IgnoresItsOutput(WithValue):
    def own(self, x: Any, mask: Any) -> Any:
        return x[mask].detach()


@breaks("uses_every_output_it_asks_for")
class DoesWithoutItsOutput(WithValue):
    def __call__(self, data: Any, logprobs: Any, outputs: Any) -> Told:
        return super().__call__(data, logprobs, {"value": outputs.get("value", logprobs)})


@breaks("tokens_outside_the_mask_do_not_count")
class LetsOutputsLeak(WithValue):
    """Multiplies by the mask instead of selecting: NaN times zero is NaN."""

    def own(self, x: Any, mask: Any) -> Any:
        return x[mask] + 0 * (x * ~mask).sum()


class Adapts(RightLoss):
    """Keeps a weight that grows with the KL."""

    def adapted(self, memory: Figures, metrics: Figures) -> Figures:
        return {"coef": memory.get("coef", 1.0) + metrics.get("kl/reference", 0.0)}

    def with_memory(self, memory: Figures) -> Any:
        return type(self)()

    def warnings(self, metrics: Figures) -> Iterable[str]:
        return ["far"] if metrics.get("kl/reference", 0.0) > 0.1 else []


@breaks("what_adapts_is_kept_in_the_memory")
class WritesIntoItsMemory(Adapts):
    def adapted(self, memory: Figures, metrics: Figures) -> Figures:
        memory["coef"] = 2.0  # type: ignore[index]  # the fault
        return memory


@breaks("what_adapts_is_kept_in_the_memory")
class RemembersTensors(Adapts):
    def adapted(self, memory: Figures, metrics: Figures) -> Figures:
        return {"coef": torch.ones(())}  # type: ignore[dict-item]  # the fault


@breaks("what_adapts_is_kept_in_the_memory")
class RecallsAnotherPart(Adapts):
    def with_memory(self, memory: Figures) -> Any:
        return RightLoss()


@breaks("an_empty_memory_changes_nothing")
class StartsElsewhere(Adapts):
    """Forgets its options when it recalls an empty memory."""

    def __init__(self, step: float = 1.0) -> None:
        self._step = step

    def adapted(self, memory: Figures, metrics: Figures) -> Figures:
        return {"coef": self._step}

    def with_memory(self, memory: Figures) -> Any:
        return type(self)(memory.get("coef", 0.0))


@breaks("warnings_are_sentences")
class CriesWolf(Adapts):
    def warnings(self, metrics: Figures) -> Iterable[str]:
        return ["something may be wrong"]


@breaks("reads_the_samplers_logprobs_if_it_says_so")
class ClaimsARatio(RightLoss):
    """It reads no logprobs of the sampler, and does not say so."""

    def credit(self, ratio: Any, advantages: Any, x: Any) -> Any:
        return advantages * x


@breaks("weighs_the_tokens_of_all_data")
class WeighsMoreThanOne(RightLoss):
    def token_weights(self, data: Sequence[Datum]) -> list[Datum]:
        return [attrs.evolve(d, weights=2 * d.weights) for d in data]


@breaks("does_without_what_it_does_not_ask_for")
class DeniesItsRatio(RightLoss):
    importance_weighted = False


@breaks("does_without_what_it_does_not_ask_for")
class DeniesItsLogprobs(WithValue):
    needs = Needs(annotations={"reference"}, outputs={"value"}, logprobs=False)


@breaks("says_what_it_needs")
class ReadsNothing(RightLoss):
    needs = Needs(annotations={"reference"}, logprobs=False)


@breaks("weighs_the_tokens_of_all_data")
class DropsDataOfAnUpdate(RightLoss):
    def token_weights(self, data: Sequence[Datum]) -> list[Datum]:
        return list(data[1:])


@breaks("names_a_builtin_form_or_none")
class IsNamedByAText(RightLoss):
    def builtin_form(self) -> Any:
        return "importance_sampling"


@pytest.mark.parametrize("loss", [RightLoss, WithValue, Adapts])
def test_a_right_loss_holds_every_promise(loss: type, broken: Broken) -> None:
    """The kit raises no false alarm."""
    assert broken(LossContract, make_loss=loss) == set()


@pytest.mark.parametrize(("loss", "promise"), breaks.cases)
def test_faults_are_found(loss: type, promise: str, broken: Broken) -> None:
    """Each planted fault fails the test whose promise it breaks."""
    assert promise in broken(LossContract, promise, make_loss=loss)


def test_pure_distillation_may_ignore_advantages(broken: Broken) -> None:
    """With `is_policy_gradient = False` only the promises about advantages are waived."""

    class NoCredit(RightLoss):
        importance_weighted = False

        def credit(self, ratio: Any, advantages: Any, x: Any) -> Any:
            return -(x.clamp(-20, 0) ** 2)

    class SaysSo(NoCredit):
        is_policy_gradient = False

    assert broken(LossContract, make_loss=SaysSo) == set()
    assert broken(LossContract, make_loss=NoCredit) == {
        "on_policy_gradient_is_reinforce",
        "zero_advantages_give_no_policy_gradient",
    }
