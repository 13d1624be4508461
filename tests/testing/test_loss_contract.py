"""LossContract passes on a right loss, and finds each planted fault."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs
import pytest

from rlvr import Datum, Loss, Needs
from rlvr.testing import LossContract
from rlvr.testing.contract import Contract

torch = pytest.importorskip("torch", reason="losses are computed with torch, not installed")

Broken = Callable[[type[Contract]], set[str]]


class RightLoss(Loss):
    """Importance-weighted REINFORCE with a squared pull to the reference."""

    needs = Needs(annotations={"reference"})

    def __call__(
        self,
        data: Sequence[Datum],
        logprobs: Sequence[Any],
        outputs: Mapping[str, Sequence[Any]],
    ) -> tuple[Any, dict[str, float]]:
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


class IgnoresMask(RightLoss):
    def select(self, x: Any, mask: Any) -> Any:
        return x


class NormalisesItself(RightLoss):
    def weights(self, datum: Datum) -> Any:
        return datum.mask / datum.mask.sum()


class Overflows(RightLoss):
    def ratio(self, gap: Any) -> Any:
        return gap.exp()


class ReadsTheTeacherToo(RightLoss):
    def reference(self, datum: Datum) -> Any:
        return datum.annotations.get("teacher", datum.annotations["reference"])


class ReadsUndeclared(RightLoss):
    needs = Needs()


class WrongSign(RightLoss):
    def credit(self, ratio: Any, advantages: Any, x: Any) -> Any:
        return -ratio * advantages


class RewardsConfidence(RightLoss):
    def credit(self, ratio: Any, advantages: Any, x: Any) -> Any:
        return ratio * advantages + 0.01 * x


class ForgetsTheRatio(RightLoss):
    """Cuts the gradient on policy: the ratio is a constant."""

    def credit(self, ratio: Any, advantages: Any, x: Any) -> Any:
        return ratio.detach() * advantages + 0 * x


class AveragesOverData(RightLoss):
    """Divides by the number of data it happens to see."""

    def __call__(
        self,
        data: Sequence[Datum],
        logprobs: Sequence[Any],
        outputs: Mapping[str, Sequence[Any]],
    ) -> tuple[Any, dict[str, float]]:
        loss, metrics = super().__call__(data, logprobs, outputs)
        return loss, {name: value / len(data) for name, value in metrics.items()}


class IgnoresWeightsInMetrics(RightLoss):
    def mean(self, weights: Any, ratio: Any) -> float:
        return float(ratio.detach().mean())


class GivesTensors(RightLoss):
    def mean(self, weights: Any, ratio: Any) -> Any:
        return (weights * ratio).sum().detach()


class NeedsAList(RightLoss):
    needs = ["reference"]  # type: ignore[assignment] # noqa: RUF012  # both are the fault


class CountsCalls(RightLoss):
    """Decays with every call."""

    def __init__(self) -> None:
        self._calls = 0

    def credit(self, ratio: Any, advantages: Any, x: Any) -> Any:
        self._calls += 1
        return ratio * advantages / self._calls


class WritesIntoItsInput(RightLoss):
    def credit(self, ratio: Any, advantages: Any, x: Any) -> Any:
        return ratio * advantages

    def __call__(
        self,
        data: Sequence[Datum],
        logprobs: Sequence[Any],
        outputs: Mapping[str, Sequence[Any]],
    ) -> tuple[Any, dict[str, float]]:
        answer = super().__call__(data, logprobs, outputs)
        for x in logprobs:
            x.data.clamp_(min=-0.5)
        return answer


class LooksAtTheFirstDatum(RightLoss):
    """A baseline that depends on the order of the data."""

    def __call__(
        self,
        data: Sequence[Datum],
        logprobs: Sequence[Any],
        outputs: Mapping[str, Sequence[Any]],
    ) -> tuple[Any, dict[str, float]]:
        self._first = float(data[0].advantages.max())
        return super().__call__(data, logprobs, outputs)

    def credit(self, ratio: Any, advantages: Any, x: Any) -> Any:
        return ratio * advantages + 0.1 * (advantages != 0) * ratio * self._first


class WithValue(RightLoss):
    """Adds a critic's squared error: a loss that asks for an output."""

    needs = Needs(annotations={"reference"}, outputs={"value"})

    def __call__(
        self,
        data: Sequence[Datum],
        logprobs: Sequence[Any],
        outputs: Mapping[str, Sequence[Any]],
    ) -> tuple[Any, dict[str, float]]:
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


class IgnoresItsOutput(WithValue):
    def own(self, x: Any, mask: Any) -> Any:
        return x[mask].detach()


class DoesWithoutItsOutput(WithValue):
    def __call__(
        self,
        data: Sequence[Datum],
        logprobs: Sequence[Any],
        outputs: Mapping[str, Sequence[Any]],
    ) -> tuple[Any, dict[str, float]]:
        return super().__call__(data, logprobs, {"value": outputs.get("value", logprobs)})


class LetsOutputsLeak(WithValue):
    """Multiplies by the mask instead of selecting: NaN times zero is NaN."""

    def own(self, x: Any, mask: Any) -> Any:
        return x[mask] + 0 * (x * ~mask).sum()


class Adapts(RightLoss):
    """Keeps a weight that grows with the KL."""

    def adapted(
        self, memory: Mapping[str, float], metrics: Mapping[str, float]
    ) -> Mapping[str, float]:
        return {"coef": memory.get("coef", 1.0) + metrics.get("kl/reference", 0.0)}

    def with_memory(self, memory: Mapping[str, float]) -> Any:
        return type(self)()

    def warnings(self, metrics: Mapping[str, float]) -> Iterable[str]:
        return ["far"] if metrics.get("kl/reference", 0.0) > 0.1 else []


class WritesIntoItsMemory(Adapts):
    def adapted(
        self, memory: Mapping[str, float], metrics: Mapping[str, float]
    ) -> Mapping[str, float]:
        memory["coef"] = 2.0  # type: ignore[index]  # the fault
        return memory


class RemembersTensors(Adapts):
    def adapted(
        self, memory: Mapping[str, float], metrics: Mapping[str, float]
    ) -> Mapping[str, float]:
        return {"coef": torch.ones(())}  # type: ignore[dict-item]  # the fault


class RecallsAnotherPart(Adapts):
    def with_memory(self, memory: Mapping[str, float]) -> Any:
        return RightLoss()


class StartsElsewhere(Adapts):
    """Forgets its options when it recalls an empty memory."""

    def __init__(self, step: float = 1.0) -> None:
        self._step = step

    def adapted(
        self, memory: Mapping[str, float], metrics: Mapping[str, float]
    ) -> Mapping[str, float]:
        return {"coef": self._step}

    def with_memory(self, memory: Mapping[str, float]) -> Any:
        return type(self)(memory.get("coef", 0.0))


class CriesWolf(Adapts):
    def warnings(self, metrics: Mapping[str, float]) -> Iterable[str]:
        return ["something may be wrong"]


class ClaimsARatio(RightLoss):
    """It reads no logprobs of the sampler, and does not say so."""

    def credit(self, ratio: Any, advantages: Any, x: Any) -> Any:
        return advantages * x


class WeighsMoreThanOne(RightLoss):
    def token_weights(self, data: Sequence[Datum]) -> list[Datum]:
        return [attrs.evolve(d, weights=2 * d.weights) for d in data]


class DeniesItsRatio(RightLoss):
    importance_weighted = False


class DeniesItsLogprobs(WithValue):
    needs = Needs(annotations={"reference"}, outputs={"value"}, logprobs=False)


class ReadsNothing(RightLoss):
    needs = Needs(annotations={"reference"}, logprobs=False)


class DropsDataOfAnUpdate(RightLoss):
    def token_weights(self, data: Sequence[Datum]) -> list[Datum]:
        return list(data[1:])


class IsNamedByAText(RightLoss):
    def builtin_form(self) -> Any:
        return "importance_sampling"


def contract_of(loss: type) -> type[LossContract]:
    """The contract on that loss."""

    class Case(LossContract):
        def make_loss(self) -> Any:
            return loss()

    return Case


@pytest.mark.parametrize("loss", [RightLoss, WithValue, Adapts])
def test_a_right_loss_holds_every_promise(loss: type, broken: Broken) -> None:
    """The kit raises no false alarm."""
    assert broken(contract_of(loss)) == set()


@pytest.mark.parametrize(
    ("loss", "promise"),
    [
        (IgnoresMask, "tokens_outside_the_mask_do_not_count"),
        (NormalisesItself, "is_a_weighted_sum"),
        (Overflows, "stays_finite_at_extreme_logprobs"),
        (ReadsTheTeacherToo, "reads_only_what_it_declares"),
        (ReadsUndeclared, "reads_only_what_it_declares"),
        (WrongSign, "on_policy_gradient_is_reinforce"),
        (RewardsConfidence, "zero_advantages_give_no_policy_gradient"),
        (ForgetsTheRatio, "on_policy_gradient_is_reinforce"),
        (IgnoresWeightsInMetrics, "is_a_weighted_sum"),
        (AveragesOverData, "micro_batches_add_up"),
        (GivesTensors, "gives_a_finite_scalar_and_plain_metrics"),
        (NeedsAList, "needs_are_declared"),
        (CountsCalls, "keeps_nothing_between_calls"),
        (WritesIntoItsInput, "keeps_nothing_between_calls"),
        (LooksAtTheFirstDatum, "order_of_data_does_not_matter"),
        (IgnoresItsOutput, "uses_every_output_it_asks_for"),
        (DoesWithoutItsOutput, "uses_every_output_it_asks_for"),
        (LetsOutputsLeak, "tokens_outside_the_mask_do_not_count"),
        (WritesIntoItsMemory, "what_adapts_is_kept_in_the_memory"),
        (RemembersTensors, "what_adapts_is_kept_in_the_memory"),
        (RecallsAnotherPart, "what_adapts_is_kept_in_the_memory"),
        (StartsElsewhere, "an_empty_memory_changes_nothing"),
        (CriesWolf, "warnings_are_sentences"),
        (ClaimsARatio, "reads_the_samplers_logprobs_if_it_says_so"),
        (WeighsMoreThanOne, "weighs_the_tokens_of_all_data"),
        (DeniesItsRatio, "does_without_what_it_does_not_ask_for"),
        (DeniesItsLogprobs, "does_without_what_it_does_not_ask_for"),
        (ReadsNothing, "says_what_it_needs"),
        (DropsDataOfAnUpdate, "weighs_the_tokens_of_all_data"),
        (IsNamedByAText, "names_a_builtin_form_or_none"),
    ],
)
def test_faults_are_found(loss: type, promise: str, broken: Broken) -> None:
    """Each planted fault fails the test whose promise it breaks."""
    assert promise in broken(contract_of(loss))


def test_pure_distillation_may_ignore_advantages(broken: Broken) -> None:
    """With `is_policy_gradient = False` only the promises about advantages are waived."""

    class NoCredit(RightLoss):
        importance_weighted = False

        def credit(self, ratio: Any, advantages: Any, x: Any) -> Any:
            return -(x.clamp(-20, 0) ** 2)

    class SaysSo(NoCredit):
        is_policy_gradient = False

    assert broken(contract_of(SaysSo)) == set()
    assert broken(contract_of(NoCredit)) == {
        "on_policy_gradient_is_reinforce",
        "zero_advantages_give_no_policy_gradient",
    }
