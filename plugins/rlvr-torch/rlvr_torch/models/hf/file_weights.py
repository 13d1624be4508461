"""A model's weights under the names of its files, for a program that reads such files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from torch import Tensor

from rlvr import ConfigError
from rlvr_torch.models.hf.net import HFNet

_LAYER = re.compile(r".*?\.\d+\.")


def file_weights(net: HFNet) -> Iterator[tuple[str, Tensor]]:
    """
    All tensors that `save_pretrained` would write, adapters added to copies of their base.

    transformers holds some weights in another form than files do: the experts of a mixture are one
    tensor, and a file names each of them. Its own conversion is run backwards, a layer at a time,
    so that no second model is in memory. Tied weights are given once. The net is left as it was, to
    the bit: adding an adapter and taking it away again would round.

    Raises:
        ConfigError: Adapters are on something else than linear layers (peft's on experts).
    """
    from transformers.core_model_loading import revert_weight_conversion

    def layer_of(named: tuple[str, Tensor]) -> str:
        found = _LAYER.match(named[0])
        return found[0] if found else named[0]

    for _, group in groupby(_merged(net), layer_of):
        yield from revert_weight_conversion(net.model, dict(group)).items()


def adapted_weights(net: HFNet) -> dict[str, Any]:
    """The adapted layers by the name of their base's weight; raises as `file_weights`."""
    adapted = {
        f"{name}.base_layer.weight": module
        for name, module in net.model.named_modules()
        if hasattr(module, "get_base_layer") and getattr(module, "lora_A", None)
    }
    for name, _ in net.model.named_parameters():
        is_base = ".base_layer." in name and ".lora_" not in name and not name.endswith(".bias")
        if is_base and name not in adapted:
            raise ConfigError(
                "the weights were to be handed over under the names of their files.",
                f"found: adapters on {name}, which is no linear layer",
                "adapt attention alone: torch.lora_targets=q_proj,k_proj,v_proj,o_proj",
            )
    return adapted


def _merged(net: HFNet) -> Iterator[tuple[str, Tensor]]:
    """Parameters and what else is saved, under transformers' own names."""
    adapted = adapted_weights(net)
    known: set[int] = set()
    for name, value in net.model.named_parameters():
        known.add(value.data_ptr())
        if ".lora_" in name:
            continue
        weight = value.detach()
        if (module := adapted.get(name)) is not None:
            before = weight.clone()
            module.merge()
            weight = module.get_base_layer().weight.detach().clone()
            module.unmerge()
            value.data.copy_(before)
        yield name.replace(".base_layer.", "."), weight
    for name, value in net.model.state_dict().items():
        if value.data_ptr() not in known and ".lora_" not in name:  # a buffer, and no tied weight
            yield name.replace(".base_layer.", "."), value
