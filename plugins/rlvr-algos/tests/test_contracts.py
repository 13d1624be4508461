"""The contract kit, run on everything this distribution offers."""

from __future__ import annotations

import pytest

from rlvr.parts import Advantage, BuildContext, Loss
from rlvr.testing import AdvantageContract, LossContract, PluginContract
from rlvr_algos.config import GroupAdvantageConfig, GrpoConfig
from rlvr_algos.group import GroupAdvantage
from rlvr_algos.grpo import GrpoLoss
from rlvr_algos.one import OneAdvantage
from rlvr_algos.sft import SftLoss

CONTEXT = BuildContext()


class TestPlugin(PluginContract):
    module = "rlvr_algos.plugin"


@pytest.mark.parametrize("normalise_std", [True, False], ids=["std", "no-std"], scope="class")
class TestGroup(AdvantageContract):
    @pytest.fixture(autouse=True)
    def _choose(self, normalise_std: bool) -> None:
        self.config = GroupAdvantageConfig(normalise_std=normalise_std)

    def make_advantage(self) -> Advantage:
        return GroupAdvantage(self.config, CONTEXT)


class TestOne(AdvantageContract):
    is_group_relative = False

    def make_advantage(self) -> Advantage:
        return OneAdvantage(None, CONTEXT)


@pytest.mark.parametrize("estimator", ["none", "k1", "k2", "k3"], scope="class")
class TestGrpo(LossContract):
    @pytest.fixture(autouse=True)
    def _choose(self, estimator: str) -> None:
        self.config = (
            GrpoConfig()
            if estimator == "none"
            else GrpoConfig(kl_coef=0.3, kl_estimator=estimator, clip_high=0.28)
        )

    def make_loss(self) -> Loss:
        return GrpoLoss(self.config, CONTEXT)


class TestSft(LossContract):
    def make_loss(self) -> Loss:
        return SftLoss(None, CONTEXT)
