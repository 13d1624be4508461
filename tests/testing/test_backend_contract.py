"""BackendContract finds each planted fault (that it passes TinyBackend is tested beside)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from rlvr import Capabilities, Completion, Datum, FloatArray, GenerateRequest, Loss, Policy
from rlvr.testing import BackendContract, TinyBackend
from rlvr.testing.fakes import CharTokenizer
from rlvr.testing.fakes.tiny import TinyPolicy
from tests.testing.conftest import Broken, Faults

breaks = Faults()


class Gives(TinyBackend):
    """A backend whose policies are of another kind."""

    kind: type[TinyPolicy]

    async def policy(self) -> Policy:
        return self.kind(self._logits.copy(), self._version, self.tokenizer)


@breaks("sampler_and_trainer_agree")
class IgnoresTemperature(TinyBackend):
    async def logprobs(self, data: Sequence[Datum], which: str) -> list[FloatArray]:
        return await super().logprobs([attrs.evolve(d, temperature=1.0) for d in data], which)


@breaks("sampler_and_trainer_agree")
class SamplerLagsBehind(TinyBackend):
    """The weights never arrive at the sampler: the field's most expensive bug."""

    async def policy(self) -> Policy:
        return TinyPolicy(self._reference.copy(), self._version, self.tokenizer)


@breaks("an_old_policy_is_a_snapshot_or_refuses")
class HandleFollows(TinyBackend):
    """An old handle samples from the new weights."""

    def __init__(self) -> None:
        super().__init__()
        self._shared = self._logits.copy()

    async def policy(self) -> Policy:
        self._shared[:] = self._logits
        return TinyPolicy(self._shared, self._version, self.tokenizer)

    async def update(self, data: Sequence[Datum], loss: Loss) -> dict[str, float]:
        metrics = await super().update(data, loss)
        self._shared[:] = self._logits
        return metrics


@breaks("version_grows_by_one_and_digest_changes")
class NoVersion(TinyBackend):
    async def update(self, data: Sequence[Datum], loss: Loss) -> dict[str, float]:
        metrics = await super().update(data, loss)
        self._version = 0
        return metrics


@breaks("two_start_from_equal_weights")
class DrawsItsWeights(TinyBackend):
    seeds = itertools.count()

    def __init__(self) -> None:
        super().__init__(seed=next(self.seeds))


@breaks("load_restores_what_save_wrote")
class ForgetsMomentum(TinyBackend):
    async def load(self, directory: Path) -> None:
        await super().load(directory)
        self._velocity = np.zeros_like(self._velocity)


@breaks("load_restores_what_save_wrote")
class ForgetsTheReference(TinyBackend):
    async def load(self, directory: Path) -> None:
        await super().load(directory)
        self._reference = self._logits.copy()


@breaks("reference_stands_still")
class MovesTheReference(TinyBackend):
    async def update(self, data: Sequence[Datum], loss: Loss) -> dict[str, float]:
        metrics = await super().update(data, loss)
        self._reference = self._logits.copy()
        return metrics


@breaks("steps_on_the_same_data_lower_the_loss")
class ClimbsUp(TinyBackend):
    def __init__(self) -> None:
        super().__init__(lr=-5.0)


@breaks("unknown_model_is_refused")
class AnyModelIsThePolicy(TinyBackend):
    async def logprobs(self, data: Sequence[Datum], which: str) -> list[FloatArray]:
        known = which if which in ("policy", "reference") else "policy"
        return await super().logprobs(data, known)


@breaks("step_reports_the_losss_own_metrics")
class AveragesMicroBatches(TinyBackend):
    """Runs the loss datum by datum and averages the metrics."""

    async def update(self, data: Sequence[Datum], loss: Loss) -> dict[str, float]:
        metrics = await super().update(data, loss)
        return {**metrics, "weight/sum": metrics["weight/sum"] / len(data)}


@breaks("mixed_lengths_do_not_matter")
class PadsBadly(TinyBackend):
    """Logprobs depend on the longest datum beside them."""

    async def logprobs(self, data: Sequence[Datum], which: str) -> list[FloatArray]:
        longest = max(len(d.tokens) for d in data)
        rows = await super().logprobs(data, which)
        return [row - np.float32(0.01) * (longest - len(row)) for row in rows]


class _Shared(TinyPolicy):
    async def generate(self, requests: Sequence[GenerateRequest]) -> list[Completion]:
        return await super().generate(
            [attrs.evolve(r, seed=r.seed + place) for place, r in enumerate(requests)]
        )


@breaks("equal_requests_give_equal_completions")
class SharedRandomness(Gives):
    """Draws depend on the place of a request in its batch."""

    kind = _Shared


class _Long(TinyPolicy):
    async def generate(self, requests: Sequence[GenerateRequest]) -> list[Completion]:
        return await super().generate(
            [attrs.evolve(r, params=attrs.evolve(r.params, max_tokens=40)) for r in requests]
        )


@breaks("completions_keep_their_limits")
class TalksTooLong(Gives):
    kind = _Long


@breaks("outputs_are_given_or_refused")
class OverhearsOutputs(TinyBackend):
    """Calls a loss that asks for more as if it did not."""

    async def update(self, data: Sequence[Datum], loss: Loss) -> dict[str, float]:
        return await super().update(data, lambda *given: loss(*given))  # type: ignore[arg-type]


@breaks("eval_loss_tells_what_an_update_would_and_changes_nothing")
class LearnsWhileLooking(TinyBackend):
    """Appraises by taking the step."""

    async def eval_loss(self, data: Sequence[Datum], loss: Loss) -> dict[str, float]:
        metrics = await self.update(data, loss)
        return {name: value for name, value in metrics.items() if name not in ("lr", "grad/norm")}


@breaks("eval_loss_tells_what_an_update_would_and_changes_nothing")
class AppraisesTheStart(TinyBackend):
    """Says what the loss was before any step."""

    async def eval_loss(self, data: Sequence[Datum], loss: Loss) -> dict[str, float]:
        other = TinyBackend(seed=1)
        return await other.eval_loss(data, loss)


@breaks("states_and_head_make_the_distribution")
class StatesOfTheNextToken(TinyBackend):
    """Off by one: gives the state after the token in place of the one before it."""

    def states(self, data: Sequence[Datum]) -> list[Any]:
        return super().states([attrs.evolve(d, tokens=np.roll(d.tokens, -1)) for d in data])


@breaks("a_loss_over_distributions_is_learnt_from")
class HeadWithoutGradient(TinyBackend):
    """The head is a constant, and nothing of such a loss is ever learnt."""

    def _leaves(self, data: Any, loss: Any, *, with_grad: bool) -> Any:
        leaves, outputs = super()._leaves(data, loss, with_grad=with_grad)
        for head in outputs.get("head", ()):
            head.weights.requires_grad_(False)
        return leaves, outputs


@breaks("a_loss_over_distributions_is_learnt_from")
class MakesLogprobsAnyway(TinyBackend):
    """For a loss that does without them."""

    def _leaves(self, data: Any, loss: Any, *, with_grad: bool) -> Any:
        needs = loss.needs
        loss.needs = attrs.evolve(needs, logprobs=True)
        found = super()._leaves(data, loss, with_grad=with_grad)
        loss.needs = needs
        return found


@breaks("a_loss_over_distributions_is_learnt_from")
class ForgetsLogprobsBesideStates(TinyBackend):
    """For a loss that asks for both."""

    def _leaves(self, data: Any, loss: Any, *, with_grad: bool) -> Any:
        leaves, outputs = super()._leaves(data, loss, with_grad=with_grad)
        return ([] if outputs and loss.needs.logprobs else leaves), outputs


@breaks("a_loss_over_distributions_is_learnt_from")
class StatesOfEveryToken(TinyBackend):
    """The prompt's too."""

    def states(self, data: Sequence[Datum]) -> list[Any]:
        return super().states([attrs.evolve(d, mask=np.ones_like(d.mask)) for d in data])


@breaks("eval_loss_tells_what_an_update_would_and_changes_nothing")
class HidesEvalLoss(TinyBackend):
    capabilities = Capabilities()


@breaks("it_can_do_what_it_says")
class OnlySaysLive(TinyBackend):
    capabilities = Capabilities(eval_loss=True, partial_rollouts=True)


class DatedBack(TinyPolicy):
    async def generate(self, request: GenerateRequest) -> Completion:
        return attrs.evolve(await super().generate(request), versions=(0,))


@breaks("a_live_policy_follows_the_weights")
class LiveTokensOfOldWeights(Gives):
    """Follows the weights, and says that the first of them drew its tokens."""

    kind = DatedBack
    capabilities = Capabilities(eval_loss=True, partial_rollouts=True)

    async def live_policy(self) -> Policy:
        self._live = await self.policy()
        return self._live

    async def update(self, data: Sequence[Datum], loss: Loss) -> dict[str, float]:
        metrics = await super().update(data, loss)
        vars(self._live).update(vars(await self.policy()))
        return metrics


class Refusing(TinyPolicy):
    """A snapshot that says it refuses once the weights have changed."""

    is_strict = True


@breaks("an_old_policy_is_a_snapshot_or_refuses")
class SaysItIsStrict(Gives):
    kind = Refusing


class Exporting(TinyPolicy):
    """Says that it can, and cannot."""

    can_export = True


@breaks("it_can_do_what_it_says")
class SaysItExports(Gives):
    kind = Exporting


class Crowded(TinyPolicy):
    """Rounds by the number of requests."""

    async def generate_many(self, requests: Sequence[GenerateRequest]) -> list[Completion]:
        found = await super().generate_many(requests)
        shift = np.float32(1e-6 * len(requests))
        return [attrs.evolve(one, logprobs=one.logprobs - shift) for one in found]


@breaks("what_is_drawn_beside_it_changes_no_bit")
class SaysItIsInvariant(Gives):
    kind = Crowded


class Empty(Exporting):
    async def export_weights(self, directory: Path) -> None:
        """Write nothing."""


@breaks("exported_weights_are_written_or_refused")
class LeavesNothing(Gives):
    kind = Empty


class Spelling(CharTokenizer):
    """Defines bytes that nobody will ask for."""

    def bytes_of(self, token: int) -> bytes:
        return b"x"


class Stopping(CharTokenizer):
    """Slips in a name that `__init__` sets: no turn would end where it says."""

    def __init__(self) -> None:
        super().__init__("abcdefghijklmnopqrstuvwxyz")
        self.stop_id = frozenset({1})


class Doubling(CharTokenizer):
    """Closes a turn that is closed."""

    def closing(self, tokens: Sequence[int]) -> list[int]:
        return [self.eos_id]


def speaking(tokenizer: type[CharTokenizer]) -> Callable[[], TinyBackend]:
    """A backend with such a tokenizer."""
    return lambda: TinyBackend(tokenizer())


@pytest.mark.parametrize(
    ("backend", "promise"),
    [
        *breaks.cases,
        (speaking(Spelling), "it_can_do_what_it_says"),
        (speaking(Stopping), "it_can_do_what_it_says"),
        (speaking(Doubling), "its_tokenizer_is_one"),
    ],
)
def test_faults_are_found(backend: Callable[[], object], promise: str, broken: Broken) -> None:
    """Each planted fault fails the test whose promise it breaks."""
    assert promise in broken(BackendContract, promise, make_backend=backend)
