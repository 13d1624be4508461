"""Weights under the names of a model's files: those of `save_pretrained`, and no others."""

from __future__ import annotations

import pytest
import torch
import transformers
from safetensors.torch import load_file

from rlvr import ConfigError
from rlvr_torch.config import TorchConfig
from rlvr_torch.models.hf.file_weights import file_weights
from rlvr_torch.models.hf.load import load_net
from rlvr_torch.models.lora.adapters import attach


@pytest.mark.parametrize(
    "family", ["llama", "qwen2", "gemma2", "glm4", "gpt2", "mixtral", "qwen3_moe", "gpt_oss"]
)
def test_names_and_values_are_those_of_the_file(family, make_hf):
    """Dense, tied, and mixtures, whose experts transformers holds as one tensor."""
    directory = make_hf(family)
    wanted = load_file(directory / "model.safetensors")
    found = dict(file_weights(load_net(str(directory))))
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    if family in ("mixtral", "qwen3_moe"):
        assert any(".experts.0." in name for name in found)


def test_tied_weights_come_once(make_hf, tmp_path):
    """A head that is the embedding is in no file, and is not handed over."""
    shape = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": True}
    model = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**shape, **heads))
    model.save_pretrained(tmp_path)
    names = load_file(tmp_path / "model.safetensors").keys()
    assert "lm_head.weight" not in names
    assert dict(file_weights(load_net(str(tmp_path)))).keys() == names


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")
@pytest.mark.parametrize("family", ["llama", "mixtral"])
def test_adapters_are_merged_and_the_net_is_left_alone(family, make_hf, tmp_path):
    """As a merged model's file; base and adapters have the same bits afterwards."""
    pytest.importorskip("peft", reason="peft is not installed")
    net = load_net(str(make_hf(family)))
    attach(net, TorchConfig(lora_rank=2, lora_targets="q_proj,v_proj"), 0)
    with torch.no_grad():
        for value in net.module.parameters():
            if value.requires_grad:
                value += 0.1
    before = {name: value.clone() for name, value in net.model.state_dict().items()}
    found = {name: value.clone() for name, value in file_weights(net)}
    assert all(torch.equal(value, before[name]) for name, value in net.model.state_dict().items())
    net.adapted.merge_and_unload().save_pretrained(tmp_path)
    wanted = load_file(tmp_path / "model.safetensors")
    assert found.keys() == wanted.keys()
    assert all(torch.allclose(found[name], wanted[name], atol=1e-6) for name in wanted)
    query = "model.layers.0.self_attn.q_proj.weight"
    assert not torch.equal(found[query], before[query.replace("weight", "base_layer.weight")])


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")
def test_adapters_on_experts_are_refused(make_hf):
    """They are no linear layers, and would be left out: it says which layers to adapt instead."""
    pytest.importorskip("peft", reason="peft is not installed")
    net = load_net(str(make_hf("mixtral")))
    attach(net, TorchConfig(lora_rank=2), 0)
    with pytest.raises(ConfigError, match=r"no linear layer[\s\S]*torch.lora_targets=q_proj"):
        dict(file_weights(net))
