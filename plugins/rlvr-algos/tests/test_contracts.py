"""The contract kit, run on everything this distribution offers, in every variant."""

from __future__ import annotations

from typing import Any

import pytest

from rlvr import CORRECTIONS, Advantage, BuildContext, Loss
from rlvr.testing import AdvantageContract, LossContract, PluginContract
from rlvr_algos.advantages.best import BestAdvantage, OneAdvantage
from rlvr_algos.advantages.global_batch import GaeAdvantage, GlobalAdvantage
from rlvr_algos.advantages.group import GroupAdvantage, RlooAdvantage
from rlvr_algos.advantages.opd import OpdAdvantage
from rlvr_algos.losses.grpo import CispoLoss, GrpoLoss, GspoLoss, ReinforceLoss
from rlvr_algos.losses.ppo import PpoLoss
from rlvr_algos.losses.sft import SftLoss

CONTEXT = BuildContext()
KL = [{"kl_coef": 0.3, "kl_estimator": name} for name in ("k1", "k2", "k3")]
ALL = {"kl_coef": 0.3, "kl_target": 0.1, "entropy_coef": 0.1, "correction": "tis-token"}


class TestPlugin(PluginContract):
    module = "rlvr_algos.plugin"


class _Ours:
    """A part of this plugin with the options of the class's parameter."""

    part: Any

    @pytest.fixture(autouse=True)
    def _choose(self, options: dict[str, Any]) -> None:
        self.options = options

    def made(self) -> Any:
        return self.part(self.part.config_class(**self.options), CONTEXT)


class _OurLoss(_Ours, LossContract):
    make_loss = _Ours.made


class _OurAdvantage(_Ours, AdvantageContract):
    make_advantage = _Ours.made


def variants(*options: dict[str, Any]) -> Any:
    """A class of tests once for each set of options."""
    return pytest.mark.parametrize("options", options, ids=str, scope="class")


@variants(
    {},
    *KL,
    {"entropy_coef": 0.1},
    *({"correction": kind, "correction_cap": 1.3} for kind in CORRECTIONS[1:]),
    {**ALL, "clip_high": 0.28},
)
class TestGrpo(_OurLoss):
    part = GrpoLoss


@variants({}, {"clip_low": 0.2, "clip_high": 0.2}, {**ALL, "correction": "mis-sequence"})
class TestGspo(_OurLoss):
    part = GspoLoss


@variants({}, {"clip_low": 0.2, "clip_high": 0.2}, {**ALL, "correction": "tis-sequence"})
class TestCispo(_OurLoss):
    part = CispoLoss


@variants({}, {**ALL, "correction": "mis-token"})
class TestReinforce(_OurLoss):
    part = ReinforceLoss


@variants({}, {"value_clip": 0.0}, ALL)
class TestPpo(_OurLoss):
    part = PpoLoss


class TestSft(LossContract):
    def make_loss(self) -> Loss:
        return SftLoss(None, CONTEXT)


@variants(
    {},
    {"normalise_std": False},
    {"kl_coef": 0.1, "kl_target": 0.05},
    {"drop_equal": True, "refills": 3},
    {"clip": 0.7, "normalise_std": False},
    {"length_penalty": 1.0, "truncated": "mask"},
)
class TestGroup(_OurAdvantage):
    part = GroupAdvantage


@variants({"whiten": True}, {"whiten": True, "kl_coef": 0.1})
class TestWhitenedGroup(_OurAdvantage):
    part = GroupAdvantage


@variants(
    {},
    {"clip": 5.0, "kl_discount_factor": 0.5},
    {"kl_penalty_coef": 0.3, "kl_discount_factor": 1.0, "kl_coef": 0.1, "kl_target": 0.05},
    {"kl_penalty_coef": 0.0, "teacher": ""},
)
class TestOpd(_OurAdvantage):
    part = OpdAdvantage

    def make_advantage(self) -> Advantage:
        self.options = {"teacher": "gpt2:somewhere", **self.options}
        return super().make_advantage()


@variants({}, {"kl_coef": 0.1}, {"truncated": "penalise", "truncated_penalty": 0.5})
class TestRloo(_OurAdvantage):
    part = RlooAdvantage


@variants({}, {"whiten": False}, {"kl_coef": 0.1, "discount": 0.9}, {"clip": 0.5})
class TestGlobal(_OurAdvantage):
    part = GlobalAdvantage


@variants({}, {"whiten": False, "gae_lambda": 1.0}, {"kl_coef": 0.1, "kl_target": 0.1})
class TestGae(_OurAdvantage):
    part = GaeAdvantage


@variants({}, {"threshold": 0.5}, {"threshold": 0.0, "refills": 2})
class TestBest(_OurAdvantage):
    part = BestAdvantage


class TestOne(AdvantageContract):
    def make_advantage(self) -> Advantage:
        return OneAdvantage(None, CONTEXT)
