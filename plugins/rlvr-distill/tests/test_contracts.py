"""The contract kit, run on everything this distribution offers, in every variant."""

from __future__ import annotations

from typing import Any

import pytest

from rlvr import BuildContext, Loss
from rlvr.testing import LossContract, PluginContract
from rlvr_algos.config import ReinforceConfig
from rlvr_algos.losses.grpo import ReinforceLoss
from rlvr_distill.config import DistillConfig
from rlvr_distill.loss import DistillLoss
from rlvr_distill.opd.config import OpdLossConfig
from rlvr_distill.opd.loss import OpdLoss

CONTEXT = BuildContext()
ALL = {"kl_coef": 0.3, "kl_target": 0.1, "entropy_coef": 0.1, "correction": "mis-token"}


class TestPlugin(PluginContract):
    module = "rlvr_distill.plugin"


class _OurLoss(LossContract):
    """The contract on a loss of this plugin with the options of the class's parameter."""

    @pytest.fixture(autouse=True)
    def _choose(self, options: dict[str, Any]) -> None:
        self.options = options


def variants(*options: dict[str, Any]) -> Any:
    """A class of tests once for each set of options."""
    return pytest.mark.parametrize("options", options, ids=str, scope="class")


@variants(
    {},
    {"loss": "jsd", "top_k": 3, "weighting": "difficulty"},
    {"loss": "reverse_kl", "top_k": 3, "tail": "renorm", "temperature": 2.0, "scale_t2": True},
    {"loss": "wasserstein", "support": 2, "weighting": "confidence", "reduction": "span"},
    {"loss": "akl", "reduction": "paper", "weighting": "adaptive", "span_metrics": False},
    {"loss": "focal", "adapt_temperature": 0.5, "weighting": "curriculum"},
)
class TestDistill(_OurLoss):
    def make_loss(self) -> Loss:
        return DistillLoss(DistillConfig(teacher="gpt2:there", **self.options), CONTEXT)


class _OpdLoss(_OurLoss):
    def make_loss(self) -> Loss:
        gradient = {k: v for k, v in self.options.items() if k in ALL}
        inner = ReinforceLoss(ReinforceConfig(**gradient), CONTEXT)
        loss: Any = OpdLoss(OpdLossConfig(**self.options), BuildContext(inner=inner))
        return loss


@variants({}, ALL)
class TestOpdLoss(_OpdLoss):
    pass


@variants({"mode": "both"}, {"mode": "both", "loss": "skew_rkl", "top_k": 2, "kl_coef": 0.1})
class TestOpdWithDivergence(_OpdLoss):
    pass
