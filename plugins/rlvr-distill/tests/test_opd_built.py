"""Algorithm `opd`, as a run builds it: parts of two plugins that meet by name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from rlvr import BuildContext, ConfigError, LossSpec, Needs, PluginError
from rlvr.assembly.build_part import build
from rlvr.plugins.host import PluginHost
from rlvr.plugins.registry import Registry
from rlvr.plugins.resolve import load_object
from rlvr_distill import plugin
from rlvr_distill.opd.config import OpdLossConfig
from rlvr_distill.opd.loss import OpdLoss

(ALGORITHM,) = plugin.rlvr_algorithms()
OPD = next(spec for spec in plugin.rlvr_losses() if spec.name == "opd")


def built(spec: LossSpec = OPD, **options: Any) -> OpdLoss:
    """The loss as a run builds it with these options."""
    record = OpdLossConfig(**options)
    configured: Any = SimpleNamespace(
        host=PluginHost.load(), options=SimpleNamespace(record=lambda _: record)
    )
    loss: OpdLoss = build(configured, attrs.evolve(spec, provider="distill"), BuildContext())
    return loss


def test_vetted_values_are_options_of_the_parts_it_names() -> None:
    """The advantage of rlvr-algos, and the loss of this plugin around one of rlvr-algos'."""
    registry = Registry(PluginHost.load())
    for kind in ("advantage", "loss"):
        spec = registry.find(kind, getattr(ALGORITHM, kind))
        names = attrs.fields_dict(load_object(spec.config, spec.provider))
        own = [k for k in ALGORITHM.values if k.startswith(f"{spec.option_namespace}.")]
        assert own
        assert {key.partition(".")[2] for key in own} <= set(names)
    assert registry.find("loss", OPD.around).name == "reinforce"


def test_all_options_of_the_policy_gradient_are_this_losss_own() -> None:
    """So that each of them can be set as `opd.KEY`; the loss inside gets what was set."""
    inner = Registry(PluginHost.load()).find("loss", OPD.around)
    shared = set(attrs.fields_dict(load_object(inner.config, inner.provider)))

    assert shared <= set(attrs.fields_dict(OpdLossConfig))
    assert built().needs == Needs()
    assert built(kl_coef=0.1, correction="tis-token").needs.annotations == {"reference", "policy"}
    assert "entropy" in built(entropy_coef=0.1).needs.outputs


def test_messages_name_the_option_that_was_set() -> None:
    """The policy gradient inside speaks of `opd.*`: no `reinforce.*` was ever given."""
    with pytest.raises(ConfigError, match=r"opd\.kl_target=0\.1"):
        built(kl_target=0.1)
    (said,) = built().warnings({"mismatch/kl": 1.0})
    assert "opd.correction" in said


def test_a_loss_that_is_not_there_is_named() -> None:
    """As any part that is missing."""
    with pytest.raises(PluginError, match="nowhere"):
        built(attrs.evolve(OPD, around="nowhere"))
