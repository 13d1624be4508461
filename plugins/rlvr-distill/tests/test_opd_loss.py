"""Loss `opd`: the sum of its parts in every mode, and the gradient that both ways share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np
import pytest
import torch
from torch import Tensor

from rlvr import BackendError, BuildContext, Datum, DistributionRequest, NamedForm, Needs, TopK
from rlvr.testing.distilling import MadeUp
from rlvr_algos.advantages.opd import OpdAdvantage
from rlvr_algos.config import ReinforceConfig
from rlvr_algos.losses.grpo import ReinforceLoss
from rlvr_distill.config import DistillConfig
from rlvr_distill.loss import DistillLoss
from rlvr_distill.opd.config import OpdLossConfig
from rlvr_distill.opd.loss import OpdLoss

VOCABULARY, WIDTH = 7, 4
CONTEXT = BuildContext()
TEACHER = MadeUp("t")


class Student:
    """States and an output head as leaves; the forward pass of a batch."""

    def __init__(self, data: Sequence[Datum], seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.data = data
        self.weights = torch.randn(VOCABULARY, WIDTH, generator=generator).requires_grad_()
        self.states = [
            torch.randn(int(d.mask.sum()), WIDTH, generator=generator).requires_grad_()
            for d in data
        ]

    def logprobs(self) -> list[Tensor]:
        """(T,) of each datum's tokens; 0 where the policy wrote none."""
        found = []
        for datum, states in zip(self.data, self.states, strict=True):
            rows = torch.log_softmax(states @ self.weights.T, 1)
            places = torch.from_numpy(np.flatnonzero(datum.mask))
            tokens = torch.from_numpy(datum.tokens[datum.mask].astype(np.int64))
            own = rows.gather(1, tokens[:, None])[:, 0]
            found.append(torch.zeros(len(datum.tokens)).index_put((places,), own))
        return found

    def outputs(self) -> dict[str, list[Any]]:
        head = SimpleNamespace(weights=self.weights, bias=None, scale=1.0, softcap=0.0)
        return {"hidden": self.states, "head": [head]}

    def gradients(self, loss: Tensor) -> list[Tensor]:
        """Of the head's weights, then of each datum's states."""
        return list(torch.autograd.grad(loss, [self.weights, *self.states]))

    def told(self, loss: Any, data: Sequence[Datum] | None = None) -> tuple[Tensor, Any, Any]:
        """Loss, metrics, and gradients of weights and states."""
        given = self.data if data is None else data
        value, metrics = loss(given, self.logprobs(), self.outputs())
        return value, metrics, self.gradients(value)


def teacher_rows(count: int, seed: int) -> TopK:
    """Whole distributions (n, V)."""
    logits = np.random.default_rng(seed).normal(size=(count, VOCABULARY))
    rows = logits - np.logaddexp.reduce(logits, axis=1)[:, None]
    ids = np.tile(np.arange(VOCABULARY), (count, 1))
    return TopK(ids=ids, logprobs=rows, actual=rows[:, 0], is_whole=True)


def batch(seed: int = 0) -> list[Datum]:
    """Two answers with rewards' advantages apart from the whole ones, and their teacher."""
    rng = np.random.default_rng(seed)
    found = []
    for number, mask in enumerate(([0, 1, 1, 0, 1], [0, 0, 1, 1])):
        own = np.array(mask, bool)
        found.append(
            Datum(
                tokens=rng.integers(0, VOCABULARY, len(own)),
                mask=own,
                logprobs=-rng.exponential(size=len(own)) * own,
                advantages=rng.normal(size=len(own)) * own,
                weights=own / 5,
                problem_id=f"p{number}",
                annotations={"credit/reward": (rng.normal(size=len(own)) * own).astype("f4")},
                distributions={"teacher": teacher_rows(int(own.sum()), seed + number)},
            )
        )
    return found


def loss_of(mode: str, **options: Any) -> OpdLoss:
    """The loss with its teacher met."""
    shared = attrs.fields_dict(ReinforceConfig).keys() & options.keys()
    own = ReinforceConfig(**{name: options[name] for name in shared})
    inner = ReinforceLoss(own, CONTEXT)
    loss = OpdLoss(OpdLossConfig(mode=mode, **options), BuildContext(inner=inner))
    loss.meet({"teacher": TEACHER})
    return loss


def close(found: Sequence[Tensor], wanted: Sequence[Tensor]) -> bool:
    return all(torch.allclose(a, b, atol=1e-6) for a, b in zip(found, wanted, strict=True))


def test_pg_is_reinforce_exactly() -> None:
    """Value, metrics and gradient; a service knows it by that name; the teacher is not asked."""
    data = batch()
    pg, plain = loss_of("pg"), ReinforceLoss(None, CONTEXT)

    value, metrics, slopes = Student(data).told(pg)
    wanted, same, plain_slopes = Student(data).told(plain)

    assert (value, metrics) == (wanted, same)
    assert all(torch.equal(a, b) for a, b in zip(slopes, plain_slopes, strict=True))
    assert pg.builtin_form() == plain.builtin_form() == NamedForm(name="importance_sampling")
    assert pg.needs == plain.needs == Needs()
    assert pg.token_weights(data) == data


@pytest.mark.parametrize("mode", ["supervised", "both"])
@pytest.mark.parametrize("name", ["reverse_kl", "jsd"])
def test_modes_are_the_sum_of_their_parts(mode: str, name: str) -> None:
    """`reinforce` on the reward's advantages, or on all, plus `coef` times the loss `distill`."""
    data = batch()
    loss = loss_of(mode, loss=name, coef=0.3)
    distill = DistillLoss(DistillConfig(loss=name, teacher="t"), CONTEXT)
    distill.meet({"teacher": TEACHER})
    credit = [
        d.annotations["credit/reward"] if mode == "supervised" else d.advantages for d in data
    ]

    rewarded = [attrs.evolve(d, advantages=a) for d, a in zip(data, credit, strict=True)]

    value, metrics, slopes = Student(data).told(loss)

    student = Student(data)
    first, _ = ReinforceLoss(None, CONTEXT)(rewarded, student.logprobs(), {})
    second, told = distill(data, student.logprobs(), student.outputs())
    wanted = first + 0.3 * second
    assert value.item() == pytest.approx(wanted.item(), rel=1e-5)
    assert close(slopes, student.gradients(wanted))
    assert metrics["loss/policy"] == pytest.approx(first.item(), rel=1e-5)
    assert metrics["loss/distill"] == pytest.approx(told["loss/distill"], rel=1e-5)
    assert loss.builtin_form() is None
    assert loss.needs.outputs == {"hidden", "head"}
    assert loss.needs.distributions == {"teacher": DistributionRequest(k=0, temperature=1.0)}


def test_micro_batches_add_up() -> None:
    """Once what each token counts was settled for the whole update."""
    data = batch()
    loss = loss_of("both", loss="reverse_kl", weighting="confidence")
    settled = loss.token_weights(data)
    student = Student(settled)

    whole, _ = loss(settled, student.logprobs(), student.outputs())

    logprobs, outputs = student.logprobs(), student.outputs()
    parts = [
        loss([d], [lp], {"hidden": [states], "head": outputs["head"]})[0]
        for d, lp, states in zip(settled, logprobs, student.states, strict=True)
    ]
    assert sum(p.item() for p in parts) == pytest.approx(whole.item(), rel=1e-5)


def one_token(token: int, sampled: np.ndarray, told: TopK, **annotations: float) -> Datum:
    """An answer of one token, drawn from `sampled` (V,) logprobs."""
    mask = np.array([False, True])
    return Datum(
        tokens=[0, token],
        mask=mask,
        logprobs=[0, sampled[token]],
        advantages=[0, 0],
        weights=mask,
        annotations={k: np.array([0, v], np.float32) for k, v in annotations.items()},
        distributions={"teacher": told},
    )


def test_on_average_both_ways_have_the_same_gradient() -> None:
    """
    Over all tokens that may be drawn: sum_y q(y) grad pg(y) = grad KL(q || p).

    The log-ratio of the advantage `opd`, through `reinforce`; and `opd.loss=reverse_kl`.
    """
    teacher = teacher_rows(1, seed=3)
    shape = one_token(0, np.zeros(VOCABULARY), teacher)
    states, weights = Student([shape]).states[0], Student([shape]).weights
    sampled = torch.log_softmax(states @ weights.T, 1)[0].detach().numpy()
    options = OpdAdvantage.config_class(teacher="t", reward_coef=0.0)
    advantage = OpdAdvantage(options, CONTEXT)

    mean = [torch.zeros_like(g) for g in (weights, states)]
    for token in range(VOCABULARY):
        asked = one_token(token, sampled, teacher, teacher=float(teacher.logprobs[0, token]))
        (refined,) = advantage.per_token([asked])
        student = Student([refined])
        value, _ = loss_of("pg")([refined], student.logprobs(), {})
        for total, slope in zip(mean, student.gradients(value), strict=True):
            total += float(np.exp(sampled[token])) * slope

    student = Student([one_token(0, sampled, teacher, **{"credit/reward": 0.0})])
    _, _, wanted = student.told(loss_of("supervised", loss="reverse_kl"))
    assert close(mean, wanted)


def test_supervised_needs_the_rewards_share() -> None:
    """Another advantage leaves none, which is said with what to do."""
    data = [attrs.evolve(d, annotations={}) for d in batch()]
    student = Student(data)

    with pytest.raises(BackendError, match=r"'credit/reward'(.|\n)*--algo opd"):
        loss_of("supervised")(data, student.logprobs(), student.outputs())


def test_its_memory_holds_both_and_teachers_stay_met() -> None:
    """A KL weight with a target, and what the divergence remembers, apart in checkpoints."""
    loss = loss_of("both", kl_coef=0.1, kl_target=0.5, weighting="adaptive")
    metrics = {"kl/reference": 5.0, "distill/action": 2.0, "distill/reasoning": 1.0}

    memory: Mapping[str, float] = loss.adapted({}, metrics)
    later = loss.with_memory(memory)

    assert memory["kl_coef"] == pytest.approx(0.1 * (1 + 0.2 / 10))
    own = DistillLoss(DistillConfig(teacher="t", weighting="adaptive"), CONTEXT)
    wanted = own.adapted({}, metrics)
    assert {k: v for k, v in memory.items() if k != "kl_coef"} == {
        f"distill/{k}": v for k, v in wanted.items()
    }
    again = later.adapted(memory, metrics)
    assert again["kl_coef"] == pytest.approx(memory["kl_coef"] * (1 + 0.2 / 10))
    data = [_referenced(d) for d in batch()]
    value, metrics = later(data, Student(data).logprobs(), Student(data).outputs())
    assert metrics["kl/coefficient"] == pytest.approx(memory["kl_coef"], rel=1e-5)
    assert torch.isfinite(value)


def _referenced(datum: Datum) -> Datum:

    added = {**datum.annotations, "reference": datum.logprobs * 0.5}
    return attrs.evolve(datum, annotations=added)


@pytest.mark.parametrize("mode", ["pg", "both"])
def test_the_policy_gradient_inside_is_met_and_asked(mode: str) -> None:
    """What it may do besides the loss goes on to it: teachers, weights of tokens."""
    met: list[Any] = []

    class Weighs(ReinforceLoss):
        def meet(self, teachers: Any) -> None:
            met.append(set(teachers))

        def token_weights(self, data: Sequence[Datum]) -> list[Datum]:
            return [attrs.evolve(d, annotations={**d.annotations, "seen": d.weights}) for d in data]

    context = BuildContext(inner=Weighs(None, CONTEXT))
    loss = OpdLoss(OpdLossConfig(mode=mode), context)
    loss.meet({"teacher": TEACHER})

    assert met == [{"teacher"}]
    assert all("seen" in datum.annotations for datum in loss.token_weights(batch()))
